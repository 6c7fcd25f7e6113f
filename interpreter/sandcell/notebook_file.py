"""Notebooks in files of this machine: read in any version of the format, written whole or not at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import nbformat

from sandcell.client.local_file import Replacement
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell.notebook import Notebook

__all__ = ["NotebookFile", "check_target", "read_notebook", "write_notebook"]

_CURRENT = 4
_DEEPEST = 128  # levels of what a notebook holds: who reads and copies it recurses, some of them several times a level
_TOO_DEEP = f"it is nested more than {_DEEPEST} levels deep"
_NO_NOTEBOOK = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    nbformat.ValidationError,
)
_SPARE = 10  # how many times as long as the last writing took, before a half-done notebook is written again


def read_notebook(path: str | os.PathLike[str]) -> Notebook:
    """Return the notebook in a file, in version 4 of the format, each cell with an id where the version has them.

    Raises:
        NotFound (FILE_NOT_FOUND): there is no such file.
        InvalidRequest (INVALID_ARGUMENT): it cannot be read, or holds no notebook.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        return _parse(text)
    except FileNotFoundError:
        what = f"there is no notebook {os.fspath(path)}"
        raise error(ErrorCode.FILE_NOT_FOUND, what, hint="a path on this machine") from None
    except _NO_NOTEBOOK as problem:
        deep = isinstance(problem, RecursionError)
        first = _TOO_DEEP if deep else str(problem).partition("\n")[0]
        what = f"{os.fspath(path)} cannot be read as a notebook: {first}"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="a file that Jupyter wrote") from problem


def write_notebook(notebook: Notebook, path: str | os.PathLike[str]) -> None:
    """Write a notebook, in the place of what is there.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it cannot be written there.
    """
    try:
        data = _encode(notebook)
    except RecursionError as problem:
        raise _unwritable(path, _TOO_DEEP) from problem
    try:
        replacement = Replacement(os.fspath(path))
        try:
            replacement.write(data)
            replacement.keep()
        finally:
            replacement.drop()
    except OSError as problem:
        raise _unwritable(path, problem.strerror or "no reason given") from problem


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse before the cells have run what could not be written after them. Raises as `write_notebook`."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise _unwritable(path, "it is a folder, or its folder is not there")
    if target.exists() and not target.is_file():
        raise _unwritable(path, "what is there is no regular file")


class NotebookFile:
    """Where a notebook goes that is still being run: `save` writes it, `save_soon` only where that is cheap.

    With no `path` it goes nowhere. `save_cost` is how many seconds the last writing took.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = path
        self.save_cost = 0.0
        self._saved_at = float("-inf")

    def save_soon(self, notebook: Notebook) -> None:
        """Write it, unless that would take more than a tenth of the time: what is lost to a crash is little then."""
        if time.monotonic() - self._saved_at >= _SPARE * self.save_cost:
            self.save(notebook)

    def save(self, notebook: Notebook) -> None:
        if self._path is None:
            return
        began = time.monotonic()
        write_notebook(notebook, self._path)
        self._saved_at = time.monotonic()
        self.save_cost = self._saved_at - began


def _parse(text: str) -> Notebook:
    raw: Any = json.loads(text)
    if not isinstance(raw, dict):
        raise TypeError("it is no JSON object")
    held = cast("dict[str, Any]", raw)
    _check_depth(held)
    formats: Any = nbformat  # it has no annotations
    if held.get("nbformat") != _CURRENT:
        return cast("Notebook", formats.reads(text, as_version=_CURRENT))
    # Not validated, as Jupyter opens what is nearly a notebook, too.
    _check(held)
    _fill_in(held)
    return cast("Notebook", formats.v4.reads(json.dumps(held)))


def _check(notebook: dict[str, Any]) -> None:
    """Raise TypeError where it has not the parts that a notebook has, and make those that may be missing."""
    for part in (notebook, *notebook["cells"]):
        if not isinstance(part.setdefault("metadata", {}), dict):
            raise TypeError("its metadata are no object")
    for number, cell in enumerate(notebook["cells"], 1):
        if not _is_text(cell.setdefault("source", "")):
            raise TypeError(f"the source of cell {number} is no text")
        if not _is_list_of_objects(cell.get("outputs", [])):
            raise TypeError(f"the outputs of cell {number} are no list of objects")


def _is_text(source: Any) -> bool:
    lines = cast("list[object]", source) if isinstance(source, list) else [source]
    return all(isinstance(line, str) for line in lines)


def _is_list_of_objects(outputs: Any) -> bool:
    return isinstance(outputs, list) and all(isinstance(each, dict) for each in cast("list[object]", outputs))


def _check_depth(notebook: dict[str, Any]) -> None:
    """Raise ValueError where it is nested too deep for those who get it, so that none of them fails half way."""
    level: list[Any] = [notebook]
    for _ in range(_DEEPEST):
        level = [inner for each in level for inner in _parts_of(each) if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value)


def _fill_in(notebook: dict[str, Any]) -> None:
    """Give cells the ids that version 4.5 wants of them: many tools leave them out, and nbformat warns of each."""
    if notebook.get("nbformat_minor", 0) < 5:
        return
    taken = {cell.get("id") for cell in notebook["cells"]}
    free = (f"cell-{number}" for number in range(2 * len(notebook["cells"]) + 1))
    for cell in notebook["cells"]:
        if "id" not in cell:
            cell["id"] = next(each for each in free if each not in taken)


def _encode(notebook: Notebook) -> bytes:
    formats: Any = nbformat  # it has no annotations
    text: str = formats.v4.writes(formats.from_dict(notebook))
    whole = text if text.endswith("\n") else f"{text}\n"
    return whole.encode(errors="backslashreplace")  # half a character becomes its escape, as it was in JSON


def _unwritable(path: str | os.PathLike[str], why: str) -> Exception:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"cannot write {os.fspath(path)}: {why}",
        hint="a file that may be written, in a folder that exists",
    )
