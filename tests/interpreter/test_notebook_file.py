"""Notebooks in files: any version in, a valid one out, whole or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from sandcell.notebook_file import NotebookFile, check_target, read_notebook, write_notebook
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path


def _code(source: str, **more: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source,
        **more,
    }


def _write(path: Path, *cells: dict[str, Any], **more: Any) -> Path:
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}))
    return path


def test_cells_without_ids_get_them_and_nobody_warns(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.ipynb", _code("1"), _code("2", id="cell-1"), _code("3"))
    assert [cell["id"] for cell in read_notebook(path)["cells"]] == ["cell-0", "cell-1", "cell-2"]


def test_older_formats_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.ipynb"
    cell: dict[str, Any] = {
        "cell_type": "code",
        "input": ["1 + 1"],
        "language": "python",
        "outputs": [],
        "collapsed": False,
    }
    worksheets: list[Any] = [{"cells": [cell], "metadata": {}}]
    old: dict[str, Any] = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": worksheets,
    }
    path.write_text(json.dumps(old))
    assert read_notebook(path)["cells"][0]["source"] == "1 + 1"


def test_what_is_written_is_what_nbformat_writes(tmp_path: Path) -> None:
    notebook = read_notebook(_write(tmp_path / "a.ipynb", _code("print('ü')\n1", id="c")))
    write_notebook(notebook, tmp_path / "b.ipynb")
    formats: Any = nbformat  # it has no types
    formats.write(formats.from_dict(notebook), tmp_path / "c.ipynb")
    assert (tmp_path / "b.ipynb").read_bytes() == (tmp_path / "c.ipynb").read_bytes()


def test_half_a_character_stays_what_it_was(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.ipynb", _code("'\ud800'", id="c"))
    write_notebook(read_notebook(path), path)
    assert read_notebook(path)["cells"][0]["source"] == "'\ud800'"


def test_what_is_nearly_a_notebook_is_read_as_jupyter_reads_it(tmp_path: Path) -> None:
    odd = {
        "cell_type": "code",
        "outputs": [{"output_type": "stream", "text": 7}],
        "source": ["1\n", "2"],
        "extra": 1,
    }
    path = _write(tmp_path / "a.ipynb", odd, {"cell_type": "markdown", "source": "x"}, extra={"more": 1})
    first, second = read_notebook(path)["cells"]
    assert (first["source"], first["metadata"], second["id"]) == ("1\n2", {}, "cell-1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read as a notebook"),
        ("[]", "it is no JSON object"),
        ("{}", "cannot be read as a notebook"),
        (
            '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [7]}',
            "cannot be read as a notebook",
        ),
        ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": 7}', "cannot be read as a notebook"),
        ('{"nbformat": 4, "metadata": [], "cells": []}', "its metadata are no object"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": 7}]}', "cannot be read as a notebook"),
        ('{"nbformat": 99, "cells": []}', "cannot be read as a notebook"),
        (
            '{"nbformat": 4, "cells": [{"cell_type": "markdown"}, {"source": 7}]}',
            "cell 2 is no text",
        ),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": [7]}]}', "cell 1 is no text"),
        (
            '{"nbformat": 4, "cells": [{"cell_type": "code", "outputs": "x"}]}',
            "of cell 1 are no list of objects",
        ),
        (
            '{{"nbformat": 4, "cells": [], "metadata": {{"a": {}{}}}}}'.format("[" * 200, "]" * 200),
            "nested more than",
        ),
        ("[" * 100_000, "nested more than 128 levels"),
    ],
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.ipynb").write_text(text)
    with pytest.raises(SandcellError, match=words) as caught:
        read_notebook(tmp_path / "a.ipynb")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_what_is_nested_too_deep_to_be_written_is_refused(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(SandcellError, match="nested more than 128 levels") as caught:
        write_notebook({"cells": [], "metadata": {"a": deep}}, tmp_path / "a.ipynb")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SandcellError, match=r"there is no notebook .*none\.ipynb") as caught:
        read_notebook(tmp_path / "none.ipynb")
    assert caught.value.code is ErrorCode.FILE_NOT_FOUND


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "nowhere" / "a.ipynb"):
        with pytest.raises(SandcellError, match="it is a folder, or its folder is not there"):
            check_target(wrong)
    check_target(tmp_path / "new.ipynb")
    check_target("new.ipynb")


def test_a_notebook_under_way_is_written_at_once_and_then_only_where_it_is_cheap(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    notebook = read_notebook(_write(path, _code("1", id="c")))
    file = NotebookFile(path)
    notebook["cells"][0]["source"] = "2"
    file.save_soon(notebook)
    assert read_notebook(path)["cells"][0]["source"] == "2"
    file.save_cost = float("inf")
    notebook["cells"][0]["source"] = "3"
    file.save_soon(notebook)
    assert read_notebook(path)["cells"][0]["source"] == "2"
    file.save(notebook)
    assert read_notebook(path)["cells"][0]["source"] == "3"
    NotebookFile(None).save(notebook)
    assert [each.name for each in tmp_path.iterdir()] == ["a.ipynb"]
