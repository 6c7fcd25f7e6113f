"""What cells ask of the machine that Jupyter runs on, as a person in a notebook sees it."""

from __future__ import annotations

import asyncio
import http.cookiejar
import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.front_end import PATIENCE_S, Cell, Notebook, open_notebook
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from sandcell import AsyncSandbox
from sandcell.api import FrontInfo
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.host import the_host
from sandcell.client.protocol import Request
from sandcell.guest_address import GuestAddress
from sandcell.guest_socket import open_socket
from sandcell_kernel.websocket import pack_default, unpack_default
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("kernelspec")


@pytest.fixture
async def shared() -> AsyncIterator[AsyncSandbox]:
    """A sandbox that a program made."""
    async with await AsyncSandbox.create(engine="local") as made:
        yield made


@pytest.fixture
async def notebook(
    shared: AsyncSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Notebook]:
    """A notebook in a folder of its own, where files below `free` are copied without a question."""
    (tmp_path / "free").mkdir()
    monkeypatch.chdir(tmp_path)
    options = json.dumps({"transfers": "free"})
    async with open_notebook(SANDCELL_SANDBOX=shared.name, SANDCELL_KERNEL_OPTIONS=options) as made:
        yield made


def shown(cell: Cell) -> str:
    """Return the text form of what was displayed; each has an HTML form as well."""
    bundles = [body["data"] for _, body in cell.outputs if "data" in body]
    assert all(bundle["text/html"] for bundle in bundles)
    return "\n".join(bundle["text/plain"] for bundle in bundles)


async def answered(notebook: Notebook, code: str, answer: str) -> tuple[str, Cell]:
    """Run a cell that asks once, and return what it asked, and the cell."""
    client: Any = notebook.client
    cell = notebook.send(code, allow_stdin=True)
    asked = await client.get_stdin_msg(timeout=PATIENCE_S)
    client.input(answer)
    return asked["content"]["prompt"], await notebook.finish(cell)


async def test_files_are_copied_when_the_person_says_so(
    notebook: Notebook, shared: AsyncSandbox, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"mine\0")
    prompt, told = await answered(notebook, "%sandbox upload secret deep/copy", "y")
    assert prompt == f"copy {tmp_path}/secret (5 B) from your machine into the sandbox? [y/N] "
    assert "1 file, 5 B: deep/copy in the sandbox" in told.text("stderr")
    assert await shared.files.read_bytes("deep/copy") == b"mine\0"

    prompt, refused = await answered(notebook, "%sandbox upload secret other", "")
    assert (refused.reply["ename"], await shared.files.exists("other")) == ("FORBIDDEN", False)
    nobody = await notebook.run("%sandbox upload secret", allow_stdin=False)
    assert (nobody.reply["ename"], "--transfers FOLDER" in str(nobody.outputs)) == ("FORBIDDEN", True)

    prompt, _ = await answered(notebook, "%sandbox download deep/copy secret", "n")
    assert prompt == f"write {tmp_path}/secret on your machine, and replace what is there? [y/N] "
    await answered(notebook, "%sandbox download deep .", "yes")
    assert (tmp_path / "deep" / "copy").read_bytes() == b"mine\0"
    missing = await answered(notebook, "%sandbox upload nothing.csv", "y")
    assert missing[1].reply["ename"] == "FILE_NOT_FOUND"


async def test_below_the_folder_that_was_allowed_nobody_is_asked(
    notebook: Notebook, shared: AsyncSandbox, tmp_path: Path
) -> None:
    (tmp_path / "free" / "tree").mkdir()
    for name in ("a", "b"):
        (tmp_path / "free" / "tree" / name).write_text(name)
    up = await notebook.run("%sandbox upload free/tree data/")
    assert "2 files, 2 B: data/tree in the sandbox" in up.text("stderr")
    await notebook.run("%sandbox files backup data free/data.tar")
    await shared.files.write("data/tree/c", "new")
    assert (await notebook.run("%sandbox files restore free/data.tar data")).reply["status"] == "ok"
    assert [each.name for each in await shared.files.list("data/tree")] == ["a", "b"]
    await notebook.run("%sandbox download data/tree/b free/")
    assert (tmp_path / "free" / "b").read_text() == "b"
    (tmp_path / "free" / "out").symlink_to("/etc")
    assert (await notebook.run("%sandbox upload free/out/hostname", allow_stdin=False)).reply[
        "ename"
    ] == "FORBIDDEN"


async def test_a_question_can_be_interrupted_and_the_next_cell_runs(
    notebook: Notebook, tmp_path: Path
) -> None:
    client: Any = notebook.client
    cell = notebook.send(f"%sandbox upload {tmp_path}", allow_stdin=True)
    asked = await client.get_stdin_msg(timeout=PATIENCE_S)
    assert f"the folder {tmp_path} and all that is in it" in asked["content"]["prompt"]
    await notebook.manager.interrupt_kernel()
    assert (await notebook.finish(cell)).reply["ename"] == "KeyboardInterrupt"
    client.input("y")  # of a person who was too late
    assert (await notebook.run("%sandbox files", allow_stdin=True)).reply["status"] == "ok"
    assert (await notebook.run("%sandbox upload free\n%sandbox files")).reply["status"] == "ok"


async def test_code_in_the_sandbox_cannot_ask_for_errands(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "free" / "mine").write_text("mine")
    done = await notebook.run("get_ipython().run_line_magic('sandbox', 'upload free/mine')")
    assert (done.reply["status"], "not found" in str(done.outputs)) == ("error", True)
    code = """import json
kernel = get_ipython().kernel
kernel.session.send(kernel.iopub_socket, 'errand_request', {'number': 0}, parent=kernel.get_parent())
kernel.session.send(kernel.control_socket if hasattr(kernel, 'control_socket') else kernel.iopub_socket,
                    'errand_request', {'number': 0}, parent=kernel.get_parent())"""
    await notebook.run(code)
    assert (await notebook.run("import os; os.path.exists('mine')")).outputs[0][1]["data"][
        "text/plain"
    ] == "False"


async def test_a_port_has_a_link_that_opens_once(notebook: Notebook, shared: AsyncSandbox) -> None:
    await shared.files.write("index.html", "an app of the sandbox")
    web = await shared.start_process("python3 -m http.server 8123")
    await web.wait_for_port(8123, timeout=PATIENCE_S)
    exposed = await notebook.run("%sandbox ports expose 8123 --name web")
    assert re.search(r"8123 +web +yes +http://127\.", shown(exposed))
    (token,) = [each.token for each in [await shared.ports.expose(8123)]]
    assert token not in str(exposed.outputs)
    link = re.findall(r"http://\S+", shown(await notebook.run("%sandbox ports")))[-1]
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    assert "an app of the sandbox" in await asyncio.to_thread(lambda: browser.open(link).read().decode())
    with pytest.raises(urllib.error.HTTPError) as refused:
        await asyncio.to_thread(urllib.request.urlopen, link)
    assert refused.value.code == 403
    refused.value.close()
    assert (await notebook.run("%sandbox ports expose 80")).reply["ename"] == "INVALID_ARGUMENT"
    assert (await notebook.run("%sandbox ports close 8123")).reply["status"] == "ok"
    assert shown(await notebook.run("%sandbox ports")) == "Exposed ports: none"


async def test_the_page_of_a_terminal_is_for_who_has_its_link(
    notebook: Notebook, shared: AsyncSandbox
) -> None:
    link = re.findall(r"http://\S+", shown(await notebook.run("%terminal desk")))[0]
    assert (await shared.terminal("desk")).status == "running"
    host = link.split("/")[2]
    with await asyncio.to_thread(urllib.request.urlopen, link) as page:
        cookie = page.headers["Set-Cookie"].partition(";")[0]
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert "desk: terminal" in page.read().decode()
    origin = f"http://{host}"
    socket = f"ws://{host}{link.partition(host)[2]}/io"
    for headers in ({"Origin": origin}, {"Cookie": cookie, "Origin": "http://127.0.0.1:8888"}):
        with pytest.raises(HTTPClientError, match="403"):
            await websocket_connect(HTTPRequest(socket, headers=headers))
    with pytest.raises(HTTPClientError, match="404"):
        await websocket_connect(
            HTTPRequest(socket, headers={"Cookie": cookie, "Origin": origin, "Host": "evil.example"})
        )
    viewer = await websocket_connect(HTTPRequest(socket, headers={"Cookie": cookie, "Origin": origin}))
    await viewer.write_message("nonsense")
    await viewer.write_message(json.dumps({"size": [60, 10]}))
    await viewer.write_message(json.dumps({"keys": "tput cols; exit 3\n"}))
    told = list[dict[str, Any]]()
    async with asyncio.timeout(PATIENCE_S):
        while not told or "over" not in told[-1]:
            told.append(json.loads(str(await viewer.read_message())))
    assert "60" in {text for patch in told for runs in patch.get("rows", {}).values() for text, _ in runs}
    assert told[-1] == {"over": "it has ended: exited with 3"}
    assert await viewer.read_message() is None
    viewer.close()


@pytest.fixture
async def own() -> AsyncIterator[Notebook]:
    """A notebook with a sandbox of its own."""
    async with open_notebook(SANDCELL_ENGINE="local") as made:
        yield made


async def test_people_change_the_network_and_what_waits_runs_in_the_new_one(own: Notebook) -> None:
    assert "network  none" in shown(await own.run("%sandbox network"))
    prompt, refused = await answered(own, "%sandbox network pypi.org *.example.org", "n")
    reach = "let the sandbox reach pypi.org, *.example.org"
    assert prompt == f"{reach}, and start it anew, without its variables and processes? [y/N] "
    assert refused.reply["ename"] == "FORBIDDEN"
    assert (await own.run("%sandbox network open", allow_stdin=False)).reply["ename"] == "FORBIDDEN"
    not_last = await own.run("%sandbox network pypi.org\n%sandbox info", allow_stdin=True)
    assert not_last.reply["ename"] == "INVALID_ARGUMENT"

    await own.run("x = 1; open('kept', 'w').write('kept')")
    client: Any = own.client
    changing = own.send("%sandbox network pypi.org", allow_stdin=True)
    following = own.send(
        "import os; print(open('kept').read(), 'x' in globals(), 'http_proxy' in os.environ)"
    )
    await client.get_stdin_msg(timeout=PATIENCE_S)
    client.input("y")
    changed = await own.finish(changing)
    assert (changed.reply["status"], changed.reply["execution_count"]) == ("ok", 6)
    assert "the sandbox was started anew" in changed.text("stderr")
    assert (await own.finish(following)).text() == "kept False True\n"
    assert "network  pypi.org" in shown(await own.run("%sandbox network"))

    await own.run("y = 1")
    prompt, listed = await answered(own, "%sandbox network example.org", "y")
    assert prompt == "let the sandbox reach example.org? [y/N] "
    assert (listed.text("stderr"), (await own.run("print(y)")).text()) == ("", "1\n")
    assert "network  example.org" in shown(await own.run("%sandbox network"))


async def test_a_kernel_leaves_the_network_of_others_sandboxes_alone(notebook: Notebook) -> None:
    refused = await notebook.run("%sandbox network none")
    assert refused.reply["ename"] == "FORBIDDEN"


async def test_a_snapshot_is_made_and_says_how_it_is_used(notebook: Notebook, shared: AsyncSandbox) -> None:
    await shared.files.write("kept", "kept")
    told = shown(await notebook.run("%sandbox snapshot as-it-was"))
    assert "Sandbox.create('as-it-was', engine='local')" in told
    try:
        async with await AsyncSandbox.create("as-it-was", engine="local") as again:
            assert await again.files.read("kept") == "kept"
        assert (await notebook.run("%sandbox snapshot as-it-was")).reply["ename"] == "EXISTS"
    finally:
        the_host().remove_snapshot("as-it-was")


FILES = """%sandbox files write notes.txt "one <b>" two
%sandbox files append notes.txt three
%sandbox files insert notes.txt 1 -- --dashes
%sandbox files replace notes.txt two 2
%sandbox files read notes.txt
%sandbox files mkdir a/b c
%sandbox files copy notes.txt a/b/notes.txt
%sandbox files rename c d
%sandbox files remove d --recursive"""


async def test_files_are_seen_to_line_by_line(notebook: Notebook, shared: AsyncSandbox) -> None:
    done = await notebook.run(FILES)
    assert (done.reply["status"], done.text()) == ("ok", "one <b>\n--dashes\n2\nthree\n")
    listed = await notebook.run("%sandbox files list --recursive --glob *.txt --sort mtime")
    assert "a/b/notes.txt" in shown(listed)
    found = await notebook.run("%sandbox files search ^TWO|2|<B> --ignore-case --context 1")
    assert re.search(r"notes\.txt +3 +2\n", shown(found))
    assert "one &lt;b&gt;" in found.outputs[0][1]["data"]["text/html"]
    lines = await notebook.run("%sandbox files read notes.txt --lines 2-3")
    assert (lines.text(), "lines 2-3 of 4 lines" in lines.text("stderr")) == ("--dashes\n2\n", True)
    assert "text/plain" in shown(await notebook.run("%sandbox files stat notes.txt a"))
    assert (await notebook.run("%sandbox files remove a")).reply["ename"] == "IS_A_DIRECTORY"
    assert (await notebook.run("%sandbox files remove a --recursive")).reply["status"] == "ok"
    for wrong in (
        "copy notes.txt notes.txt",
        "replace notes.txt e x",
        "read none",
        "insert notes.txt x y",
        "list --sort age",
    ):
        assert (await notebook.run(f"%sandbox files {wrong}")).reply["status"] == "error"
    assert (await shared.files.read("notes.txt")).startswith("one <b>\n")


async def test_a_picture_is_shown_as_one_and_other_bytes_are_named(
    notebook: Notebook, shared: AsyncSandbox
) -> None:
    await shared.files.write("dot.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    (picture,) = (await notebook.run("%sandbox files read dot.svg")).outputs
    assert picture[1]["data"]["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    await shared.files.write("blob", b"\0" * 100)
    assert "application/octet-stream" in shown(await notebook.run("%sandbox files read blob"))
    await shared.files.write("long", "x" * 79 + "\n")
    await shared.exec("yes $(cat long) | head -c 3000000 > long")
    long = await notebook.run("%sandbox files read long")
    assert len(long.text()) <= 2**20
    assert "more are not shown: --lines FIRST-LAST" in long.text("stderr")


async def test_a_front_end_without_a_kernel_process_is_told_so(shared: AsyncSandbox) -> None:
    """As those that come by HTTP; what needs no other machine works for them."""
    record = (await asyncio.to_thread(the_host().find, shared.id)).record
    guest = GuestAddress(record.address, record.token, PATIENCE_S)
    transport = AsyncTransport(
        record.address, record.token, connect_timeout=PATIENCE_S, reply_timeout=PATIENCE_S
    )
    front = await transport.call(Request(method="POST", path="/v1/fronts", body=b"{}"), FrontInfo)
    transport.close()
    path = f"/v1/fronts/{front.id}/channels"
    socket = await open_socket(guest, path, {"errands": "true"}, max_message=2**24, hint="")

    async def ask(code: str) -> dict[str, Any]:
        request = new_message("execute_request", {"code": code, "allow_stdin": True}, session="web")
        await socket.write_message(pack_default("shell", request))
        while True:
            frame = await socket.read_message()
            assert isinstance(frame, str)
            channel, message = unpack_default(frame)
            if channel == "shell":
                return message.body()

    async with asyncio.timeout(PATIENCE_S):
        for line in (
            "%sandbox upload a",
            "%sandbox ports expose 8000",
            "%sandbox network open",
            "%sandbox download a b",
        ):
            assert (await ask(line))["ename"] == "UNSUPPORTED"
        for line in ("%terminal", "%sandbox network", "%sandbox ports", "%sandbox files"):
            assert (await ask(line))["status"] == "ok"
    socket.close()
