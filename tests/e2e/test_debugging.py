"""What a front end does beside the cells: the debugger, and subshells."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.front_end import PATIENCE_S, Notebook, open_notebook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.usefixtures("kernelspec")

INITIALIZE = {
    "clientID": "test",
    "adapterID": "",
    "pathFormat": "path",
    "linesStartAt1": True,
    "columnsStartAt1": True,
    "locale": "en",
}
CODE = "def double(a):\n    b = 2 * a\n    return b\ndouble(21)"


@pytest.fixture
async def notebook() -> AsyncIterator[Notebook]:
    async with open_notebook() as made:
        yield made


async def debug(notebook: Notebook, command: str, **arguments: Any) -> dict[str, Any]:
    """Send a request of the debug adapter protocol and return its body; it has to succeed."""
    content = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
    answer = await notebook.request("debug_request", content, channel="control")
    assert answer["success"], answer
    body: dict[str, Any] = answer.get("body", {})
    return body


async def stopped(notebook: Notebook) -> int:
    """Return the thread that stops next."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = await notebook.client.get_iopub_msg()
            if message["msg_type"] == "debug_event" and message["content"]["event"] == "stopped":
                thread: int = message["content"]["body"]["threadId"]
                return thread


async def local_names(notebook: Notebook, thread: int) -> dict[str, str]:
    frames = (await debug(notebook, "stackTrace", threadId=thread))["stackFrames"]
    scopes = (await debug(notebook, "scopes", frameId=frames[0]["id"]))["scopes"]
    reference = scopes[0]["variablesReference"]
    found = (await debug(notebook, "variables", variablesReference=reference))["variables"]
    return {each["name"]: each["value"] for each in found}


async def test_a_cell_stops_at_a_breakpoint_and_goes_on_step_by_step(notebook: Notebook) -> None:
    info = await notebook.request("kernel_info_request", {})
    assert (info["debugger"], "debugger" in info["supported_features"]) == (True, True)
    assert (await debug(notebook, "debugInfo"))["isStarted"] is False
    await debug(notebook, "initialize", **INITIALIZE)
    await debug(notebook, "attach")
    path = (await debug(notebook, "dumpCell", code=CODE))["sourcePath"]
    points = await debug(
        notebook, "setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}], sourceModified=False
    )
    assert points["breakpoints"][0]["verified"]
    await debug(notebook, "configurationDone")
    cell = notebook.send(CODE)
    thread = await stopped(notebook)
    assert await local_names(notebook, thread) == {"a": "21"}
    await debug(notebook, "next", threadId=thread)
    assert await local_names(notebook, await stopped(notebook)) == {"a": "21", "b": "42"}
    await debug(notebook, "continue", threadId=thread)
    assert (await notebook.finish(cell)).outputs[-1][1]["data"]["text/plain"] == "42"
    called = notebook.send("kept = 1\nbreakpoint()\nkept", allow_stdin=True)
    await debug(notebook, "continue", threadId=await stopped(notebook))
    assert (await notebook.finish(called)).reply["status"] == "ok"
    await debug(notebook, "disconnect", restart=False, terminateDebuggee=False)
    after = notebook.send("breakpoint()\n1", allow_stdin=True)
    client: Any = notebook.client
    assert (await client.get_stdin_msg(timeout=PATIENCE_S))["content"]["prompt"] == "ipdb> "
    client.input("c")
    assert (await notebook.finish(after)).reply["status"] == "ok"


async def test_a_cell_that_runs_elsewhere_is_not_debugged_and_says_so(notebook: Notebook) -> None:
    content = {"type": "request", "seq": 1, "command": "dumpCell", "arguments": {"code": "%%shell\nls"}}
    answer = await notebook.request("debug_request", content, channel="control")
    assert answer["success"] is False
    assert "%%shell" in answer["message"]


async def test_a_subshell_runs_beside_a_cell_and_shows_its_own_output(notebook: Notebook) -> None:
    info = await notebook.request("kernel_info_request", {})
    assert "kernel subshells" in info["supported_features"]
    made = await notebook.request("create_subshell_request", {}, channel="control")
    await notebook.run("import threading; gate = threading.Event()")
    waiting = notebook.send("print('waits', flush=True); gate.wait(20); print('goes on')")
    await notebook.until_printed(waiting, "waits")
    beside = await notebook.finish(
        notebook.send_message(in_subshell(notebook, "print('beside'); gate.set()", made["subshell_id"]))
    )
    assert (beside.text(), beside.reply["status"]) == ("beside\n", "ok")
    assert (await notebook.finish(waiting)).text() == "waits\ngoes on\n"
    listed = await notebook.request("list_subshell_request", {}, channel="control")
    assert listed["subshell_id"] == [made["subshell_id"]]
    gone = {"subshell_id": made["subshell_id"]}
    assert (await notebook.request("delete_subshell_request", gone, channel="control"))["status"] == "ok"
    late = await notebook.finish(
        notebook.send_message(in_subshell(notebook, "print(1)", made["subshell_id"]))
    )
    assert late.reply["status"] == "error"


def in_subshell(notebook: Notebook, code: str, subshell_id: str) -> dict[str, Any]:
    content: dict[str, Any] = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": True,
    }
    message: dict[str, Any] = notebook.client.session.msg("execute_request", content)
    message["header"]["subshell_id"] = subshell_id
    return message
