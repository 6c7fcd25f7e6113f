"""The promises about the Jupyter kernel: a whole notebook, and the time until the first result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import nbformat
from bench.contexts import PlainKernel
from bench.harness import Row

from sandcell_kernel.install import KERNEL_NAME, KernelPlan, install_kernelspec

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_notebook_rows"]

_CELLS = 200
_formats: Any = nbformat  # it has no types


@contextmanager
def open_notebook_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows, with a kernelspec that nobody else sees. Each kernel has a new sandbox of `engine`."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        install_kernelspec(KernelPlan(), prefix=str(folder))
        found = {"JUPYTER_PATH": str(folder / "share" / "jupyter"), "SANDCELL_ENGINE": engine}
        held.enter_context(patch.dict(os.environ, found))
        yield [_first_result_row(), _nbconvert_row(folder)]


def _first_result_row() -> Row:
    return Row(
        name="kernel start to first result / a plain kernel",
        ours=lambda: _first_result(KERNEL_NAME),
        theirs=lambda: _first_result("python3"),
        bound=1.5,
        rounds=12,
        warm_up=1,
    )


def _first_result(kernel_name: str) -> float:
    begin = time.perf_counter()
    with PlainKernel(kernel_name) as kernel:
        kernel.run("1+1")
        return time.perf_counter() - begin


def _nbconvert_row(folder: Path) -> Row:
    """The whole command, as people run it: its own start, the kernel's, the cells, the file, the end of the kernel."""
    source = folder / "cells.ipynb"
    cells = [_formats.v4.new_code_cell(f"x = {number}\nprint(x)\nx + 1") for number in range(_CELLS)]
    _formats.write(_formats.v4.new_notebook(cells=cells), source)
    return Row(
        name=f"{_CELLS} small cells through nbconvert / a plain kernel",
        ours=lambda: _convert(source, KERNEL_NAME),
        theirs=lambda: _convert(source, "python3"),
        bound=1.15,
        rounds=8,
        warm_up=1,
    )


def _convert(source: Path, kernel_name: str) -> float:
    line = [sys.executable, "-m", "nbconvert", "--log-level=ERROR", "--to=notebook", "--execute"]
    line += [f"--ExecutePreprocessor.kernel_name={kernel_name}", "--output=done", str(source)]
    begin = time.perf_counter()
    subprocess.run(line, check=True)
    return time.perf_counter() - begin
