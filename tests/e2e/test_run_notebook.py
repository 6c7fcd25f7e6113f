"""`run_notebook` and `to_notebook`: real notebooks, real cells, and what stands in the files afterwards."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

from sandcell import AsyncSandbox, Sandbox, SandcellError
from sandcell.notebook_diff import diff_notebooks
from sandcell_container.errors import ErrorCode
from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell.notebook import NotebookProgress

formats: Any = nbformat  # it has no types

SHOW = "from IPython.display import HTML, Image, clear_output, display; import sys"
CELLS = [
    SHOW,
    "print('a'); print('b'); print('err', file=sys.stderr); 6 * 7",
    "handle = display('first', display_id=True); display(HTML('<b>rich</b>'), metadata={'m': {'n': 1}})",
    "handle.update('second'); print('kept')",
    "print('gone'); clear_output(); display({'k': 1}); print('bar 1\\rbar 2')",
    "print('gone'); clear_output(wait=True); print('here')",
    "print('stays'); clear_output(wait=True)",
    '%%shell\ncd /tmp; x=1; echo "in $PWD"; echo two >&2',
    '%%shell\necho "still $PWD $x"; (exit 3)',
    "%matplotlib inline\nimport matplotlib.pyplot as plt; plt.plot([1, 2]); plt.title('two')",
    "_ = plt.figure(); plt.bar(['a'], [1]); 'last'",
    "%%context other\nimport sys; print('there', file=sys.stderr); 6 * 7",
    "%%exec\necho once; exit 4",
    "%%process\necho of a process",
    "1 / 0",
]


def _write(path: Path, *cells: str | tuple[str, list[str]]) -> Path:
    """Write a notebook of code cells: sources, or sources with their tags."""
    notebook = formats.v4.new_notebook()
    for cell in cells:
        source, metadata = (cell, {}) if isinstance(cell, str) else (cell[0], {"tags": cell[1]})
        notebook.cells.append(formats.v4.new_code_cell(source, metadata=metadata))
    formats.write(notebook, path)
    return path


def _read(path: Path) -> Any:
    """Read a notebook, which has to be a valid one."""
    notebook = formats.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def _text(cell: Any) -> str:
    return "".join(each["text"] for each in cell["outputs"] if each["output_type"] == "stream")


# --- outputs


@pytest.mark.usefixtures("kernelspec")
def test_the_outputs_are_those_of_the_kernel_in_jupyter(sandbox: Sandbox, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.ipynb", *CELLS)
    done = sandbox.run_notebook(source, tmp_path / "ours.ipynb", on_error="continue", fresh=True)
    theirs = _read(source)
    # Text in one output, as it stands in the end: as JupyterLab does, and nbclient only where it is asked.
    options: dict[str, Any] = {"allow_errors": True, "coalesce_streams": True, "timeout": 50}
    NotebookClient(theirs, kernel_name=KERNEL_NAME, **options).execute()
    ours = _read(tmp_path / "ours.ipynb")
    assert _text(ours.cells[4]) == "bar 2\n"
    assert diff_notebooks(theirs, ours) == []
    for their, our in zip(theirs.cells, ours.cells, strict=True):
        assert [_form(each) for each in our.outputs] == [_form(each) for each in their.outputs], our.source
        assert our.metadata.execution.keys() == their.metadata.execution.keys()
        assert our.execution_count == their.execution_count
    assert [cell.status for cell in done.cells] == ["ok"] * 8 + [
        "error",
        "ok",
        "ok",
        "ok",
        "error",
        "ok",
        "error",
    ]
    assert ours.metadata.language_info.name == "python"


def _form(output: Any) -> Any:
    """All of an output but what differs from run to run: where memory is, how a picture came out."""
    form = {
        name: output[name]
        for name in ("output_type", "name", "ename", "metadata", "execution_count")
        if name in output
    }
    return form | {"mimes": sorted(output.get("data", ())), "traceback": len(output.get("traceback", ()))}


def test_late_output_and_what_a_pager_would_show_are_the_cell_s(sandbox: Sandbox, tmp_path: Path) -> None:
    late = "import threading\ngo = threading.Event()\ndef say():\n    go.wait(); print('late')\nworker = threading.Thread(target=say); worker.start()"
    source = _write(tmp_path / "in.ipynb", late, "go.set(); worker.join()", "len?")
    sandbox.run_notebook(source, source, fresh=True, check=True)
    first, second, asked = _read(source).cells
    assert (_text(first), _text(second)) == ("late\n", "")
    assert "Return the number of items" in asked.outputs[0].data["text/plain"]


def test_what_is_too_large_for_a_result_is_whole_in_a_notebook(sandbox: Sandbox, tmp_path: Path) -> None:
    large = "from IPython.display import HTML; HTML(3_000_000 * 'x')"
    context = sandbox.create_context()
    source = _write(tmp_path / "in.ipynb", large)
    sandbox.run_notebook(source, tmp_path / "out.ipynb", context=context, check=True)
    assert len(_read(tmp_path / "out.ipynb").cells[0].outputs[0].data["text/html"]) == 3_000_000
    context.to_notebook(tmp_path / "history.ipynb")
    assert len(_read(tmp_path / "history.ipynb").cells[0].outputs[0].data["text/html"]) == 3_000_000


# --- how it ends


def test_a_failure_stops_the_notebook_and_the_file_holds_what_has_run(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    source = _write(
        tmp_path / "in.ipynb",
        "print('ran')",
        ("1 / 0", ["raises-exception"]),
        "open('none')",
        "print('never')",
    )
    done = sandbox.run_notebook(source, tmp_path / "out.ipynb")
    assert (done.ok, [cell.status for cell in done.cells]) == (False, ["ok", "error", "error", "waiting"])
    assert done.failure is not None
    assert (done.failure.index, done.failure.error.name if done.failure.error else "") == (
        2,
        "FileNotFoundError",
    )
    assert [len(cell.outputs) for cell in _read(tmp_path / "out.ipynb").cells] == [1, 1, 1, 0]
    with pytest.raises(SandcellError, match="cell 3 failed: FileNotFoundError"):
        sandbox.run_notebook(source, check=True)


def test_each_cell_has_its_time(sandbox: Sandbox, tmp_path: Path) -> None:
    cells = ("import time; time.sleep(60)", "%%shell\nsleep 60", "x = 1", "x")
    source = _write(tmp_path / "in.ipynb", *cells)
    done = sandbox.run_notebook(source, tmp_path / "out.ipynb", timeout=0.5, on_error="continue")
    assert [cell.status for cell in done.cells] == ["timeout", "timeout", "ok", "ok"]
    first, second, *_ = _read(tmp_path / "out.ipynb").cells
    assert "its time was over" in _text(first)
    assert second.outputs[0].ename == "CommandFailed"


def test_an_interpreter_that_dies_is_an_error_and_the_next_cell_is_told(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    source = _write(tmp_path / "in.ipynb", "print('last words', flush=True); import os; os._exit(3)", "1 + 1")
    sandbox.run_notebook(source, tmp_path / "out.ipynb", on_error="continue", fresh=True)
    died, after = _read(tmp_path / "out.ipynb").cells
    assert (_text(died), died.outputs[-1].ename) == ("last words\n", "ContextDied")
    assert "[sandcell]" in _text(after)
    assert after.outputs[-1].data["text/plain"] == "2"


class _GivenUp(BaseException):
    pass


def test_a_notebook_that_is_given_up_is_written_as_far_as_it_came(sandbox: Sandbox, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.ipynb", "print('ran')", "2", "3")

    def give_up(progress: NotebookProgress) -> None:
        if progress.number == 2:
            raise _GivenUp

    with pytest.raises(_GivenUp):
        sandbox.run_notebook(source, tmp_path / "out.ipynb", on_progress=give_up)
    assert [len(cell.outputs) for cell in _read(tmp_path / "out.ipynb").cells] == [1, 0, 0]


def test_a_sandbox_that_goes_away_leaves_what_has_run(tmp_path: Path) -> None:
    source = _write(
        tmp_path / "in.ipynb", "print('ran')", "import time; print('here', flush=True); time.sleep(60)"
    )
    with Sandbox.create(engine="local") as doomed:

        def end(progress: NotebookProgress) -> None:
            if progress.number == 2:
                threading.Thread(target=doomed.remove).start()

        with pytest.raises(SandcellError) as caught:
            doomed.run_notebook(source, tmp_path / "out.ipynb", on_progress=end)
    assert caught.value.code is ErrorCode.SANDBOX_GONE
    first, second = _read(tmp_path / "out.ipynb").cells
    assert _text(first) == "ran\n"
    assert second.outputs[-1].ename == "SANDBOX_GONE"


# --- where it runs


def test_the_state_is_the_sandbox_s_or_with_fresh_nobody_s(sandbox: Sandbox, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.ipynb", ("n = 1", ["parameters"]), "m = n + 1; print(m)")
    sandbox.run_notebook(source, tmp_path / "out.ipynb", parameters={"n": 41}, check=True)
    assert _text(_read(tmp_path / "out.ipynb").cells[2]) == "42\n"
    assert sandbox.run_code("m").value == 42
    before = len(sandbox.contexts())
    sandbox.run_notebook(source, tmp_path / "out.ipynb", fresh=True, check=True)
    assert sandbox.run_code("m").value == 42
    assert len(sandbox.contexts()) == before
    context = sandbox.create_context()
    sandbox.run_notebook(source, context=context, check=True)
    assert context.run_code("m").value == 2


def test_progress_is_told_before_and_after_each_cell(sandbox: Sandbox, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.ipynb", "1", ("2", ["skip-execution"]), " ", "%%shell build it\nls")
    told = list[Any]()
    sandbox.run_notebook(
        source,
        fresh=True,
        on_progress=lambda p: told.append((p.number, p.total, p.result and p.result.status)),
    )
    assert told == [(1, 2, None), (1, 2, "ok"), (2, 2, None), (2, 2, "error")]


async def test_the_asyncio_client_runs_notebooks(tmp_path: Path) -> None:
    source = _write(tmp_path / "in.ipynb", "print('async')")
    told = list[int]()

    async def tell(progress: NotebookProgress) -> None:
        told.append(progress.number)

    async with await AsyncSandbox.create(engine="local") as made:
        done = await made.run_notebook(source, tmp_path / "out.ipynb", on_progress=tell, check=True)
        assert await (await made.context("python")).to_notebook(tmp_path / "history.ipynb") == 1
    assert (done.ok, told) == (True, [1, 1])
    assert _text(_read(tmp_path / "history.ipynb").cells[0]) == "async\n"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"on_error": "go"}, ErrorCode.INVALID_ARGUMENT),
        ({"timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"out": 7}, ErrorCode.INVALID_ARGUMENT),
        ({"out": "nowhere/out.ipynb"}, ErrorCode.INVALID_ARGUMENT),
        ({"parameters": {"x": object()}}, ErrorCode.INVALID_ARGUMENT),
        ({"context": "none"}, ErrorCode.NOT_FOUND),
        ({"context": "python", "fresh": True}, ErrorCode.INVALID_ARGUMENT),
        ({"cwd": "/nowhere"}, ErrorCode.CWD_NOT_FOUND),
        ({"source": "none.ipynb"}, ErrorCode.FILE_NOT_FOUND),
    ],
)
def test_what_cannot_be_is_refused(
    sandbox: Sandbox, tmp_path: Path, options: dict[str, Any], code: ErrorCode
) -> None:
    source = _write(tmp_path / "in.ipynb", "1")
    with pytest.raises(SandcellError) as caught:
        sandbox.run_notebook(options.pop("source", source), **options)
    assert caught.value.code is code


# --- the history of a context


def _await_text(live: Any, text: str) -> None:
    """Return when a run has written `text`, in however many pieces."""
    so_far = ""
    for event in live.follow():
        so_far += event.to_dict().get("text", "")
        if text in so_far:
            return
    raise AssertionError(f"it ended with {so_far!r}")


def test_a_context_s_history_is_a_notebook_that_runs_again(sandbox: Sandbox, tmp_path: Path) -> None:
    context = sandbox.create_context()
    context.run_code("x = 20; print('made')")
    context.run_code("x + 1")
    sandbox.run_notebook(_write(tmp_path / "in.ipynb", "print('of a notebook')"), context=context)
    context.run_code("1 / 0")
    slow = context.start_code("import time; print('slow', flush=True); time.sleep(60)")
    waiting = context.start_code("print('never')")
    _await_text(slow, "slow\n")
    waiting.interrupt()
    slow.interrupt()
    slow.wait(timeout=20)
    assert context.to_notebook(tmp_path / "all.ipynb") == 6
    cells = _read(tmp_path / "all.ipynb").cells
    assert [cell.source.split(";")[0] for cell in cells] == [
        "x = 20",
        "x + 1",
        "print('of a notebook')",
        "1 / 0",
        "import time",
        "print('never')",
    ]
    assert [_text(cell) for cell in cells] == ["made\n", "", "of a notebook\n", "", "slow\n", ""]
    assert [each.ename for cell in cells[3:] for each in cell.outputs if each.output_type == "error"] == [
        "ZeroDivisionError",
        "KeyboardInterrupt",
        "KeyboardInterrupt",
    ]
    assert cells[1].outputs[0].execution_count == cells[1].execution_count == 2
    assert [cell.metadata.sandcell.origin for cell in cells].count("run_notebook") == 1
    assert context.to_notebook(tmp_path / "one.ipynb", origin="run_notebook") == 1

    again = sandbox.run_notebook(
        tmp_path / "all.ipynb", tmp_path / "again.ipynb", fresh=True, timeout=1, on_error="continue"
    )
    assert [cell.status for cell in again.cells] == ["ok", "ok", "ok", "error", "timeout", "ok"]
    changes = diff_notebooks(_read(tmp_path / "all.ipynb"), _read(tmp_path / "again.ipynb"))
    assert {(change.after_cell, change.what) for change in changes} == {
        (5, "stderr"),
        (6, "stdout"),
        (6, "error"),
    }
    assert json.loads((tmp_path / "all.ipynb").read_text())["metadata"]["kernelspec"]["name"] == KERNEL_NAME


def test_a_notebook_of_another_language_runs_and_comes_of_its_context(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    context = sandbox.create_context("typescript")
    context.run_code("const x: number = 20; console.log('made')")
    context.run_code("x + 1")
    assert context.to_notebook(tmp_path / "history.ipynb") == 2
    history = _read(tmp_path / "history.ipynb")
    assert history.metadata.language_info.file_extension == ".ts"
    history.cells.append(formats.v4.new_code_cell("%%shell\necho and bash"))
    formats.write(history, tmp_path / "in.ipynb")
    done = sandbox.run_notebook(tmp_path / "in.ipynb", tmp_path / "out.ipynb", fresh=True, check=True)
    made, value, shell = done.cells
    assert made.outputs[0]["text"] == "made\n"
    assert (value.execution_count, value.outputs[0]["data"]["text/plain"]) == (2, "21")
    assert (shell.execution_count, shell.outputs[0]["text"]) == (
        None,
        "and bash\n",
    )  # Deno counts its own alone


def test_a_run_that_goes_on_is_in_the_history_with_what_it_has_shown(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    context = sandbox.create_context()
    live = context.start_code("print('so far', flush=True); input()")
    _await_text(live, "so far\n")
    assert context.to_notebook(tmp_path / "now.ipynb") == 1
    (cell,) = _read(tmp_path / "now.ipynb").cells
    assert (_text(cell), cell.metadata.sandcell.status) == ("so far\n", "running")
    live.send_input("")
    assert live.wait(timeout=20).ok
    assert live.refresh().code == "print('so far', flush=True); input()"
