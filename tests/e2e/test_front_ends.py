"""The kernel under front ends that are programs of their own: papermill, and a console at a terminal."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from sandcell.client.host import the_host
from sandcell_container.registry import Registry
from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("kernelspec")

PATIENCE_S = 40.0
formats: Any = nbformat  # it has no types
spawn: Any = pexpect.spawn  # nor has it


def _living() -> set[str]:
    """The ids of the sandboxes that are there."""
    registry = Registry(the_host().config.state_path / "sandboxes")
    return {each.record.id for each in registry.entries()}


def test_papermill_fills_in_parameters_and_keeps_what_ran_before_an_error(tmp_path: Path) -> None:
    before = _living()
    cells = [
        formats.v4.new_code_cell("n = 1", metadata={"tags": ["parameters"]}),
        formats.v4.new_code_cell("%%shell\necho in a shell"),
        formats.v4.new_code_cell("print('x' * 10**7)"),
        formats.v4.new_code_cell("import os; n * 2, os.getcwd()"),
        formats.v4.new_code_cell("1 / 0"),
        formats.v4.new_code_cell("print('never')"),
    ]
    about = {"kernelspec": {"name": KERNEL_NAME, "display_name": "Python", "language": "python"}}
    formats.write(formats.v4.new_notebook(cells=cells, metadata=about), tmp_path / "in.ipynb")
    line = [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "-p", "n", "21"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    ran = formats.read(tmp_path / "out.ipynb", 4).cells
    outputs = [cell.outputs for cell in ran if cell.cell_type == "code"]
    _, injected, shell, flood, value, failed, never = outputs
    assert (injected, shell[0].text, never) == ([], "in a shell\n", [])
    assert 2**19 < sum(len(output.text) for output in flood if output.name == "stdout") <= 2**20
    assert "more of output are not shown" in flood[-1].text
    assert value[0].data["text/plain"] == "(42, '/workspace')"
    assert failed[0].ename == "ZeroDivisionError"
    assert _living() == before


def test_an_interpreter_that_dies_ends_a_batch_and_says_so() -> None:
    cells = [formats.v4.new_code_cell(code) for code in ("import os; os.kill(os.getpid(), 9)", "print(1)")]
    notebook = formats.v4.new_notebook(cells=cells)
    with pytest.raises(CellExecutionError, match="ContextDied"):
        NotebookClient(notebook, kernel_name=KERNEL_NAME, timeout=int(PATIENCE_S)).execute()
    assert notebook.cells[1].outputs == []


@contextmanager
def _console() -> Generator[Any]:
    """A console that waits for its first cell."""
    argv = ["-m", "jupyter_console", "--kernel", KERNEL_NAME, "--simple-prompt"]
    console = spawn(sys.executable, argv, timeout=PATIENCE_S, encoding="utf-8", dimensions=(50, 120))
    try:
        console.expect_exact("In [1]: ")
        yield console
    finally:
        console.close(force=True)


def test_a_console_runs_cells_asks_and_interrupts() -> None:
    before = _living()
    with _console() as console:
        console.sendline("x = 41; x + 1")
        console.expect_exact("Out[1]: 42")
        console.expect_exact("In [2]: ")
        console.sendline("print('hello', input('Who? ')[::-1])")
        console.expect_exact("Who? ")
        console.sendline("adA")
        console.expect_exact("hello Ada")
        console.expect_exact("In [3]: ")
        console.sendline("import time; print('rea' + 'dy', flush=True); time.sleep(600)")
        console.expect_exact("ready")
        console.sendintr()
        console.expect_exact("KeyboardInterrupt")
        console.expect_exact("In [4]: ")
        console.sendline("%sandbox info")
        console.expect("engine +local")
        console.expect_exact("In [5]: ")
        console.sendeof()
        console.expect_exact("Do you really want to exit")
        console.sendline("y")
        console.expect(pexpect.EOF)
    assert _living() == before
