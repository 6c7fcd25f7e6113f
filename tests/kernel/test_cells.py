from __future__ import annotations

import pytest

from sandcell_kernel.cells import PythonCell, ShellCell, WrongCell, read_cell


@pytest.mark.parametrize(
    "code",
    [
        "",
        "\n\n",
        "1 + 1",
        "%%bash\nls",
        "%%shellish\nls",
        "%%shell_\nls",
        "%shell ls",
        "x = 1\n%%shell\nls",
        "# %%shell\nls",
        "%%time\n%%shell\nls",
        "!ls",
    ],
)
def test_what_is_not_ours_is_python(code: str) -> None:
    assert read_cell(code) == PythonCell()


@pytest.mark.parametrize(
    ("code", "session", "rest"),
    [
        ("%%shell\nls", "shell", "ls"),
        ("%%shell", "shell", ""),
        ("%%shell  \nls\n\npwd\n", "shell", "ls\n\npwd\n"),
        ("\n \n%%shell\nls", "shell", "ls"),
        ("  %%shell build\n  ls", "build", "  ls"),
        ("%%shell build-2\r\nls", "build-2", "ls"),
    ],
)
def test_the_first_line_names_the_session(code: str, session: str, rest: str) -> None:
    assert read_cell(code) == ShellCell(session, rest)


@pytest.mark.parametrize("code", ["%%shell a b\nls", "%%shell ../x\nls", "%%shell UPPER", "%%shell -"])
def test_a_first_line_that_cannot_be_followed_says_why(code: str) -> None:
    cell = read_cell(code)
    assert isinstance(cell, WrongCell)
    assert cell.problem
