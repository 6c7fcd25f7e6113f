"""The link of the kernel process and the WebSocket of the guest, against each other over a unix socket."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import Resolver
from tornado.web import Application
from tornado.websocket import WebSocketClientConnection, websocket_connect

from sandcell.api import CreateFront
from sandcell.config import Config
from sandcell.front_link import FrontLink
from sandcell.guest.followers import Followers
from sandcell.guest.front_handlers import FrontChannels, FrontHandler, FrontsHandler
from sandcell.guest.fronts import Fronts, Rooms
from sandcell.guest.leases import Leases
from sandcell.guest_address import GuestAddress
from sandcell.languages import LANGUAGES
from sandcell_container.engine import Address
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Kind
from sandcell_container.memo import Memo
from sandcell_container.unix_address import listen_at
from sandcell_kernel.websocket import (
    FRONT_SUBPROTOCOL,
    V1_SUBPROTOCOL,
    pack_default,
    pack_v1,
    unpack_default,
    unpack_v1,
)
from sandcell_kernel.wire import ChannelMessage, new_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from sandcell.guest.front import Front
    from sandcell.runs import RunListener
    from sandcell_kernel.wire import Channel, Message

TOKEN = "secret"


class FakeContext:
    id = "python"
    language = "python"
    speaks = LANGUAGES[0]

    async def kernel_info(self) -> dict[str, Any]:
        return {"language_info": {"name": "python"}}

    def send(self, channel: Channel, message: Message, listener: RunListener) -> None:
        """Answer a history request at once."""
        for said, kind, content in (
            ("iopub", "status", {"execution_state": "busy"}),
            ("shell", "history_reply", {"status": "ok"}),
            ("iopub", "status", {"execution_state": "idle"}),
        ):
            answer = new_message(kind, content, session="inner", parent=message.header)
            listener.on_message(cast("Channel", said), answer)


class Guest:
    """The routes of fronts on a unix socket, and a front."""

    def __init__(
        self, path: Path, fronts: Fronts, front: Front, leases: Leases, followers: Followers
    ) -> None:
        self.path = path
        self.fronts = fronts
        self.front = front
        self.leases = leases
        boot = SimpleNamespace(token=TOKEN)
        guest = SimpleNamespace(
            fronts=fronts,
            boot=boot,
            memo=Memo(None),
            masks=None,
            leases=leases,
            followers=followers,
            config=Config(),
        )
        given = {"guest": guest}
        self.server = HTTPServer(
            Application(
                [
                    ("/v1/fronts", FrontsHandler, given),
                    ("/v1/fronts/([^/]+)", FrontHandler, given),
                    ("/v1/fronts/([^/]+)/channels", self._make_channels(), given),
                ]
            )
        )
        listener = listen_at(str(path))
        listener.settimeout(0.0)
        self.server.add_socket(listener)

    def _make_channels(self) -> type[FrontChannels]:
        opened = self._opened = list[FrontChannels]()

        class Breakable(FrontChannels):
            def open(self, *args: str, **kwargs: str) -> None:
                opened.append(self)
                super().open(*args, **kwargs)

        return Breakable

    def break_connections(self) -> None:
        """Cut every WebSocket, without a goodbye."""
        for each in self._opened:
            if each.ws_connection is not None:
                each.ws_connection._abort()  # pyright: ignore[reportPrivateUsage] -- a cut has no public name
        self._opened.clear()

    def say(self, number: int) -> None:
        """Add a message to what the front end is to get."""
        message = new_message("stream", {"n": number}, session="front")
        self.front.journal.append(Kind.MESSAGE, pack_v1("iopub", message))

    async def close(self) -> None:
        self.server.stop()
        await self.server.close_all_connections()


@asynccontextmanager
async def serve(path: Path, **settings: Any) -> AsyncGenerator[Guest]:
    async def default(language: str) -> FakeContext:
        return FakeContext()

    rooms = Rooms(
        contexts=cast(Any, SimpleNamespace(default=default)),
        executions=cast(Any, None),
        worker=cast(Any, None),
    )
    leases = Leases(epoch="e", boot_deadline=60, grace=60, idle_timeout=None, keep=True)
    async with (
        Followers() as followers,
        Fronts(rooms, epoch="e", version="1", config=Config(**settings)) as fronts,
    ):
        guest = Guest(path, fronts, await fronts.create(CreateFront(id="front")), leases, followers)
        yield guest
        await guest.close()
    leases.close()


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Guest]:
    async with serve(tmp_path / "guest.sock") as made:
        yield made


class Host:
    """A link, and what it was told."""

    def __init__(self, path: Path, *, front_id: str = "front", token: str = TOKEN) -> None:
        self.told: asyncio.Queue[object] = asyncio.Queue()
        self.link = FrontLink(
            GuestAddress(Address(path=str(path)), token, 5),
            front_id,
            max_message=2**26,
            on_open=lambda: self.told.put_nowait("open"),
            on_message=lambda channel, message: self.told.put_nowait(ChannelMessage(channel, message)),
            on_gap=lambda entries: self.told.put_nowait(("gap", entries)),
            on_close=lambda: self.told.put_nowait("close"),
        )

    async def until(self, last: object) -> list[object]:
        """Return what was told, messages as their numbers, up to and with `last`."""
        found: list[object] = []
        async with asyncio.timeout(5):
            while last not in found:
                found.append(_plain(await self.told.get()))
        return found


def _plain(told: object) -> object:
    if not isinstance(told, ChannelMessage):
        return told
    return told.message.body().get("n") or told.message.body().get("status") or told.message.msg_type


@asynccontextmanager
async def linked(path: Path) -> AsyncGenerator[Host]:
    host = Host(path)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(host.link.run())
        yield host
        running.cancel()


async def test_messages_travel_both_ways(guest: Guest) -> None:
    guest.say(1)
    async with linked(guest.path) as host:
        assert set(await host.until(1)) == {"open", 1}
        assert guest.front.connections == 1
        host.link.send("shell", new_message("history_request", {}, session="client"))
        assert "ok" in await host.until("ok")
        guest.say(2)
        await host.until(2)
    assert guest.front.connections == 0


async def test_a_broken_connection_is_taken_up_where_it_broke(guest: Guest) -> None:
    async with linked(guest.path) as host:
        guest.say(1)
        await host.until(1)
        guest.break_connections()
        guest.say(2)
        guest.say(3)
        told = await host.until(3)
        assert [each for each in told if isinstance(each, int)] == [2, 3]
        assert told[0] == "close"


async def test_whatever_is_cut_arrives_once_and_in_order(guest: Guest) -> None:
    found = list[object]()
    async with linked(guest.path) as host:
        for number in range(1, 201):
            guest.say(number)
            if number % 20 == 0:  # some of what was said is on its way
                found += await host.until(number - 10)
                guest.break_connections()
        found += await host.until(200)
    assert [each for each in found if isinstance(each, int)] == list(range(1, 201))
    assert found.count("close") >= 5


async def test_a_guest_that_is_gone_ends_the_link(guest: Guest) -> None:
    host = Host(guest.path)

    async def stop() -> None:
        await host.until("open")
        guest.server.stop()
        guest.break_connections()

    with pytest.raises(SandcellError) as caught:
        await asyncio.gather(host.link.run(), stop())
    assert caught.value.code == ErrorCode.SANDBOX_GONE
    assert "restart the kernel" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"token": "wrong"}, ErrorCode.UNAUTHENTICATED), ({"front_id": "other"}, ErrorCode.NOT_FOUND)],
)
async def test_a_refusal_says_why(guest: Guest, changes: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(SandcellError) as caught:
        await Host(guest.path, **changes).link.run()
    assert caught.value.code == code


async def test_a_deleted_front_ends_the_link(guest: Guest) -> None:
    host = Host(guest.path)

    async def delete() -> None:
        await host.until("open")
        guest.fronts.delete("front")

    with pytest.raises(SandcellError, match="NOT_FOUND"):
        await asyncio.gather(host.link.run(), delete())


async def test_what_is_no_longer_kept_is_told(tmp_path: Path) -> None:
    async with serve(tmp_path / "guest.sock", journal_memory=1, journal_disk=0) as guest:
        for number in (1, 2, 3):
            guest.say(number)
        async with linked(guest.path) as host:
            told = await host.until(3)
            assert ("gap", 2) in told
            assert 2 not in told


# --- clients that are not ours


class _UnixResolver(Resolver):
    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(self, host: str, port: int, family: Any = 0) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._path)]


async def connect(guest: Guest, *subprotocols: str, query: str = "") -> WebSocketClientConnection:
    return await websocket_connect(
        HTTPRequest(f"ws://sandbox/v1/fronts/front/channels?token={TOKEN}{query}"),
        subprotocols=list(subprotocols) or None,
        resolver=_UnixResolver(path=str(guest.path)),
    )


async def closed_with(connection: WebSocketClientConnection) -> int | None:
    async with asyncio.timeout(5):
        while await connection.read_message() is not None:
            pass
    connection.close()
    return connection.close_code


async def test_the_v1_framing_is_for_third_parties(guest: Guest) -> None:
    guest.say(1)  # before it came
    connection = await connect(guest, "x", V1_SUBPROTOCOL)
    assert connection.selected_subprotocol == V1_SUBPROTOCOL
    asked = new_message("history_request", {}, session="client")
    await connection.write_message(pack_v1("shell", asked), binary=True)
    got = [unpack_v1(cast(bytes, await connection.read_message())) for _ in range(3)]
    assert [message.msg_type for _, message in got] == ["status", "history_reply", "status"]
    assert got[1].channel == "shell"
    connection.close()


async def test_a_front_end_that_shuts_down_gets_its_answer(guest: Guest) -> None:
    connection = await connect(guest, V1_SUBPROTOCOL)
    asked = new_message("shutdown_request", {"restart": False}, session="client")
    await connection.write_message(pack_v1("control", asked), binary=True)
    got = [unpack_v1(cast(bytes, await connection.read_message())) for _ in range(4)]
    kinds = [(channel, message.msg_type) for channel, message in got]
    assert kinds[1:3] == [("control", "shutdown_reply"), ("iopub", "shutdown_reply")]
    assert await closed_with(connection) == 1001


async def test_a_client_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    async with serve(tmp_path / "guest.sock") as guest:
        with socket.socket(socket.AF_UNIX) as stuck:
            stuck.settimeout(0.0)
            stuck.connect(str(guest.path))
            ask = (
                f"GET /v1/fronts/front/channels?token={TOKEN} HTTP/1.1\r\nHost: sandbox\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
                f"Sec-WebSocket-Protocol: {FRONT_SUBPROTOCOL}\r\n\r\n"
            )
            await asyncio.get_running_loop().sock_sendall(stuck, ask.encode())
            async with linked(guest.path) as host:
                await host.until("open")
                for number in range(1, 33):
                    message = new_message("stream", {"n": number, "text": "x" * 2**18}, session="front")
                    guest.front.journal.append(Kind.MESSAGE, pack_v1("iopub", message))
                assert 32 in await host.until(32)
                assert guest.front.connections == 2


async def test_the_default_framing_is_for_clients_without_a_subprotocol(guest: Guest) -> None:
    connection = await connect(guest)
    assert connection.selected_subprotocol is None
    asked = new_message("history_request", {}, session="client", buffers=[b"\xff"])
    await connection.write_message(pack_default("shell", asked), binary=True)
    got = [unpack_default(cast(str, await connection.read_message())) for _ in range(3)]
    assert got[1].message.parent_id == asked.msg_id
    connection.close()


async def test_one_that_falls_behind_is_cut_off_where_it_cannot_be_told(tmp_path: Path) -> None:
    async with serve(tmp_path / "guest.sock", journal_memory=1, journal_disk=0) as guest:
        start = guest.front.journal.cursor
        for number in (1, 2, 3):
            guest.say(number)
        connection = await connect(guest, V1_SUBPROTOCOL, query=f"&cursor={start}")
        assert await closed_with(connection) == 1013


@pytest.mark.parametrize(
    ("subprotocol", "frame"),
    [
        (V1_SUBPROTOCOL, b"nonsense"),
        (FRONT_SUBPROTOCOL, b""),
        (V1_SUBPROTOCOL, "text"),
        ("", "[]"),
        ("", b""),
    ],
)
async def test_a_frame_that_is_no_message_closes_the_connection(
    guest: Guest, subprotocol: str, frame: str | bytes
) -> None:
    connection = await connect(guest, *filter(None, [subprotocol]))
    await connection.write_message(frame, binary=isinstance(frame, bytes))
    assert await closed_with(connection) == 1007


async def test_a_cursor_of_another_guest_is_refused(guest: Guest) -> None:
    with pytest.raises(HTTPClientError) as caught:
        await connect(guest, query="&cursor=other.1.2")
    assert caught.value.code == 400
    assert caught.value.response is not None
    assert json.loads(caught.value.response.body)["error"]["code"] == "STALE_CURSOR"
