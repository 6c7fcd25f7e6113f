"""`sandcell run NOTEBOOK.ipynb`: its cells in a sandbox, as `Sandbox.run_notebook` runs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sandcell.cli.output import write_stderr, write_stdout, write_traceback
from sandcell.cli.place import open_place
from sandcell.cli.variables import timeout_of
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    import argparse

    from sandcell.cli.place import Place
    from sandcell.config import Config
    from sandcell.notebook import CellResult, NotebookProgress, NotebookResult

__all__ = ["run_notebook"]

_EXIT_CODES = {"timeout": 124, "interrupted": 130}  # the former as timeout(1) has it


def run_notebook(options: argparse.Namespace, config: Config) -> int:
    """Run the cells in order, write or print what came out, and return the exit code."""
    if options.env:
        hint = "its kernel has the sandbox's: use --param, or set it in a cell"
        raise error(ErrorCode.INVALID_ARGUMENT, "--env goes with code only", hint=hint)
    if options.args:
        hint = "--param NAME=VALUE is a variable of the notebook"
        raise error(ErrorCode.INVALID_ARGUMENT, "arguments go with Python code only", hint=hint)
    more: dict[str, Any] = timeout_of(options) | {"cwd": options.cwd}
    parameters = dict(map(_parameter, options.param))
    with open_place(options, config, label="running") as place:
        shown = _Shown(place, prints=options.out is None and not options.json)
        result = place.sandbox.run_notebook(
            options.file,
            options.out,
            on_error=options.on_error,
            parameters=parameters,
            on_progress=shown.tell,
            **more,
        )
    if options.json:
        write_stdout(json.dumps(result.to_dict()) + "\n")
    return _exit_code_of(result)


class _Shown:
    """What the person at the terminal sees meanwhile: which cell runs, and what failed or, with `prints`, came out."""

    def __init__(self, place: Place, *, prints: bool) -> None:
        self._progress = place.progress
        self._prints = prints

    def tell(self, progress: NotebookProgress) -> None:
        if progress.result is None:
            self._progress.label(f"cell {progress.number} of {progress.total}")
            return
        if self._prints:
            self._progress.hush()
            _print_outputs(progress.result)
        if progress.result.failed:
            self._progress.hush()
            _print_failure(progress.result)


def _parameter(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE: the value as JSON, or as text where it is none."""
    name, equals, value = text.partition("=")
    if not equals:
        what = f"--param {text!r} has no value"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="NAME=VALUE, the value as JSON or as text")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _print_outputs(cell: CellResult) -> None:
    for output in cell.outputs:
        match output["output_type"]:
            case "stream":
                (write_stdout if output["name"] == "stdout" else write_stderr)(output["text"])
            case "display_data" | "execute_result" if "text/plain" in output["data"]:
                write_stdout(f"{output['data']['text/plain']}\n")
            case _:
                pass  # an error is told below, once; what has no text cannot be shown here


def _print_failure(cell: CellResult) -> None:
    if cell.error is not None:
        write_traceback(cell.error.traceback or [str(cell.error)])
    how = {"timeout": "ran out of time", "interrupted": "was interrupted"}.get(cell.status, "failed")
    write_stderr(f"sandcell: cell {cell.index + 1} {how}\n")


def _exit_code_of(result: NotebookResult) -> int:
    return 0 if result.failure is None else _EXIT_CODES.get(result.failure.status, 1)
