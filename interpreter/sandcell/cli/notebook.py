"""`sandcell run NOTEBOOK.ipynb`: every cell by the kernel that Jupyter would start, without Jupyter knowing of it."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from sandcell.cli.output import write_stderr, write_stdout, write_traceback
from sandcell.cli.progress import Progress
from sandcell.cli.signals import Ending
from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.install import KERNEL_NAME, kernelspec

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from sandcell.config import Config

__all__ = ["run_notebook"]

_TIMED_OUT = 124  # as timeout(1) has it


class OneKernel(KernelSpecManager):
    """Knows our kernel alone, installed or not."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(**kernelspec(sys.executable))


def run_notebook(options: argparse.Namespace, config: Config) -> int:
    """Run the cells in order, write what came out, and return the exit code."""
    notebook = _read(options.file)
    if options.out is not None:
        _check_out(options.out)
    client = _client(notebook, options, config)
    ending = Ending()
    # By then nbclient has put handlers of its own there, which end the kernel under the cell that runs.
    client.on_notebook_start = partial(_listen, ending)
    code = 0
    with Progress("starting a sandbox", sys.stderr) as progress:
        _report(client, notebook, progress, to_stdout=options.out is None)
        try:
            client.execute(env=_environment(options, config), cleanup_kc=True)
        except CellExecutionError as failed:
            progress.hush()
            write_traceback([failed.traceback])
            code = 1
        except CellTimeoutError as late:
            progress.hush()
            write_stderr(f"{late}\n")
            code = _TIMED_OUT
        except (DeadKernelError, asyncio.CancelledError) as problem:
            ending.check()
            raise error(ErrorCode.CONTEXT_DIED, f"the kernel of {options.file} died: {problem}") from problem
    if options.out is not None:
        _write(notebook, options.out)
    return code


def _listen(ending: Ending, notebook: Any) -> None:
    ending.listen()


def _check_out(path: Path) -> None:
    """Refuse before the cells have run what could not be written after them."""
    if path.is_dir() or not path.parent.is_dir():
        what = f"cannot write {path}: it is a folder, or its folder is not there"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="--out takes a file in a folder that exists")


def _write(notebook: nbformat.NotebookNode, path: Path) -> None:
    try:
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]  # it has no annotations
    except OSError as problem:
        what = f"cannot write {path}: {problem.strerror}"
        raise error(
            ErrorCode.INVALID_ARGUMENT, what, hint="--out takes a file that may be written"
        ) from problem


def _read(path: Path) -> nbformat.NotebookNode:
    try:
        found: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # it has no annotations
        return cast("nbformat.NotebookNode", found)
    except FileNotFoundError:
        raise error(
            ErrorCode.FILE_NOT_FOUND, f"there is no notebook {path}", hint="a path on this machine"
        ) from None
    except (
        OSError,
        ValueError,
        AttributeError,
        nbformat.ValidationError,
    ) as problem:  # what no notebook gives
        first = str(problem).partition("\n")[0]
        what = f"{path} cannot be read as a notebook: {first}"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="a file that Jupyter wrote") from problem


def _client(notebook: nbformat.NotebookNode, options: argparse.Namespace, config: Config) -> NotebookClient:
    timeout = config.default_timeout if options.timeout is None else options.timeout
    manager = AsyncKernelManager(kernel_name=KERNEL_NAME, kernel_spec_manager=OneKernel())
    return NotebookClient(
        notebook, km=manager, timeout=round(timeout), resources={"metadata": {"path": os.getcwd()}}
    )


def _environment(options: argparse.Namespace, config: Config) -> dict[str, str]:
    """Return the environment of the kernel's process: it reads from there where it shall run."""
    wanted = {
        "SANDCELL_ENGINE": options.engine or config.engine,
        "SANDCELL_SANDBOX": options.sandbox or config.sandbox,
    }
    return {**os.environ, **{name: value for name, value in wanted.items() if value}}


def _report(
    client: NotebookClient, notebook: nbformat.NotebookNode, progress: Progress, *, to_stdout: bool
) -> None:
    def started(cell: Any, cell_index: int) -> None:
        progress.label(f"cell {cell_index + 1} of {len(notebook.cells)}")

    def finished(cell: Any, cell_index: int, execute_reply: Any) -> None:
        if to_stdout:
            progress.hush()
            _print_outputs(cell)

    client.on_cell_start = started
    client.on_cell_executed = finished


def _print_outputs(cell: Any) -> None:
    for output in cell.outputs:
        match output.output_type:
            case "stream":
                (write_stdout if output.name == "stdout" else write_stderr)(output.text)
            case "display_data" | "execute_result" if "text/plain" in output.data:
                write_stdout(output.data["text/plain"] + "\n")
            case _:
                pass  # an error is told once, at the end; what has no text cannot be shown here
