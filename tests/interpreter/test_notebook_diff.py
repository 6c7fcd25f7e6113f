"""What changed in the outputs of a notebook, and what is no change."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from sandcell.notebook_diff import Change, diff_notebooks

if TYPE_CHECKING:
    from sandcell.notebook import Notebook


def _text(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def _result(**data: Any) -> dict[str, Any]:
    named = {mime.replace("__", "/"): value for mime, value in data.items()}
    return {"output_type": "execute_result", "data": named, "metadata": {}, "execution_count": 1}


def _error(value: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": "ValueError", "evalue": value, "traceback": ["at 0x1"]}


def _notebook(*cells: tuple[str, list[dict[str, Any]]]) -> Notebook:
    return {
        "cells": [{"cell_type": "code", "source": source, "outputs": outputs} for source, outputs in cells]
    }


def _rows(before: Notebook, after: Notebook) -> list[tuple[Any, ...]]:
    changes = diff_notebooks(before, after)
    return [(c.before_cell, c.after_cell, c.what, c.before, c.after) for c in changes]


def test_what_runs_alike_has_not_changed() -> None:
    before = _notebook(("1", [_result(text__plain="1")]), ("2", [_text("a\n"), _error("no")]))
    after = copy.deepcopy(before)
    after["cells"][0]["execution_count"] = 9
    after["cells"][0]["outputs"][0]["execution_count"] = 9
    after["cells"][0]["metadata"] = {"execution": {"iopub.execute_input": "later"}}
    after["cells"][1]["outputs"][1]["traceback"] = ["at 0x2"]
    after["cells"][1]["source"] = ["2"]  # as files have it
    assert diff_notebooks(before, after) == []


def test_each_kind_of_output_is_compared() -> None:
    before = _notebook(
        ("1", [_text("a"), _text("w", "stderr")]),
        ("2", [_result(text__plain="1", image__png="AAAA")]),
        ("3", [_error("one")]),
    )
    after = _notebook(
        ("1", [_text("b"), _text("w", "stderr")]),
        ("2", [_result(text__plain="1", image__png="AAAB")]),
        ("3", [_error("two")]),
    )
    (image,) = (row for row in _rows(before, after) if row[2] == "result image/png")
    assert image[3].startswith("3 bytes, ")
    assert image[3] != image[4]
    assert [row for row in _rows(before, after) if row is not image and row[2] != "result image/png"] == [
        (1, 1, "stdout", "a", "b"),
        (3, 3, "error", "ValueError: one", "ValueError: two"),
    ]


def test_how_streams_were_mixed_is_no_change() -> None:
    before = _notebook(("1", [_text("a"), _text("x", "stderr"), _text("b")]))
    after = _notebook(("1", [_text("ab"), _text("x", "stderr")]))
    assert diff_notebooks(before, after) == []


def test_where_in_memory_something_lay_is_no_change() -> None:
    before, after = (
        _notebook(
            (
                "1",
                [
                    _text(f"<x at 0x{at}>"),
                    _result(text__plain=f"<function f at 0x{at}>"),
                    _error(f"at 0x{at}"),
                ],
            )
        )
        for at in ("7f0124b9a490", "55ff")
    )
    assert diff_notebooks(before, after) == []
    assert len(diff_notebooks(before, _notebook(("1", [_text("<y at 0x1>")])))) == 3


def test_cells_belong_together_by_their_code() -> None:
    before = _notebook(("1", []), ("2", [_text("two")]), ("3", []))
    after = _notebook(("0", []), ("1", []), ("2", [_text("2")]))
    assert _rows(before, after) == [
        (None, 1, "code", None, "0"),
        (2, 3, "stdout", "two", "2"),
        (3, None, "code", "3", None),
    ]


def test_changed_code_is_told_with_what_it_changes() -> None:
    before, after = _notebook(("n = 1", [_text("1")])), _notebook(("n = 2", [_text("2")]))
    assert _rows(before, after) == [(1, 1, "code", "n = 1", "n = 2"), (1, 1, "stdout", "1", "2")]


@pytest.mark.parametrize("data", [{"a": [1, 2]}, ["line\n", "line"], "text", 3])
def test_data_of_any_form_is_compared(data: Any) -> None:
    before = _notebook(("1", [_result(application__json=data)]))
    assert diff_notebooks(before, copy.deepcopy(before)) == []
    assert [row[2] for row in _rows(before, _notebook(("1", [])))] == ["result application/json"]
    assert diff_notebooks(_notebook(), _notebook()) == list[Change]()
