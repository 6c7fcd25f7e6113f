"""The kernel as notebooks use it: what a front end sees, from the first cell to the end of its sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from jupyter_client.connect import write_connection_file
from nbclient import NotebookClient
from tests.e2e.front_end import PATIENCE_S, Notebook, open_notebook

from sandcell import AsyncSandbox
from sandcell.client.host import the_host
from sandcell_container.os_process import end_processes
from sandcell_container.registry import Registry
from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("kernelspec")


@pytest.fixture
async def notebook() -> AsyncIterator[Notebook]:
    async with open_notebook() as made:
        yield made


@pytest.fixture
async def shared() -> AsyncIterator[AsyncSandbox]:
    """A sandbox that a program made."""
    async with await AsyncSandbox.create(engine="local") as made:
        yield made


# --- whole notebooks


CELLS = [
    "print('out'); import sys; print('err', file=sys.stderr); 6 * 7",
    "from IPython.display import HTML, display; display(HTML('<b>rich</b>'))",
    "handle = display('first', display_id=True); handle.update('second')",
    "1 / 0",
    '%%shell\ncd /tmp; x=1; echo "in $PWD"',
    '%%shell\necho "still $PWD $x" >&2; exit_code() { return 3; }; exit_code',
    "import os; os.path.isdir('/workspace')",
    """kernel = get_ipython().kernel  # and what nbclient would end over, with the rest of the notebook
for kind in ('error', 'stream', 'display_data', 'execute_result', 'clear_output', 'comm_open'):
    sent = kernel.session.send(kernel.iopub_socket, kind, {'wait': 1}, parent=kernel.get_parent('shell'))
'still here'""",
]


@pytest.mark.short
def test_a_notebook_runs_through_nbclient() -> None:
    made: Any = nbformat.v4  # nbformat has no types
    notebook = made.new_notebook(cells=[made.new_code_cell(code) for code in CELLS])
    NotebookClient(notebook, kernel_name=KERNEL_NAME, allow_errors=True, timeout=40).execute()
    first, rich, updated, failed, moved, status, last, forged = (cell.outputs for cell in notebook.cells)
    assert {output.get("name"): output.get("text") for output in first[:2]} == {
        "stdout": "out\n",
        "stderr": "err\n",
    }
    assert first[2].data["text/plain"] == "42"
    assert rich[0].data["text/html"] == "<b>rich</b>"
    assert [output.data["text/plain"] for output in updated] == ["'second'"]
    assert (failed[0].output_type, failed[0].ename) == ("error", "ZeroDivisionError")
    assert moved[0].text == "in /tmp\n"
    assert status[0].text == "still /tmp 1\n"
    assert (status[1].ename, status[1].evalue) == ("CommandFailed", "the command ended with exit status 3")
    assert last[0].data["text/plain"] == "True"
    assert [output.data["text/plain"] for output in forged] == ["'still here'"]
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert notebook.metadata["language_info"]["name"] == "python"


# --- single cells


async def test_a_cell_sees_its_sandbox_and_not_the_host(notebook: Notebook, tmp_path: Path) -> None:
    cell = await notebook.run(f"import os; print(os.getcwd(), os.path.exists({str(tmp_path)!r}))")
    assert cell.text() == "/workspace False\n"
    assert cell.states == ["busy", "idle"]


async def test_an_error_aborts_the_cells_that_were_sent_already(notebook: Notebook) -> None:
    failing, shell, python = (notebook.send(code) for code in ("1/0", "%%shell\nls", "print('no')"))
    assert (await notebook.finish(failing)).reply["status"] == "error"
    for msg_id in (shell, python):
        cell = await notebook.finish(msg_id)
        assert (cell.reply["status"], cell.outputs, cell.states) == ("aborted", [], ["busy", "idle"])
    assert (await notebook.run("print('yes')")).text() == "yes\n"


async def test_input_is_asked_for_and_answered(notebook: Notebook) -> None:
    msg_id = notebook.send("print('hello', input('name? '))", allow_stdin=True)
    async with asyncio.timeout(PATIENCE_S):
        asked: dict[str, Any] = await notebook.client.get_stdin_msg()
    assert (asked["content"]["prompt"], asked["parent_header"]["msg_id"]) == ("name? ", msg_id)
    notebook.client.input("you")
    assert (await notebook.finish(msg_id)).text() == "hello you\n"


async def test_silent_cells_and_expressions(notebook: Notebook) -> None:
    await notebook.run("x = 20")
    cell = await notebook.run("y = x + 1", silent=True, user_expressions={"sum": "x + y", "bad": "nope"})
    assert cell.reply["user_expressions"]["sum"]["data"]["text/plain"] == "41"
    assert cell.reply["user_expressions"]["bad"]["status"] == "error"
    assert (await notebook.run("y")).reply["execution_count"] == 2


async def test_completion_inspection_and_history(notebook: Notebook) -> None:
    await notebook.run("wonderful = 1")
    completed = await notebook.ask("shell", notebook.client.complete("wonder"))
    assert "wonderful" in completed["matches"]
    assert (await notebook.ask("shell", notebook.client.inspect("print")))["found"]
    history = await notebook.ask("shell", notebook.client.history(hist_access_type="tail", n=1))
    assert history["history"][0][2] == "wonderful = 1"


@pytest.mark.parametrize("code", ["import time\nprint('go')\ntime.sleep(60)", "%%shell\necho go; sleep 60"])
async def test_interrupt_ends_what_runs_and_nothing_else(notebook: Notebook, code: str) -> None:
    await notebook.run("x = 5")
    running, waiting = notebook.send(code), notebook.send("print('no')")
    await notebook.until_printed(running, "go\n")
    await notebook.manager.interrupt_kernel()
    cell = await notebook.finish(running)
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "KeyboardInterrupt")
    assert (await notebook.finish(waiting)).reply["status"] == "aborted"
    assert (await notebook.run("print(x)")).text() == "5\n"


async def test_a_signal_interrupts_too(notebook: Notebook) -> None:
    running = notebook.send("import time\nprint('go')\ntime.sleep(60)")
    await notebook.until_printed(running, "go\n")
    os.kill(notebook.manager.provisioner.pid, signal.SIGINT)  # type: ignore[union-attr]
    assert (await notebook.finish(running)).reply["ename"] == "KeyboardInterrupt"


async def test_an_interpreter_that_dies_is_told_and_the_next_cell_runs(notebook: Notebook) -> None:
    await notebook.run("x = 1")
    cell = await notebook.run("import os; os._exit(7)")
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "ContextDied")
    assert cell.text("stderr").startswith("[sandcell] ")
    assert cell.kinds()[-1] == "error"
    assert cell.states[-1] == "idle"
    later = await notebook.run("print('x' in globals())")
    assert later.text() == "False\n"
    assert "started anew" in later.text("stderr")


async def test_comms_travel_untouched(notebook: Notebook) -> None:
    await notebook.run(
        "def take(comm, message):\n"
        "    back = {'back': message['content']['data'], 'version': message['metadata']['version']}\n"
        "    comm.send(back, {'own': 'metadata'}, buffers=[bytes(message['buffers'][0])[::-1]])\n"
        "def meet(comm, message): comm.on_msg(lambda got: take(comm, got))\n"
        "get_ipython().kernel.comm_manager.register_target('test', meet)"
    )
    session, channel = notebook.client.session, notebook.client.shell_channel
    opened = session.msg("comm_open", {"comm_id": "c", "target_name": "test", "data": {}})
    channel.send(opened)
    session.send(
        channel.socket,
        "comm_msg",
        {"comm_id": "c", "data": 1},
        buffers=[b"\xff\x00\x01"],
        metadata={"version": "2"},
    )
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message: dict[str, Any] = await notebook.client.get_iopub_msg()
            if message["msg_type"] == "comm_msg":
                break
    assert message["content"]["data"] == {"back": 1, "version": "2"}
    assert message["metadata"]["own"] == "metadata"
    assert [bytes(buffer) for buffer in message["buffers"]] == [b"\x01\x00\xff"]


async def test_restart_begins_anew_but_for_the_files(notebook: Notebook) -> None:
    await notebook.run("x = 1; open('kept', 'w').write('kept')")
    await notebook.run("%%shell\ny=1")
    await notebook.run("%%process --detach\nsleep 1000")
    await notebook.manager.restart_kernel(now=False)
    await notebook.client.wait_for_ready(timeout=PATIENCE_S)
    cell = await notebook.run("print('x' in globals())")
    assert (cell.text(), cell.reply["execution_count"]) == ("False\n", 1)
    assert (await notebook.run("open('kept').read()")).outputs[0][1]["data"]["text/plain"] == "'kept'"
    assert (await notebook.run("%%shell\necho ${y-gone}")).text() == "gone\n"
    listed = (await notebook.run("%process list")).outputs[0][1]["data"]["text/plain"]
    assert listed == "Processes: none"


async def test_a_kernel_of_its_own_is_removed_with_its_sandbox() -> None:
    before = {each.id for each in await AsyncSandbox.list()}
    async with open_notebook() as notebook:
        await notebook.run("1")
        await notebook.manager.restart_kernel(now=False)
        await notebook.client.wait_for_ready(timeout=PATIENCE_S)
        await notebook.run("1")
    assert {each.id for each in await AsyncSandbox.list()} == before


# --- with a sandbox that somebody else made


async def test_lines_arrive_while_the_cell_runs(shared: AsyncSandbox) -> None:
    steps = (
        "import os, time\n"
        "print('first')\n"
        "while not os.path.exists('/workspace/seen'): time.sleep(0.01)\n"
        "print('second')"
    )
    shell = "%%shell\necho first\nuntil [ -e /workspace/seen ]; do sleep 0.01; done\necho second"
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        for code in (steps, shell):
            msg_id = notebook.send(code)
            await notebook.until_printed(msg_id, "first\n")
            await shared.files.write("/workspace/seen", "yes")
            assert (await notebook.finish(msg_id)).text() == "first\nsecond\n"
            await shared.exec("rm /workspace/seen", check=True)


async def test_a_notebook_and_a_program_share_variables(shared: AsyncSandbox) -> None:
    await shared.run_code("number = 41")
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        assert (await notebook.run("number += 1; print(number)")).text() == "42\n"
        runs = [await run.refresh() for run in await shared.executions()]
        origins = {run.origin.partition(":")[0] for run in runs}
        assert origins == {"sdk", "notebook"}
    assert (await shared.run_code("number")).value == 42


async def test_what_a_job_of_a_shell_cell_says_later_is_shown_in_that_cell(notebook: Notebook) -> None:
    job = notebook.send("%%shell\n{ until [ -e /workspace/go ]; do sleep 0.01; done; echo late; } &")
    assert (await notebook.finish(job)).text() == ""
    await notebook.run("open('/workspace/go', 'w').close()")
    await notebook.until_printed(job, "late")


async def test_a_notebook_and_a_program_share_shells(shared: AsyncSandbox) -> None:
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        await notebook.run("%%shell build\ncd /tmp; number=41")
        session = await shared.session("build")
        assert (await session.exec("echo $number $PWD; number=42")).stdout == "41 /tmp\n"
        assert (await notebook.run("%%shell build\necho $number")).text() == "42\n"
        await session.exec("exit 3")
        assert (await notebook.run("%%shell build\necho ${number-none}")).text() == "none\n"
        assert [each.id for each in await shared.sessions() if each.id == "build"] == ["build"]
    assert (await session.refresh()).starts == 2


async def test_a_kernel_that_ends_leaves_what_it_did_not_make(shared: AsyncSandbox) -> None:
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        await notebook.run("left = 1")
        await notebook.manager.restart_kernel(now=False)
        await notebook.client.wait_for_ready(timeout=PATIENCE_S)
        assert (await notebook.run("print(left)")).text() == "1\n"
    assert (await shared.run_code("left")).value == 1


async def test_a_cell_goes_on_when_its_kernel_process_is_killed(shared: AsyncSandbox) -> None:
    code = "import os, time\nprint('go')\nwhile not os.path.exists('go'): time.sleep(0.01)\nleft = 'done'"
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        await notebook.until_printed(notebook.send(code), "go\n")
        await notebook.manager.signal_kernel(signal.SIGKILL)
        await shared.files.write("/workspace/go", "")
        (run,) = await shared.executions()
        assert (await run.wait(timeout=PATIENCE_S)).ok
        await notebook.manager.restart_kernel(now=True)
        await notebook.client.wait_for_ready(timeout=PATIENCE_S)
        assert (await notebook.run("print(left)")).text() == "done\n"


@pytest.mark.parametrize("how", ["removed", "killed"])
async def test_a_sandbox_that_goes_away_ends_its_cell_with_the_reason(shared: AsyncSandbox, how: str) -> None:
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        running = notebook.send("import time\nprint('go')\ntime.sleep(60)")
        await notebook.until_printed(running, "go\n")
        if how == "removed":
            await shared.remove()
        else:
            registry = Registry(the_host().config.state_path / "sandboxes")
            found = next(each for each in registry.entries() if each.record.id == shared.id)
            assert end_processes(found.processes[1:2], timeout=PATIENCE_S) == []  # the guest
        cell = await notebook.finish(running)
        assert (cell.reply["ename"], cell.states) == ("SANDBOX_GONE", ["busy", "idle"])
        later = await notebook.run("1")
        assert later.reply["ename"] == "SANDBOX_GONE"
        assert "restart the kernel" in later.reply["traceback"][-1]
        info = await notebook.ask("shell", notebook.client.kernel_info())
        assert info["language_info"]["name"] == "python"


async def test_a_cell_starts_a_sandbox_that_was_stopped(shared: AsyncSandbox) -> None:
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        running = notebook.send("open('kept', 'w').write('file')\nprint('go')\nimport time\ntime.sleep(60)")
        await notebook.until_printed(running, "go\n")
        for _ in range(2):
            await shared.stop()
            if running:
                cell = await notebook.finish(running)
                assert (cell.reply["ename"], cell.states) == ("SANDBOX_GONE", ["busy", "idle"])
                assert "run a cell" in cell.reply["traceback"][-1]
            info = await notebook.ask("shell", notebook.client.kernel_info())  # this starts nothing
            assert info["language_info"]["name"] == "python"
            record = await asyncio.to_thread(the_host().find, shared.id)
            assert record.record.status == "stopped"
            again = await notebook.run("print(open('kept').read(), 'time' in globals())")
            assert again.text() == "file False\n"
            assert again.text("stderr").count("started again") == 1
            assert (await notebook.run("1")).text("stderr") == ""
            running = ""
        assert (await shared.exec("echo on")).stdout == "on\n"


async def test_a_restart_by_somebody_else_is_a_start_for_the_kernel(shared: AsyncSandbox) -> None:
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as notebook:
        await notebook.run("left = 1")
        await shared.restart()
        again = await notebook.run("print('left' in globals())")
        if again.reply["status"] == "error":  # it came before the end was noticed
            again = await notebook.run("print('left' in globals())")
        assert again.text() == "False\n"


async def test_restart_makes_another_sandbox_where_the_first_was_removed() -> None:
    before = {each.id for each in await AsyncSandbox.list()}
    async with open_notebook() as notebook:
        running = notebook.send("import time\nprint('go')\ntime.sleep(60)")
        await notebook.until_printed(running, "go\n")
        for found in await asyncio.to_thread(the_host().records):
            if found.record.id not in before:
                await asyncio.to_thread(found.engine.remove, found.record.id)
        assert (await notebook.finish(running)).reply["ename"] == "SANDBOX_GONE"
        await notebook.manager.restart_kernel(now=False)
        await notebook.client.wait_for_ready(timeout=PATIENCE_S)
        assert (await notebook.run("print('here')")).text() == "here\n"
    assert {each.id for each in await AsyncSandbox.list()} == before


# --- when there is none


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"SANDCELL_ENGINE": "nonsense"}, "INVALID_ARGUMENT"),
        ({"SANDCELL_SANDBOX": "no-such-sandbox"}, "NOT_FOUND"),
        ({"SANDCELL_START_TIMEOUT": "soon"}, "INVALID_ARGUMENT"),
    ],
)
async def test_a_sandbox_that_cannot_be_made_is_told_in_each_cell(env: dict[str, str], code: str) -> None:
    async with open_notebook(**env) as notebook:
        for _ in range(2):
            cell = await notebook.run("1")
            assert (cell.reply["ename"], cell.kinds()) == (code, ["error"])


@pytest.mark.parametrize("content", [None, "{}"])
def test_without_a_connection_file_the_kernel_says_so(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kernel.json"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "-m", "sandcell.launch_kernel", "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


def test_the_kernel_ends_with_its_parent(tmp_path: Path) -> None:
    connection_file, _ = write_connection_file(str(tmp_path / "kernel.json"), ip="127.0.0.1")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        kernel = subprocess.Popen(
            [sys.executable, "-m", "sandcell.launch_kernel", "-f", connection_file],
            env={**os.environ, "JPY_PARENT_PID": str(parent.pid), "SANDCELL_SANDBOX": "none"},
        )
        parent.communicate()
    assert kernel.wait(PATIENCE_S) == 0
