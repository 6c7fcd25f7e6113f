from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_kernel.cells import (
    Cell,
    ContextCell,
    ExecCell,
    HelpCell,
    LineCell,
    LineOrder,
    ProcessCell,
    PythonCell,
    ShellCell,
    WrongCell,
    read_cell,
)
from sandcell_kernel.magics import MAGICS, describe_magic


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
        "%processes",
        "x = %process list",
        "%timeit 1",
        "?print",
        "%%sql?",
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
        ("%%shell\r\ncd a\r\nls\r\n", "shell", "cd a\nls\n"),
        ("%%shell\ncat <<x\na\r\nx\n", "shell", "cat <<x\na\r\nx\n"),
    ],
)
def test_the_first_line_names_the_session(code: str, session: str, rest: str) -> None:
    assert read_cell(code) == ShellCell(session, rest)


def order(magic: str, verb: str, *operands: str, **options: str) -> LineOrder:
    return LineOrder(magic, verb, operands, {f"--{name}": value for name, value in options.items()})


@pytest.mark.parametrize(
    ("code", "cell"),
    [
        ("%%exec\nls", ExecCell("ls")),
        ("%%process\nmake", ProcessCell(None, "make")),
        ("%%process job --detach\nmake", ProcessCell("job", "make", is_detached=True)),
        ("%%context js --language javascript\n1", ContextCell("js", "javascript", "1", 35)),
        ("\n%%context other\n1", ContextCell("other", None, "1", 17)),
        ("%%context other", ContextCell("other", None, "", 15)),
        ("%process", LineCell((order("%process", "list"),))),
        ("%process logs job --tail 5", LineCell((order("%process", "logs", "job", tail="5"),))),
        ("%process logs --tail=5 job", LineCell((order("%process", "logs", "job", tail="5"),))),
        ("%process kill a b", LineCell((order("%process", "kill", "a", "b"),))),
        ("%sandbox files 'my folder'", LineCell((order("%sandbox", "files", "my folder"),))),
        ("%sandbox files", LineCell((order("%sandbox", "files"),))),
        ("%sandbox files ./read", LineCell((order("%sandbox", "files", "./read"),))),
        (
            "%sandbox files read a b",
            WrongCell("'b' is too much: %sandbox files read PATH [--lines FIRST-LAST]"),
        ),
        (
            "%sandbox files write a.txt 'b c' -- --d --",
            LineCell((order("%sandbox", "files write", "a.txt", "b c", "--d", "--"),)),
        ),
        (
            "%sandbox files list --glob=*.py --sort size",
            LineCell((order("%sandbox", "files list", glob="*.py", sort="size"),)),
        ),
        ("%sandbox ports expose 8000", LineCell((order("%sandbox", "ports expose", "8000"),))),
        ("%sandbox network open", LineCell((order("%sandbox", "network", "open"),))),
        (
            "%sandbox info\n\n# then\n%context list",
            LineCell((order("%sandbox", "info"), order("%context", "list"))),
        ),
        ("%terminal", LineCell((order("%terminal", ""),))),
    ],
)
def test_the_first_line_says_what_is_done(code: str, cell: Cell) -> None:
    assert read_cell(code) == cell


@pytest.mark.parametrize("code", ["%%shell?", "?%%shell", "%%shell ??", "  %process?\n"])
def test_a_question_for_a_magic_is_help(code: str) -> None:
    assert isinstance(read_cell(code), HelpCell)


def test_a_question_is_help_whatever_of_its_cell_stands_below() -> None:
    cell = read_cell("%%process?\nsleep 1")
    assert isinstance(cell, HelpCell)
    assert cell.text.startswith("Start the cell as a process")
    assert "were not run" in cell.text
    assert isinstance(read_cell("%sandbox?\nx = 1"), WrongCell)
    assert read_cell("%%time?\nx = 1") == PythonCell()


def test_each_magic_and_each_verb_has_its_help() -> None:
    for magic in MAGICS:
        text = describe_magic(magic)
        assert magic.summary in text
        assert all(each.summary in text for each in magic.verbs)


@pytest.mark.parametrize(
    "code",
    [
        "%%shell a b\nls",
        "%%shell ../x\nls",
        "%%shell UPPER",
        "%%shell -",
        "%%shell 'a",
        "%%exec now\nls",
        "%%context\n1",
        "%%context a --language\n1",
        "%process fly",
        "%process kill",
        "%process logs job --tail many",
        "%process logs job --color",
        "%process list\nprint(1)",
        "%process list\n%%shell\nls",
        "%sandbox upload",
        "%sandbox ports open 80",
        "%sandbox files search x --context few",
    ],
)
def test_a_first_line_that_cannot_be_followed_says_why(code: str) -> None:
    cell = read_cell(code)
    assert isinstance(cell, WrongCell)
    assert cell.problem


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x85", "\t"])
def test_a_blank_of_any_kind_parts_the_words_of_our_lines(blank: str) -> None:
    info, build = LineOrder("%sandbox", "info"), "build"
    assert read_cell(f"{blank}%sandbox{blank}info{blank}") == LineCell((info,))
    assert read_cell(f"%sandbox info\n%sandbox{blank}info") == LineCell((info, info))
    assert read_cell(f"%%shell{blank}{build}{blank}\nls") == ShellCell(build, "ls")
    assert read_cell(f"%%shell{blank}echo a\nls") == WrongCell("'a' is too much: %%shell [SESSION]")


OUR_NAMES = st.sampled_from([each.name for each in MAGICS])
REST_OF_CELLS = st.text(alphabet=st.characters() | st.sampled_from(" \t\n\r\u00a0\u2028'\"\\=-#%?"))


@given(OUR_NAMES, REST_OF_CELLS)
def test_every_cell_can_be_read(name: str, rest: str) -> None:
    read_cell(f"{name}{rest}")
