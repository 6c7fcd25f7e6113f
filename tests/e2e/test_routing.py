"""Cells that do not run in the notebook's own interpreter, as a person in a notebook sees them."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.front_end import PATIENCE_S, Notebook, open_notebook

from sandcell import AsyncSandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.usefixtures("kernelspec")


@pytest.fixture
async def shared() -> AsyncIterator[AsyncSandbox]:
    """A sandbox that a program made."""
    async with await AsyncSandbox.create(engine="local") as made:
        yield made


@pytest.fixture
async def notebook(shared: AsyncSandbox) -> AsyncIterator[Notebook]:
    async with open_notebook(SANDCELL_SANDBOX=shared.name) as made:
        yield made


def shown(outputs: list[tuple[str, dict[str, Any]]]) -> str:
    """Return the text form of what was displayed; each has an HTML form as well."""
    bundles = [body["data"] for kind, body in outputs if kind == "display_data"]
    assert all(bundle["text/html"] for bundle in bundles)
    return "\n".join(bundle["text/plain"] for bundle in bundles)


async def test_a_command_leaves_nothing_behind_but_files(notebook: Notebook) -> None:
    first = await notebook.run("%%exec\nx=1; cd /tmp; echo made > /workspace/made; echo err >&2; exit 3")
    assert (first.text("stderr"), first.reply["ename"]) == ("err\n", "CommandFailed")
    assert first.reply["evalue"] == "the command ended with exit status 3"
    assert (await notebook.run('%%exec\necho "$PWD:$x:"; cat made')).text() == "/workspace::\nmade\n"


SCRIPT = r"""%%shell
read -p 'name? ' name; read -s -p word word; echo "$name $word $?"
read -r a b <<< 'c d'; echo "$a-$b"
while read line; do echo "got $line"; done < <(printf '1\n2\n')
echo piped | { read q; echo $q; }
cat; read"""


async def test_a_read_asks_the_notebook_and_nothing_else_does(notebook: Notebook) -> None:
    client: Any = notebook.client
    cell = notebook.send(SCRIPT, allow_stdin=True)
    for prompt, password, answer in (("name? ", False, "you & me"), ("word", True, "hush"), ("", False, "")):
        asked = await client.get_stdin_msg(timeout=PATIENCE_S)
        assert asked["content"] == {"prompt": prompt, "password": password}
        client.input(answer)
    told = await notebook.finish(cell)
    assert told.text().split("\n")[:5] == ["you & me hush 0", "c-d", "got 1", "got 2", "piped"]
    nobody = await notebook.run("%%shell\nread x; echo $?", allow_stdin=False)
    assert nobody.text() == "1\n"
    stopped = notebook.send("%%shell\nread x; echo never", allow_stdin=True)
    await client.get_stdin_msg(timeout=PATIENCE_S)
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(stopped)).reply["ename"] == "KeyboardInterrupt"
    assert (await notebook.run("%%shell\necho fine", allow_stdin=True)).text() == "fine\n"


async def test_interrupt_ends_a_command_and_what_it_started(notebook: Notebook, shared: AsyncSandbox) -> None:
    cell = notebook.send("%%exec\necho begun; sleep 1234 & wait")
    await notebook.until_printed(cell, "begun")
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(cell)).reply["ename"] == "KeyboardInterrupt"
    assert not [each for each in await shared.top() if "1234" in each.command]


async def test_a_process_goes_on_when_its_cell_is_interrupted(
    notebook: Notebook, shared: AsyncSandbox
) -> None:
    cell = notebook.send("%%process job\necho begun; sleep 1000")
    await notebook.until_printed(cell, "begun")
    await notebook.manager.interrupt_kernel()
    left = await notebook.finish(cell)
    assert (left.reply["status"], "%process follow job" in left.text("stderr")) == ("ok", True)
    assert "job  running" in shown((await notebook.run("%process list")).outputs)
    assert (await notebook.run("%process logs job")).text() == "begun\n"
    following = notebook.send("%process follow job")
    await notebook.until_printed(following, "begun")
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(following)).reply["status"] == "ok"
    killed = shown((await notebook.run("%process kill job")).outputs)
    assert "killed by signal 15" in killed
    assert (await shared.process("job")).status == "ended"


async def test_a_process_that_fails_is_an_error_of_its_cell(notebook: Notebook) -> None:
    failed = await notebook.run("%%process job\necho out; exit 4")
    assert (failed.text(), failed.reply["ename"]) == ("out\n", "CommandFailed")
    assert failed.reply["evalue"] == "job: the command ended with exit status 4"
    detached = await notebook.run("%%process other --detach\necho one; echo two")
    assert (detached.text(), detached.reply["status"]) == ("", "ok")
    assert "exited with 0" in shown((await notebook.run("%process wait other")).outputs)
    assert (await notebook.run("%process logs other --tail 1")).text() == "two\n"
    assert (await notebook.run("%process follow other")).text() == "one\ntwo\n"
    missing = await notebook.run("%process wait nobody")
    assert missing.reply["ename"] == "NOT_FOUND"


async def test_another_context_has_its_own_variables_and_the_notebooks_counter(notebook: Notebook) -> None:
    await notebook.run("x = 'mine'")
    cell = await notebook.run("%%context other\nx = 'theirs'; print(x); x.upper()")
    assert (cell.text(), cell.reply["execution_count"]) == ("theirs\n", 2)
    (result,) = [body for kind, body in cell.outputs if kind == "execute_result"]
    assert (result["data"]["text/plain"], result["execution_count"]) == ("'THEIRS'", 2)
    own = await notebook.run("x")
    assert (own.outputs[0][1]["data"]["text/plain"], own.reply["execution_count"]) == ("'mine'", 3)
    code = "%%context other\nx.uppe"
    found = await notebook.request("complete_request", {"code": code, "cursor_pos": len(code)})
    assert found["matches"] in (["upper"], ["x.upper"], [".upper"])
    assert code[found["cursor_start"] : found["cursor_end"]] in ("uppe", "x.uppe", ".uppe")
    assert "other" in shown((await notebook.run("%context list")).outputs)
    assert (await notebook.run("%context delete python")).reply["ename"] == "INVALID_ARGUMENT"
    await notebook.run("%context restart other")
    assert (await notebook.run("%%context other\nx")).reply["ename"] == "NameError"


async def test_interrupt_reaches_another_context_and_no_other(notebook: Notebook) -> None:
    await notebook.run("kept = 1")
    cell = notebook.send("%%context other\nprint('begun')\nwhile True: pass")
    await notebook.until_printed(cell, "begun")
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(cell)).reply["ename"] == "KeyboardInterrupt"
    assert (await notebook.run("kept")).reply["status"] == "ok"


async def test_comms_of_another_context_find_it(notebook: Notebook) -> None:
    opened = await notebook.run(
        "%%context other\nfrom comm import create_comm\n"
        "comm = create_comm(target_name='test', data={'x': 1})\n"
        "comm.on_msg(lambda message: print('heard', message['content']['data'], len(message['buffers'])))"
    )
    (comm_id,) = [body["comm_id"] for kind, body in opened.outputs if kind == "comm_open"]
    found = await notebook.request("comm_info_request", {"target_name": "test"})
    assert found["comms"] == {comm_id: {"target_name": "test"}}
    message = notebook.client.session.msg("comm_msg", {"comm_id": comm_id, "data": {"y": 2}})
    message["buffers"] = [b"\xff\xfe"]
    notebook.send_message(message)
    async with asyncio.timeout(PATIENCE_S):
        heard: dict[str, Any] = {}
        while heard.get("msg_type") != "stream":
            heard = await notebook.client.get_iopub_msg()
    assert heard["content"]["text"] == "heard {'y': 2} 1\n"


async def test_a_context_that_was_deleted_is_made_anew_and_holds_up_nobody(notebook: Notebook) -> None:
    await notebook.run("%%context other\nx = 1")
    assert (await notebook.run("%context delete other")).reply["status"] == "ok"
    assert (await notebook.request("comm_info_request", {}))["comms"] == {}
    assert (await notebook.run("%%context other\nx")).reply["ename"] == "NameError"


async def test_the_sandbox_is_shown_in_tables(notebook: Notebook, shared: AsyncSandbox) -> None:
    info = shown((await notebook.run("%sandbox")).outputs)
    assert shared.id in info
    assert "local" in info
    assert "memory" in shown((await notebook.run("%sandbox stats")).outputs)
    await shared.files.write("data <b>.csv", "1,2\n")
    both = await notebook.run("%sandbox files\n%process list")
    assert "data <b>.csv  4 B" in shown(both.outputs)
    assert "data &lt;b&gt;.csv" in both.outputs[0][1]["data"]["text/html"]
    terminal = shown((await notebook.run("%terminal desk")).outputs)
    assert f"sandcell shell --sandbox {shared.name} --id desk" in terminal
    assert (await shared.terminal("desk")).status == "running"


async def test_everything_begins_anew_but_the_files(notebook: Notebook, shared: AsyncSandbox) -> None:
    await notebook.run("x = 1\nopen('kept', 'wb').write(b'\\x00kept')")
    await notebook.run("%%shell\ny=1")
    job = await shared.start_process("sleep 1000")
    assert (await notebook.run("%sandbox restart")).reply["status"] == "ok"
    assert (await notebook.run("x")).reply["ename"] == "NameError"
    assert (await notebook.run("%%shell\necho ${y-gone}")).text() == "gone\n"
    await job.refresh()
    assert job.status == "ended"
    link = (await notebook.run("%sandbox download kept")).outputs[0][1]["data"]["text/html"]
    assert 'download="kept"' in link
    assert base64.b64encode(b"\x00kept").decode() in link


async def test_variables_are_set_and_values_of_others_are_not_saved(notebook: Notebook) -> None:
    told = shown((await notebook.run("%sandbox env SECRET_THING=hush")).outputs)
    assert "hush" not in told
    assert "/home/user" in told
    assert (await notebook.run("%%exec\necho $SECRET_THING")).text() == "hush\n"
    refused = (await notebook.run("%sandbox env nothing")).reply
    assert refused["ename"] == "INVALID_ARGUMENT"
    assert "--unset NAME" in refused["traceback"][-1]
    assert "SECRET_THING" not in shown((await notebook.run("%sandbox env --unset SECRET_THING")).outputs)
    assert (await notebook.run("%%exec\necho ${SECRET_THING-unset}")).text() == "unset\n"


async def test_exposed_ports_are_shown_without_what_opens_them(
    notebook: Notebook, shared: AsyncSandbox
) -> None:
    assert shown((await notebook.run("%sandbox ports")).outputs) == "Exposed ports: none"
    exposed = [await shared.ports.expose(8001), await shared.ports.expose(8002, name="web")]
    await notebook.run("import socket; listener = socket.create_server(('127.0.0.1', 8002))")
    outputs = (await notebook.run("%sandbox ports")).outputs
    assert [line.split() for line in shown(outputs).splitlines()[-2:]] == [
        ["8001", "no"],
        ["8002", "web", "yes"],
    ]
    assert not any(each.token in str(outputs) for each in exposed)


async def test_a_person_sees_live_what_an_agent_runs(notebook: Notebook, shared: AsyncSandbox) -> None:
    following = notebook.send("%sandbox follow")
    await notebook.until_printed(following, "interrupt the cell", "stderr")
    await shared.run_code("print('from the agent'); {'a': 1}")
    await shared.run_code("1 / 0")
    await shared.exec("echo from a command")
    await notebook.until_printed(following, "from a command")
    await notebook.manager.interrupt_kernel()
    cell = await notebook.finish(following)
    assert cell.reply["status"] == "ok"
    texts = [body["data"]["text/plain"] for kind, body in cell.outputs if kind == "display_data"]
    assert any("sdk: run in python" in text and "print('from the agent')" in text for text in texts)
    assert "{'a': 1}" in texts
    assert "from the agent" in cell.text()
    assert "ZeroDivisionError" in cell.text("stderr")


async def test_what_an_agent_ran_becomes_a_cell(notebook: Notebook, shared: AsyncSandbox) -> None:
    await shared.run_code("rows = [1, 2]")
    await shared.run_code("total = sum(rows)")
    await notebook.run("mine = 1")
    (payload,) = (await notebook.run("%sandbox pull-history --last 1")).reply["payload"]
    assert (payload["source"], payload["replace"]) == ("set_next_input", False)
    assert "total = sum(rows)" in payload["text"]
    assert "rows = [1, 2]" not in payload["text"]
    (payload,) = (await notebook.run("%sandbox pull-history")).reply["payload"]
    assert payload["text"].index("rows = [1, 2]") < payload["text"].index("total = sum(rows)")
    assert "mine = 1" not in payload["text"]


async def test_help_completion_and_words_of_others(notebook: Notebook) -> None:
    (page,) = (await notebook.run("%process?")).reply["payload"]
    assert "%process kill ID..." in page["data"]["text/plain"]
    told = await notebook.request(
        "inspect_request", {"code": "%%shell build", "cursor_pos": 4, "detail_level": 0}
    )
    assert "shell session" in told["data"]["text/plain"]
    verbs = await notebook.request("complete_request", {"code": "%process l", "cursor_pos": 10})
    assert (verbs["matches"], verbs["cursor_start"]) == (["list", "logs"], 9)
    magics = await notebook.request("complete_request", {"code": "%%s", "cursor_pos": 3})
    assert {"%%shell", "%%sx"} <= set(magics["matches"])
    assert (await notebook.run("%lsmagic")).reply["status"] == "ok"
    assert (await notebook.run("%%capture caught\nprint(1)")).outputs == []
    wrong = await notebook.run("%process list\nprint(1)")
    assert "needs a cell of its own" in wrong.reply["evalue"]
