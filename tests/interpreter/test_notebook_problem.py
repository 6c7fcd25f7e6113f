from __future__ import annotations

import errno
from pathlib import Path

import pytest

import sandcell.failure
import sandcell_container.errors
from sandcell.notebook_problem import REWORDED, problem_of
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.file_errors import error_of_errno


@pytest.mark.parametrize(
    ("caught", "lines"),
    [
        (error(ErrorCode.INVALID_ARGUMENT, "no"), ()),  # a program is sent to the OpenAPI document
        (error(ErrorCode.NOT_FOUND, "no", hint="DELETE /v1/things/{id} frees one"), ()),
        (error(ErrorCode.UNKNOWN_LANGUAGE, "no", hint="one of: python, r"), ("one of: python, r",)),
        (error_of_errno(errno.EEXIST, "a"), ("copy and rename take its place with --overwrite",)),
    ],
)
def test_a_hint_speaks_of_lines_of_a_notebook(caught: Exception, lines: tuple[str, ...]) -> None:
    assert problem_of(caught).lines == lines


def test_a_folder_where_a_file_is_wanted_names_the_line_for_folders() -> None:
    (line,) = problem_of(error_of_errno(errno.EISDIR, "/workspace")).lines
    assert "%sandbox download PATH LOCAL" in line


def test_each_hint_that_is_reworded_is_given_somewhere() -> None:
    roots = [Path(sandcell.failure.__file__).parent, Path(sandcell_container.errors.__file__).parent]
    sources = [path for root in roots for path in root.rglob("*.py") if path.stem != "notebook_problem"]
    said = "".join(path.read_text() for path in sources)
    assert [hint for hint in REWORDED if hint not in said] == []
