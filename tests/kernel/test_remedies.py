from __future__ import annotations

from typing import Any

import pytest

from sandcell_kernel.cells import LineCell, read_cell
from sandcell_kernel.remedies import missing_file_remedy, network_remedy, place_remedy
from sandcell_kernel.wire import Message, new_message


def missing(path: str, name: str = "FileNotFoundError") -> Message:
    content: dict[str, Any] = {
        "ename": name,
        "evalue": f"[Errno 2] No such file or directory: {path!r}",
        "traceback": [],
    }
    return new_message("error", content, session="s")


def test_a_file_beside_the_notebook_is_copied_by_one_command() -> None:
    for path, line in (
        ("a.csv", "%sandbox upload a.csv"),
        ("my data/a.csv", "%sandbox upload 'my data/a.csv' 'my data/a.csv'"),
        ("./-a", "%sandbox upload -- -a"),
    ):
        told = missing_file_remedy(missing(path), is_here=lambda _: True)
        assert told.endswith(f"in a cell: {line}")
        assert isinstance(read_cell(line), LineCell)


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.csv", "a/../../b"])
def test_nothing_outside_of_the_notebooks_folder_is_looked_at(path: str) -> None:
    looked = list[str]()

    def is_here(asked: str) -> bool:
        looked.append(asked)
        return True

    assert missing_file_remedy(missing(path), is_here=is_here) == ""
    assert looked == []


def test_other_errors_and_files_that_are_nowhere_have_no_remedy() -> None:
    assert missing_file_remedy(missing("a.csv"), is_here=lambda _: False) == ""
    assert missing_file_remedy(missing("a.csv", "ValueError"), is_here=lambda _: True) == ""
    broken = Message(missing("a.csv").header, content=b"{")
    assert missing_file_remedy(broken, is_here=lambda _: True) == ""


@pytest.mark.parametrize(
    "code",
    [
        "%pip install polars",
        "!pip3 install -q polars",
        "%%shell\npip install polars",
        "!python -m pip install polars",
    ],
)
def test_an_installation_without_a_network_names_the_other_way(code: str) -> None:
    assert network_remedy(code, has_network=False).endswith(
        "sandcell kernel install --name mine --package polars"
    )
    assert network_remedy(code, has_network=True) == ""


@pytest.mark.parametrize(
    "code",
    [
        "pip = 1",
        "install()",
        "!pip install --no-index x",
        "!pip install ./x",
        "!pip install x.whl",
        "# pipinstall",
    ],
)
def test_what_needs_no_network_is_left_alone(code: str) -> None:
    assert network_remedy(code, has_network=False) == ""


def failed(name: str, value: str) -> Message:
    return new_message("execute_reply", {"status": "error", "ename": name, "evalue": value}, session="s")


CELL, LINE = "Cell magic `{}` not found.", "Line magic function `{}` not found."


@pytest.mark.parametrize(
    ("code", "reply", "told"),
    [
        (
            "a = 1\n%sandbox info",
            failed("UsageError", LINE.format("%sandbox")),
            "%sandbox needs a cell of its own",
        ),
        (
            "x = %sandbox info",
            failed("UsageError", LINE.format("%sandbox")),
            "%sandbox needs a cell of its own",
        ),
        (
            "%%time\n%%shell\nls",
            failed("UsageError", CELL.format("%%shell")),
            "%%shell has to be the first line",
        ),
        (
            "# mine\n%%shell\nls -l",
            failed("SyntaxError", "invalid syntax"),
            "%%shell has to be the first line",
        ),
        ("%%sandbox info", failed("UsageError", CELL.format("%%sandbox")), "it is %sandbox"),
        ("%shell ls", failed("UsageError", LINE.format("%shell")), "it is %%shell"),
        ("%%other", failed("UsageError", CELL.format("%%other")), ""),
        ("1 +", failed("SyntaxError", "invalid syntax"), ""),
        ("%%shell\nls", failed("NameError", "name 'ls' is not defined"), ""),
        ("1", new_message("execute_reply", {"status": "ok"}, session="s"), ""),
    ],
)
def test_a_line_of_ours_that_stands_elsewhere_is_told_its_place(code: str, reply: Message, told: str) -> None:
    said = place_remedy(code, reply)
    assert said.startswith(told) if told else said == ""
