"""A notebook that is run, as plain data: which cells run and where, what becomes of each. No IO, no file, no sandbox.

`notebook` is the notebook format 4 as a dict, everywhere.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from sandcell.cell_outputs import CellOutputs, NotebookOutputs, Output, timing_of
from sandcell.plain_fields import fields_of
from sandcell.results import ExecutionError
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, error
from sandcell_container.errors import Failed as FailedError
from sandcell_kernel.cells import Cell, read_cell

__all__ = [
    "CellResult",
    "CellWork",
    "Notebook",
    "NotebookProgress",
    "NotebookResult",
    "NotebookRun",
    "OnError",
    "check_parameters",
    "inject_parameters",
    "language_info",
    "language_of",
]

Notebook = dict[str, Any]
OnError = Literal["stop", "continue"]

_PARAMETERS = "parameters"
_INJECTED = "injected-parameters"
_MAY_FAIL = "raises-exception"
_SKIPPED = "skip-execution"
_DEPTH = 20
_FORMS = {  # of files in a language: extension and MIME type
    "bash": (".sh", "text/x-sh"),
    "javascript": (".js", "text/javascript"),
    "python": (".py", "text/x-python"),
    "r": (".r", "text/x-r-source"),
    "typescript": (".ts", "text/x-typescript"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What became of one code cell. `index` is its place among all cells of the notebook that was written.

    `status`: "ok"; "error", `error` says which; "timeout"; "interrupted"; "skipped": its tag says so, or it is empty;
    "waiting": a cell before it failed. `allowed`: its tag says that it may fail. Times in seconds since the epoch (UTC),
    durations in seconds.
    """

    index: int
    source: str
    status: Literal["ok", "error", "timeout", "interrupted", "skipped", "waiting"]
    allowed: bool = False
    execution_count: int | None = None
    error: ExecutionError | None = None
    end: End | None = None
    outputs: list[Output] = field(default_factory=list[Output])
    started_at: float | None = None
    duration: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it ran, did not end well, and may not."""
        return self.status in {"error", "timeout", "interrupted"} and not self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookProgress:
    """A cell that begins (`result` is None) or has ended: the `number`-th of `total` that run, from 1."""

    number: int
    total: int
    index: int
    source: str
    result: CellResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NotebookResult:
    """What running a notebook gave: its code `cells`, and the executed `notebook` as it was written to `path`."""

    cells: list[CellResult]
    notebook: Notebook
    path: str | None = None
    duration: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every cell ended well, or may fail by its tag."""
        return self.failure is None

    @property
    def failure(self) -> CellResult | None:
        """The first cell that failed."""
        return next((cell for cell in self.cells if cell.failed), None)

    def raise_for_error(self) -> None:
        """Do nothing where it is ok.

        Raises:
            Failed (CODE_FAILED): a cell failed; `result` of the exception is this object.
        """
        failure = self.failure
        if failure is None:
            return
        said = str(failure.error) if failure.error else failure.status
        problem = FailedError(
            ErrorCode.CODE_FAILED,
            f"cell {failure.index + 1} failed: {said}",
            details={"cell": failure.index, "status": failure.status},
        )
        problem.result = self
        raise problem

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the notebook itself, JSON-safe."""
        cells = [{**fields_of(cell), "failed": cell.failed} for cell in self.cells]
        return {"ok": self.ok, "path": self.path, "duration": self.duration, "cells": cells}

    def __repr__(self) -> str:
        ran = sum(cell.status not in {"skipped", "waiting"} for cell in self.cells)
        return f"NotebookResult(ok={self.ok}, ran={ran} of {len(self.cells)} cells, path={self.path!r})"


@dataclass(slots=True, kw_only=True)
class CellWork:
    """One code cell that is to be run: `where` by its first line, what it shows in `outputs`."""

    number: int
    index: int
    source: str
    where: Cell
    allowed: bool
    outputs: CellOutputs


class NotebookRun:
    """The machine of one run through a notebook, which it changes: old outputs go at once, new ones come cell by cell.

    `todo` are the cells that are to run, in order. `finish` is told of each that has ended.
    """

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        notebook["metadata"].setdefault("language_info", language_info(language_of(notebook)))
        self._outputs = NotebookOutputs()
        self._results: dict[int, CellResult] = {}
        cells = [(index, cell) for index, cell in enumerate(notebook["cells"]) if _is_code(cell)]
        for index, cell in cells:
            _forget(cell)
            status: Literal["skipped", "waiting"] = "waiting" if _is_to_run(cell) else "skipped"
            self._results[index] = CellResult(index=index, source=_source_of(cell), status=status)
        to_run = [(index, cell) for index, cell in cells if _is_to_run(cell)]
        self.todo = [self._work(number, *each) for number, each in enumerate(to_run, 1)]

    def progress(self, work: CellWork) -> NotebookProgress:
        """Return the news of a cell that begins, or has ended."""
        result = self._results[work.index]
        return NotebookProgress(
            number=work.number,
            total=len(self.todo),
            index=work.index,
            source=work.source,
            result=None if result.status == "waiting" else result,
        )

    def finish(self, work: CellWork) -> CellResult:
        """Note how a cell ended, and put what it has shown by now into the notebook; once more where more has come."""
        result = self._results[work.index] = _result_of(work)
        cell = self.notebook["cells"][work.index]
        cell["outputs"], cell["execution_count"] = result.outputs, result.execution_count
        timing = timing_of(work.outputs)
        if timing:
            cell["metadata"]["execution"] = timing
        return result

    def results(self) -> list[CellResult]:
        """Return what became of each code cell."""
        return [self._results[index] for index in sorted(self._results)]

    def _work(self, number: int, index: int, cell: dict[str, Any]) -> CellWork:
        source = _source_of(cell)
        if not _is_sendable(source):
            what = f"the source of cell {index + 1} holds half a character"
            raise error(ErrorCode.INVALID_ARGUMENT, what, hint="a lone surrogate, which no program can hold")
        return CellWork(
            number=number,
            index=index,
            source=source,
            where=read_cell(source),
            allowed=_MAY_FAIL in _tags_of(cell),
            outputs=self._outputs.cell(),
        )


def _is_sendable(source: str) -> bool:
    try:
        source.encode()
    except UnicodeEncodeError:
        return False
    return True


def language_of(notebook: Notebook) -> str:
    """Return the language that a notebook says it is in, "python" where it says nothing."""
    metadata = notebook.get("metadata", {})
    told = ((metadata.get("kernelspec"), "language"), (metadata.get("language_info"), "name"))
    named = [cast("dict[str, Any]", part).get(name) for part, name in told if isinstance(part, dict)]
    return next((name for name in named if isinstance(name, str) and name), "python")


def language_info(language: str) -> dict[str, Any]:
    """Return what a notebook says of its language, for tools that have no kernel to ask."""
    extension, mime = _FORMS.get(language, ("", ""))
    return {"name": language} | ({"file_extension": extension, "mimetype": mime} if extension else {})


# --- parameters, as papermill has them


def check_parameters(given: object) -> dict[str, Any]:
    """Return parameters that a cell can be made of; nothing for None.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): a name is no name of a variable, or a value is not made of None, bool, int,
            float, str, list, tuple and dict.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _no_parameter("have to be a mapping from names to values")
    parameters = cast("Mapping[object, object]", given)
    for name, value in parameters.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise _no_parameter(f"name {name!r}, which is no name of a variable")
        _literal(value)
    return {str(name): value for name, value in parameters.items()}


def inject_parameters(notebook: Notebook, parameters: Mapping[str, Any]) -> None:
    """Put a cell that sets `parameters` behind the one tagged "parameters", or at the top where there is none.

    It is tagged "injected-parameters" and takes the place of one that an earlier run has put there. Nothing for no
    parameters. Source: papermill, parameterize.

    Raises:
        Unsupported (UNSUPPORTED): the notebook is in another language than Python.
    """
    if not parameters:
        return
    if language_of(notebook).lower() not in ("python", "python3"):
        raise error(
            ErrorCode.UNSUPPORTED,
            f"parameters for a notebook in {language_of(notebook)[:40]}",
            hint="they are for Python; code of any language can read variables of the environment: set_env()",
            details={"field": "parameters"},
        )
    lines = [f"{name} = {_literal(value)}" for name, value in parameters.items()]
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": [_INJECTED]},
        "outputs": [],
        "source": "\n".join(["# Parameters", *lines]),
    }
    cells: list[dict[str, Any]] = notebook["cells"]
    injected, declared = _first_tagged(cells, _INJECTED), _first_tagged(cells, _PARAMETERS)
    if notebook.get("nbformat_minor", 0) >= 5:
        cell["id"] = cells[injected]["id"] if injected is not None else _new_cell_id(cells)
    if injected is not None:
        cells[injected] = cell
    else:
        cells.insert(0 if declared is None else declared + 1, cell)


def _first_tagged(cells: Sequence[dict[str, Any]], tag: str) -> int | None:
    return next((index for index, cell in enumerate(cells) if tag in _tags_of(cell)), None)


def _new_cell_id(cells: Sequence[dict[str, Any]]) -> str:
    taken = {cell.get("id") for cell in cells}
    names = (_INJECTED, *(f"{_INJECTED}-{number}" for number in range(len(cells))))
    return next(name for name in names if name not in taken)


def _literal(value: object, depth: int = 0) -> str:
    """Return `value` as Python has it in a program."""
    if depth > _DEPTH:
        raise _no_parameter("are nested too deep")
    match value:
        case None | bool() | int() | str():
            return _plain(value)
        case float():
            text = float.__repr__(value)
            return text if value - value == 0 else f'float("{text}")'  # infinite, or no number
        case list():
            items = cast("list[object]", value)
            return f"[{', '.join(_literal(each, depth + 1) for each in items)}]"
        case tuple():
            items = list(cast("tuple[object, ...]", value))
            inside = ", ".join(_literal(each, depth + 1) for each in items)
            return f"({inside},)" if len(items) == 1 else f"({inside})"
        case dict():
            table = cast("dict[object, object]", value).items()
            return f"{{{', '.join(f'{_literal(k, depth + 1)}: {_literal(v, depth + 1)}' for k, v in table)}}}"
        case _:
            raise _no_parameter(f"hold a {type(value).__name__}, which no cell can be made of")


def _plain(value: object) -> str:
    # Of the plain type, whatever a subclass of it would say of itself.
    if value is None or isinstance(value, bool):
        return str(value)
    return int.__repr__(value) if isinstance(value, int) else str.__repr__(cast("str", value))


def _no_parameter(problem: str) -> Exception:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"parameters {problem}"[:200],
        hint="names of variables, with numbers, text, lists, dicts and None as values",
        details={"field": "parameters"},
    )


# --- cells


def _is_code(cell: Mapping[str, Any]) -> bool:
    return cell.get("cell_type") == "code"


def _is_to_run(cell: Mapping[str, Any]) -> bool:
    return bool(_source_of(cell).strip()) and _SKIPPED not in _tags_of(cell)


def _source_of(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _tags_of(cell: Mapping[str, Any]) -> Sequence[str]:
    tags = cell.get("metadata", {}).get("tags", ())
    return cast("Sequence[str]", tags) if isinstance(tags, list | tuple) else ()


def _forget(cell: dict[str, Any]) -> None:
    """Take away what an earlier run has left: of a cell that does not run this time it would be untrue."""
    cell["outputs"], cell["execution_count"] = [], None
    cell.get("metadata", {}).pop("execution", None)


def _result_of(work: CellWork) -> CellResult:
    outputs = work.outputs
    end = outputs.ended.end if outputs.ended is not None else None
    return CellResult(
        index=work.index,
        source=work.source,
        status=_status_of(outputs.error, end),
        allowed=work.allowed,
        execution_count=outputs.execution_count,
        error=outputs.error,
        end=end,
        outputs=outputs.outputs(),
        started_at=outputs.started.time if outputs.started is not None else None,
        duration=outputs.ended.duration if outputs.ended is not None else 0.0,
    )


def _status_of(
    problem: ExecutionError | None, end: End | None
) -> Literal["ok", "error", "timeout", "interrupted"]:
    if end is not None and (end.cause == "timeout" or end.cause == "interrupted"):
        return end.cause
    return "ok" if problem is None else "error"
