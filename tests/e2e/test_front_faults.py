"""What others' kernels are blamed for, one test each. Source: the threads that docs/kernel.md's rules come from."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, cast

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.connect import write_connection_file
from jupyter_client.kernelspec import KernelSpecManager
from tests.e2e.front_end import PATIENCE_S, Notebook, open_notebook

from sandcell import AsyncSandbox
from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from jupyter_client.manager import AsyncKernelManager

pytestmark = pytest.mark.usefixtures("kernelspec")


@pytest.fixture
async def notebook() -> AsyncIterator[Notebook]:
    async with open_notebook() as made:
        yield made


def _pid_of(notebook: Notebook) -> int:
    provisioner: Any = notebook.manager.provisioner
    pid: int = provisioner.process.pid
    return pid


async def test_a_flood_is_bounded_and_says_what_is_missing_and_where_it_is(notebook: Notebook) -> None:
    cell = await notebook.run("for number in range(100): print('x' * 10**6)")
    assert len(cell.text()) <= 2**20
    assert "MiB more of output are not shown" in cell.text("stderr")
    assert "sandbox.execution('run_" in cell.text("stderr")
    displays = await notebook.run("for number in range(10_000): display(number)")
    assert displays.kinds().count("display_data") == 1000
    assert "9000 more displays are not shown" in displays.text("stderr")
    image = await notebook.run("from IPython.display import Image; Image(b'\\x89PNG' + bytes(50 * 10**6))")
    note = image.outputs[0][1]["data"]["text/plain"]
    assert "bytes left out: a message may have" in note
    path = note.partition("the image/png is in ")[2].removesuffix("]")
    assert (await notebook.run(f"import os; print(os.path.getsize({path!r}))")).text() == "50000004\n"
    assert (await notebook.run("print('well')")).text() == "well\n"


async def test_a_kernel_process_that_slept_tells_all_of_it_once_and_in_order(notebook: Notebook) -> None:
    """A laptop that was closed: the cell goes on in the sandbox."""
    cell = notebook.send(
        "import os, time\n"
        "for number in range(500):\n"
        "    print(number, flush=True)\n"
        "    time.sleep(0.002)\n"
        "open('/workspace/done', 'w').close()"
    )
    await notebook.until_printed(cell, "5\n")
    pid = _pid_of(notebook)
    os.kill(pid, signal.SIGSTOP)
    try:
        (sandbox,) = [each for each in await AsyncSandbox.list() if each.name.startswith("kernel-")]
        async with await AsyncSandbox.connect(sandbox.name) as beside:
            await beside.exec("until [ -e /workspace/done ]; do sleep 0.01; done", timeout=PATIENCE_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    told = await notebook.finish(cell)
    assert told.text() == "".join(f"{number}\n" for number in range(500))
    assert told.states == ["busy", "idle"]


async def test_interrupt_ends_a_question_and_a_late_answer_answers_nothing_else(notebook: Notebook) -> None:
    client: Any = notebook.client
    cell = notebook.send("input('first? ')", allow_stdin=True)
    await client.get_stdin_msg(timeout=PATIENCE_S)
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(cell)).reply["ename"] == "KeyboardInterrupt"
    client.input("late")
    second = notebook.send("print(input('second? '))", allow_stdin=True)
    asked = await client.get_stdin_msg(timeout=PATIENCE_S)
    assert asked["content"]["prompt"] == "second? "
    client.input("right")
    assert (await notebook.finish(second)).text() == "right\n"


async def test_a_question_that_nobody_can_answer_fails_at_once(notebook: Notebook) -> None:
    cell = await notebook.run("input('anybody? ')", allow_stdin=False)
    assert cell.reply["ename"] == "StdinNotImplementedError"


async def test_a_comm_for_an_unknown_target_is_closed(notebook: Notebook) -> None:
    session = notebook.client.session
    notebook.send_message(session.msg("comm_open", {"comm_id": "c", "target_name": "nobody", "data": {}}))
    async with asyncio.timeout(PATIENCE_S):
        message: dict[str, Any] = {}
        while message.get("msg_type") != "comm_close":
            message = await notebook.client.get_iopub_msg()
    assert message["content"]["comm_id"] == "c"


async def test_a_page_that_is_loaded_anew_finds_its_widgets(notebook: Notebook) -> None:
    """A new session asks for the comms, and by the control comm for the state of all widgets at once."""
    cell = await notebook.run("import ipywidgets\nslider = ipywidgets.IntSlider(value=7)\nslider")
    opened = [body for kind, body in cell.outputs if kind == "comm_open"]
    again: Any = notebook.manager.client()
    again.session = type(again.session)(key=again.session.key)  # as a page has after a reload
    again.start_channels()
    try:
        await again.wait_for_ready(timeout=PATIENCE_S)
        page = Notebook(notebook.manager, again)
        found = await page.request("comm_info_request", {"target_name": "jupyter.widget"})
        assert {each["comm_id"] for each in opened} == found["comms"].keys()
        opening: dict[str, Any] = {"comm_id": "control", "target_name": "jupyter.widget.control", "data": {}}
        page.send_message(again.session.msg("comm_open", opening, metadata={"version": "1.0.0"}))
        asked = {"comm_id": "control", "data": {"method": "request_states"}}
        page.send_message(again.session.msg("comm_msg", asked))
        async with asyncio.timeout(PATIENCE_S):
            states: dict[str, Any] = {}
            while not states:
                message: dict[str, Any] = await again.get_iopub_msg()
                if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == "control":
                    states = message["content"]["data"]["states"]
        assert 7 in [state["state"].get("value") for state in states.values()]
    finally:
        again.stop_channels()


async def test_a_file_beside_the_notebook_comes_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside.csv").write_text("1")
    monkeypatch.chdir(tmp_path)  # as Jupyter starts a kernel in the notebook's folder
    async with open_notebook() as notebook:
        cell = await notebook.run("open('beside.csv')")
        assert cell.reply["ename"] == "FileNotFoundError"
        assert "%sandbox upload beside.csv" in cell.text("stderr")
        assert (await notebook.run("open('nowhere.csv')")).text("stderr") == ""


async def test_code_that_is_loaded_comes_as_the_next_input(notebook: Notebook) -> None:
    await notebook.run("open('/workspace/code.py', 'w').write('a = 1')")
    (payload,) = (await notebook.run("%load /workspace/code.py")).reply["payload"]
    assert payload["source"] == "set_next_input"
    assert "a = 1" in payload["text"]


async def test_an_editor_that_starts_the_kernel_itself_gets_on(tmp_path: Path) -> None:
    """As VS Code does: from argv, with hidden silent cells, and interrupts on shell."""
    connection_file, _ = write_connection_file(str(tmp_path / "kernel.json"), ip="127.0.0.1")
    argv = KernelSpecManager().get_kernel_spec(KERNEL_NAME).argv
    words = [word.replace("{connection_file}", connection_file) for word in argv]
    process = await asyncio.create_subprocess_exec(*words, cwd=tmp_path)
    client: Any = AsyncKernelClient()
    client.load_connection_file(connection_file)
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=PATIENCE_S)
        notebook = Notebook(cast("AsyncKernelManager", None), client)  # nobody manages it
        hidden = {"silent": True, "store_history": False}
        cell = await notebook.run("import sys\nprint(sys.executable)", **hidden)
        assert cell.text().startswith("/")
        assert (await notebook.run("%cd /tmp", **hidden)).reply["status"] == "ok"
        running = notebook.send("print('go', flush=True)\nwhile True: pass")
        await notebook.until_printed(running, "go")
        interrupt = notebook.send_message(client.session.msg("interrupt_request", {}))
        replies = [await client.get_shell_msg(timeout=PATIENCE_S) for _ in range(2)]
        told = {each["parent_header"]["msg_id"]: each["content"] for each in replies}
        assert told[interrupt] == {"status": "ok"}
        assert (told[running]["ename"], told[running]["execution_count"]) == ("KeyboardInterrupt", 1)
        assert (await notebook.run("1")).reply["execution_count"] == 2
        assert (await notebook.request("shutdown_request", {"restart": False}, "control"))["status"] == "ok"
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        client.stop_channels()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_whoever_comes_while_a_cell_runs_is_answered(notebook: Notebook) -> None:
    """A front end that connects again, a display of what the kernel uses, and a request that nobody knows."""
    running = notebook.send("print('go', flush=True)\nimport time; time.sleep(60)")
    await notebook.until_printed(running, "go")
    again: Any = notebook.manager.client()
    again.session = type(again.session)(key=again.session.key)  # as a page has after a reload
    again.start_channels()
    try:
        await again.wait_for_ready(timeout=PATIENCE_S)
    finally:
        again.stop_channels()
    assert (await notebook.request("usage_request", {}, channel="control"))["kernel_memory"] > 0
    assert (await notebook.request("never_heard_of_request", {}, channel="control"))["status"] == "error"
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(running)).reply["ename"] == "KeyboardInterrupt"


async def test_a_breakpoint_stops_at_a_prompt_where_somebody_can_be_asked(notebook: Notebook) -> None:
    client: Any = notebook.client
    cell = notebook.send("x = 41\nbreakpoint()\nprint('on')", allow_stdin=True)
    for line in ("p x + 1", "c"):
        asked = await client.get_stdin_msg(timeout=PATIENCE_S)
        assert asked["content"]["prompt"] == "ipdb> "
        client.input(line)
    text = (await notebook.finish(cell)).text()
    assert text.index("42\n") < text.index("on\n")
    assert (await notebook.run("breakpoint(); print('past')", allow_stdin=False)).text() == "past\n"
