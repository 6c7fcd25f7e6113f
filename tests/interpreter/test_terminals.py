"""Terminals over HTTP and WebSocket, against a real spawner."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.interpreter.house import a_spawner
from tornado.httpserver import HTTPServer
from tornado.web import Application
from tornado.websocket import WebSocketClosedError

from sandcell.api import OsProcess
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.protocol import Request, path_of
from sandcell.config import Config
from sandcell.guest.app import ROUTES
from sandcell.guest.births import Births
from sandcell.guest.followers import Followers
from sandcell.guest.leases import Leases
from sandcell.guest_address import GuestAddress
from sandcell.guest_socket import open_socket
from sandcell.job_bodies import CreateTerminal, ResizeTerminal, TerminalInfo
from sandcell.names import encode_names
from sandcell_container.engine import Address
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Entry, FrameDecoder, Kind
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.process_table import ProcessTable
from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.terminal import Terminals
from sandcell_container.guest.user_worker import UserWorker
from sandcell_container.memo import Memo
from sandcell_container.unix_address import listen_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
    from pathlib import Path

    from tornado.websocket import WebSocketClientConnection

pytestmark = pytest.mark.short
TOKEN = "secret"
DEADLINE_S = 20


class Guest:
    """A guest with terminals alone, and a client of it."""

    def __init__(self, path: str, leases: Leases, terminals: Terminals) -> None:
        self.address = GuestAddress(Address(path=path), TOKEN, DEADLINE_S)
        self.leases = leases
        self.terminals = terminals
        self.viewers: list[Viewer] = []
        self.transport = AsyncTransport(
            Address(path=path), TOKEN, connect_timeout=DEADLINE_S, reply_timeout=DEADLINE_S
        )

    async def create(self, command: str | tuple[str, ...] | None = None, **fields: Any) -> TerminalInfo:
        body = encode_names(CreateTerminal(command=command, **fields))
        request = Request(method="POST", path=path_of("terminals"), body=body)
        return await self.transport.call(request, TerminalInfo)

    async def call(self, method: str, *path: str, body: bytes = b"", **query: str) -> bytes:
        asked = Request(
            method=method, path=path_of("terminals", *path), body=body, query=query, repeatable=False
        )
        return await self.transport.fetch(asked)

    async def connect(self, terminal_id: str, **query: str) -> Viewer:
        path = path_of("terminals", terminal_id, "io")
        opened = await open_socket(self.address, path, query, max_message=2**26, hint="")
        viewer = Viewer(opened)
        self.viewers.append(viewer)
        viewer.greeting = json.loads(await viewer.frame())
        return viewer


class Viewer:
    """One WebSocket."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        self.greeting: dict[str, Any] = {}
        self.seen = b""
        self.entries: list[Entry] = []
        self.notes: list[dict[str, Any]] = []

    async def frame(self) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await self.connection.read_message()

    async def type(self, data: bytes) -> None:
        await self.connection.write_message(data, binary=True)

    async def note(self, **fields: Any) -> None:
        await self.connection.write_message(json.dumps(fields))

    async def until(self, text: bytes) -> None:
        while text not in self.seen:
            assert await self.take(), self.seen
        self.seen = self.seen.partition(text)[2]

    async def rest(self) -> bytes:
        while await self.take():
            pass
        return self.seen

    async def take(self) -> bool:
        """Take a frame; False at the end."""
        frame = await self.frame()
        if isinstance(frame, str):
            self.notes.append(json.loads(frame))
        elif frame is not None:
            found = list(FrameDecoder().feed(frame))
            self.entries += found
            self.seen += b"".join(each.data for each in found if each.kind == Kind.STDOUT)
        return frame is not None

    @property
    def cursor(self) -> str:
        last = self.entries[-1]
        return f"{self.greeting['epoch']}.{last.seq}.{last.offset}"


@asynccontextmanager
async def serve(tmp_path: Path, **settings: Any) -> AsyncGenerator[Guest]:
    config = Config(**settings)
    (tmp_path / ".bashrc").write_text("PS1='$ '\n")
    boot = GuestBoot(
        sandbox_id="sbx",
        name="sbx",
        engine="none",
        token=TOKEN,
        epoch="epoch",
        created_at=0.0,
        on_release="remove",
        grace=0.0,
        idle_timeout=None,
        default_timeout=None,
        python="p",
        runtime_dir="r",
        workdir=str(tmp_path),
        base_env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm"},
    )
    leases = Leases(epoch="e", boot_deadline=60, grace=60, idle_timeout=None, keep=True)
    path = str(tmp_path / "guest.sock")
    with a_spawner() as sock:
        async with (
            Spawner(sock) as spawner,
            UserWorker(spawner, "/usr/bin/python3") as worker,
            Followers() as followers,
        ):
            terminals = Terminals(spawner, worker, "epoch", config)
            guest = SimpleNamespace(
                boot=boot,
                memo=Memo(None),
                masks=None,
                config=config,
                leases=leases,
                terminals=terminals,
                table=ProcessTable(spawner, worker),
                followers=followers,
                births=Births(),
                next_request_id=lambda: "id",
            )
            server = HTTPServer(
                Application([(route, handler, {"guest": guest}) for route, handler in ROUTES])
            )
            listener = listen_at(path)
            listener.settimeout(0.0)
            server.add_socket(listener)
            made = Guest(path, leases, terminals)
            yield made
            for viewer in made.viewers:
                viewer.connection.close()
            made.transport.close()
            terminals.close()
            server.stop()
            await server.close_all_connections()
    leases.close()


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Guest]:
    async with serve(tmp_path) as made:
        yield made


async def code_of(call: Coroutine[Any, Any, object]) -> ErrorCode:
    with pytest.raises(SandcellError) as caught:
        await asyncio.wait_for(call, DEADLINE_S)
    return caught.value.code


# --- the noun


async def test_a_terminal_is_made_found_resized_and_ended(guest: Guest) -> None:
    made = await guest.create(("cat",), id="one", env={"X": None}, cols=100, rows=30)
    assert (made.id, made.command, made.cols, made.rows, made.status) == ("one", ("cat",), 100, 30, "running")
    found = await guest.transport.call(Request(method="GET", path=path_of("terminals")), list[TerminalInfo])
    assert found == [made]
    resize = encode_names(ResizeTerminal(cols=120, rows=40))
    assert b'"cols":120' in await guest.call("POST", "one", "resize", body=resize)
    bad = encode_names(ResizeTerminal(cols=0, rows=40))
    assert await code_of(guest.call("POST", "one", "resize", body=bad)) == ErrorCode.INVALID_ARGUMENT
    await guest.call("DELETE", "one")
    for verb in ("GET", "DELETE"):
        assert await code_of(guest.call(verb, "one")) == ErrorCode.NOT_FOUND


async def test_fifty_creates_of_one_id_make_one_terminal(guest: Guest) -> None:
    made = await asyncio.gather(*(guest.create(("cat",), id="one") for _ in range(50)))
    assert len({each.pid for each in made}) == 1
    assert await code_of(guest.create(("dog",), id="one")) == ErrorCode.EXISTS
    assert await code_of(guest.connect("two")) == ErrorCode.NOT_FOUND


async def test_what_it_is_typed_and_what_it_says_over_plain_http(guest: Guest) -> None:
    made = await guest.create('read line; echo "<$line>"')
    await guest.call("POST", made.id, "input", body=b"typed\xff\n")
    ended = await guest.call("GET", made.id, "wait", timeout="20")
    assert b'"cause":"exited"' in ended
    entries = list(FrameDecoder().feed(await guest.call("GET", made.id, "events")))
    assert b"<typed\xff>\r\n" in b"".join(each.data for each in entries)
    assert entries[-1].kind == Kind.ENDED
    assert await code_of(guest.call("POST", made.id, "input", body=b"x")) == ErrorCode.LOST


async def test_waits_are_bounded(guest: Guest) -> None:
    made = await guest.create(("cat",))
    assert await code_of(guest.call("GET", made.id, "wait", timeout="0.05")) == ErrorCode.WAIT_TIMEOUT
    assert await guest.call("GET", made.id, "events", follow="false", wait="0.05") == b""
    waiting = asyncio.ensure_future(guest.call("GET", made.id, "events", follow="false", wait="20"))
    await guest.call("POST", made.id, "input", body=b"x")
    assert b"x" in await waiting
    for wrong in ("-1", "inf", "soon"):
        code = await code_of(guest.call("GET", made.id, "wait", timeout=wrong))
        assert code == ErrorCode.INVALID_ARGUMENT


async def test_who_waits_and_goes_leaves_nothing(guest: Guest) -> None:
    made = await guest.create(("cat",))
    request = Request(method="GET", path=path_of("terminals", made.id, "events"))
    opened = await guest.transport.open(request)
    assert guest.terminals.get(made.id).viewers == 1
    opened.close()
    waiting = asyncio.ensure_future(guest.call("GET", made.id, "wait"))
    await guest.call("GET", made.id)
    waiting.cancel()
    async with asyncio.timeout(DEADLINE_S):
        while guest.terminals.get(made.id).viewers:
            await guest.call("GET", made.id)


# --- the WebSocket


async def test_several_viewers_see_and_type(guest: Guest) -> None:
    made = await guest.create(("cat",))
    first, second = await guest.connect(made.id), await guest.connect(made.id)
    assert first.greeting == {
        "note": "hello",
        "epoch": "epoch",
        "cursor": "epoch.0.0",
        "live": "epoch.0.0",
        "cols": 80,
        "rows": 24,
    }
    await first.type(b"one\n")
    await second.until(b"one\r\none\r\n")
    await second.type(b"two\n")
    await first.until(b"one\r\none\r\ntwo\r\ntwo\r\n")
    assert b'"viewers":2' in await guest.call("GET", made.id)
    await first.type(b"\x04")
    for viewer, left in ((first, b""), (second, b"two\r\ntwo\r\n")):
        assert await viewer.rest() == left
        assert viewer.entries[-1].kind == Kind.ENDED
        assert viewer.connection.close_code == 1000


async def test_a_viewer_sees_the_end_of_one_that_is_deleted(guest: Guest) -> None:
    made = await guest.create(("cat",))
    viewer = await guest.connect(made.id)
    assert b'"cause":"killed"' in await guest.call("DELETE", made.id)
    await viewer.rest()
    assert viewer.entries[-1].kind == Kind.ENDED
    assert viewer.connection.close_code == 1000


async def test_a_frame_that_is_too_large_closes_the_connection(guest: Guest) -> None:
    viewer = await guest.connect((await guest.create(("cat",))).id)
    with suppress(WebSocketClosedError):  # while it is still on its way
        await viewer.type(bytes(2**20 + 1))
    await viewer.rest()
    assert viewer.connection.close_code in {1009, None}


async def test_a_cursor_gives_exactly_the_rest(guest: Guest) -> None:
    made = await guest.create(("cat",))
    viewer = await guest.connect(made.id)
    await viewer.type(b"one\n")
    await viewer.until(b"one\r\none\r\n")
    viewer.connection.close()
    other = await guest.connect(made.id)
    await guest.call("POST", made.id, "input", body=b"two\n")
    await other.until(b"one\r\none\r\ntwo\r\ntwo\r\n")
    again = await guest.connect(made.id, cursor=viewer.cursor)
    assert again.greeting["cursor"] == viewer.cursor
    assert again.greeting["live"] > viewer.cursor
    await again.type(b"\x04")
    assert await again.rest() == b"two\r\ntwo\r\n"
    late = await guest.connect(made.id)
    assert await late.rest() == b"one\r\none\r\ntwo\r\ntwo\r\n"
    assert await code_of(guest.connect(made.id, cursor="other.1.1")) == ErrorCode.STALE_CURSOR


async def test_a_viewer_resizes(guest: Guest) -> None:
    made = await guest.create("trap 'stty size' WINCH; echo on; while :; do sleep 0.05; done")
    viewer = await guest.connect(made.id)
    await viewer.until(b"on\r\n")
    await viewer.note(note="resize", cols=132, rows=43)
    await viewer.until(b"43 132\r\n")
    await viewer.note(note="resize", cols=0, rows=43)
    while not viewer.notes:
        await viewer.take()
    assert viewer.notes[0]["note"] == "refused"
    assert viewer.notes[0]["error"]["code"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "text", ["resize", "{}", '{"note": "resize", "cols": "a", "rows": 1}', '{"note": "x"}']
)
async def test_what_is_no_note_closes_the_connection(guest: Guest, text: str) -> None:
    viewer = await guest.connect((await guest.create(("cat",))).id)
    await viewer.connection.write_message(text)
    await viewer.rest()
    assert viewer.connection.close_code == 1007


async def test_a_viewer_is_a_lease_and_counts(guest: Guest) -> None:
    held = guest.leases
    made = await guest.create(("cat",))
    viewer = await guest.connect(made.id)
    assert held._held == 1  # pyright: ignore[reportPrivateUsage] -- what it counts has no name outside
    viewer.connection.close()
    async with asyncio.timeout(DEADLINE_S):
        while held._held:  # pyright: ignore[reportPrivateUsage]
            await guest.call("GET", made.id)


async def test_a_viewer_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    async with serve(tmp_path, journal_terminal=2**15) as guest:
        made = await guest.create("stty -opost; read go; seq 1 400000; echo end")
        stuck, other = await guest.connect(made.id), await guest.connect(made.id)
        await other.type(b"go\n")
        await other.until(b"400000\nend\n")
        await other.rest()
        assert (await stuck.rest()).endswith(b"399999\n400000\nend\n")
        assert [each.kind for each in stuck.entries].count(Kind.GAP) == 1
        gap = next(each for each in stuck.entries if each.kind == Kind.GAP)
        seen = sum(len(each.data) for each in stuck.entries if each.kind != Kind.GAP)
        assert seen + json.loads(gap.data)["bytes"] == stuck.entries[-1].offset


async def test_a_flood_of_input_waits_for_the_program(tmp_path: Path) -> None:
    size = 3 * 2**20
    async with serve(tmp_path) as guest:
        made = await guest.create(f"stty raw -echo; echo on; head -c {size} | cksum")
        viewer = await guest.connect(made.id)
        await viewer.until(b"on\n")
        for _ in range(size // 2**15):
            await viewer.type(bytes(2**15))
        assert (await viewer.rest()).split()[1] == b"%d" % size
        assert viewer.notes == []


async def test_input_that_nothing_reads_is_told_as_dropped(tmp_path: Path) -> None:
    async with serve(tmp_path, input_timeout=0.2) as guest:
        made = await guest.create("stty raw -echo; echo on; exec sleep 60")
        viewer = await guest.connect(made.id)
        await viewer.until(b"on\n")
        await viewer.type(bytes(2**20))
        while not viewer.notes:
            await viewer.take()
        assert viewer.notes[0]["error"]["code"] == "BUSY"
        assert 0 < viewer.notes[0]["error"]["details"]["written"] < 2**20


# --- top


async def test_top_tells_whose_each_process_is(guest: Guest) -> None:
    made = await guest.create("mkfifo fifo; sh -c 'echo on; read x <fifo' & exec cat", id="mine")
    viewer = await guest.connect("mine")
    await viewer.until(b"on\r\n")
    await viewer.type(b"x\n")
    await viewer.until(b"x\r\nx\r\n")
    found = await guest.transport.call(Request(method="GET", path=path_of("top")), list[OsProcess])
    assert sorted((each.command, each.owner) for each in found) == [
        ("cat", "mine"),
        ("sh -c echo on; read x <fifo", "mine"),
    ]
    assert made.pid in {each.pid for each in found}
