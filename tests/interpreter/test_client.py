"""The client against a guest that is played: what is sent again, what is resumed, and what is missed how."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sandcell.client.aio.follow import AsyncFollower
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.blocking.transport import Transport
from sandcell.client.protocol import Address, Request
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Entry, Kind, encode_entry
from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Turn = Callable[["Talk"], Awaitable[None]]

FRAMES = "application/vnd.sandcell.journal"
GET = Request(method="GET", path="/v1/x")
INPUT = Request(method="POST", path="/v1/x/input", repeatable=False)


class Talk:
    """One connection as the played guest sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> str:
        """Read one request with its body; returns its first line."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.lower().split("\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
        await self.reader.readexactly(length)
        return head.split("\r\n")[0]

    def answer(self, body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
        self.writer.write(head + body)

    def begin_frames(self) -> None:
        self.writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {FRAMES}\r\nSandcell-Epoch: e1\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )

    def frames(self, *entries: Entry) -> None:
        data = b"".join(map(encode_entry, entries))
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end_frames(self) -> None:
        self.writer.write(b"0\r\n\r\n")


class Played:
    """A guest that plays one turn for each connection, and keeps what it was asked."""

    def __init__(self, path: str, turns: list[Turn]) -> None:
        self.address = Address(path=path)
        self.asked: list[str] = []
        self.connections = 0
        self._turns = turns

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = self._turns[min(self.connections, len(self._turns) - 1)]
        self.connections += 1
        try:
            await turn(_Noting(reader, writer, self.asked))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


class _Noting(Talk):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> None:
        super().__init__(reader, writer)
        self._asked = asked

    async def request(self) -> str:
        line = await super().request()
        self._asked.append(line)
        return line


@asynccontextmanager
async def played(tmp_path: Path, *turns: Turn) -> AsyncGenerator[Played]:
    guest = Played(str(tmp_path / "s"), list(turns))
    with connect_address(guest.address.path) as address:
        server = await asyncio.start_unix_server(guest.serve, address)
    async with server:
        yield guest
    with suppress(FileNotFoundError):
        os.unlink(guest.address.path)


@asynccontextmanager
async def client(guest: Played, **options: Any) -> AsyncGenerator[AsyncTransport]:
    given: dict[str, Any] = {"connect_timeout": 5.0, "reply_timeout": 5.0}
    transport = AsyncTransport(guest.address, "token", **given | options)
    try:
        yield transport
    finally:
        transport.close()


async def answer_for_ever(talk: Talk) -> None:
    while True:
        await talk.request()
        talk.answer()


async def answer_once(talk: Talk) -> None:
    await talk.request()
    talk.answer()


async def hang_up(talk: Talk) -> None:
    await talk.request()


async def say_nothing(talk: Talk) -> None:
    await talk.request()
    await talk.reader.read()


async def refused(transport: AsyncTransport, request: Request) -> SandcellError:
    with pytest.raises(SandcellError) as caught:
        await transport.fetch(request)
    return caught.value


def line(seq: int, text: bytes = b"x") -> Entry:
    return Entry(seq, seq * 10, Kind.STDOUT, 0, 0.0, text)


def ended(seq: int) -> Entry:
    return Entry(seq, seq * 10, Kind.ENDED, 0, 0.0, b"{}")


# --- connections


async def test_one_connection_serves_one_request_after_another(tmp_path: Path) -> None:
    async with played(tmp_path, answer_for_ever) as guest, client(guest) as transport:
        for _ in range(5):
            assert await transport.fetch(GET) == b"{}"
        assert guest.connections == 1


async def test_a_kept_connection_that_was_closed_is_replaced(tmp_path: Path) -> None:
    async with played(tmp_path, answer_once, answer_for_ever) as guest, client(guest) as transport:
        await transport.fetch(GET)
        await transport.fetch(INPUT)
        assert guest.connections == 2


async def test_a_socket_may_lie_deep_down(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    async with played(deep, answer_for_ever) as guest, client(guest) as transport:
        assert await transport.fetch(GET) == b"{}"


async def test_a_guest_whose_backlog_is_full_is_waited_for(tmp_path: Path) -> None:
    """A unix socket then refuses to connect without waiting, unlike TCP."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            transport = AsyncTransport(Address(path=path), "t", connect_timeout=0.1, reply_timeout=5)
            assert (await refused(transport, GET)).code is ErrorCode.UNREACHABLE
            patient = AsyncTransport(Address(path=path), "t", connect_timeout=5, reply_timeout=5)
            connecting = asyncio.create_task(patient.connect())
            await asyncio.wait({connecting}, timeout=0)
            listener.accept()[0].close()
            (await connecting).close()


async def test_requests_at_the_same_time_have_connections_of_their_own(tmp_path: Path) -> None:
    async with played(tmp_path, answer_for_ever) as guest, client(guest) as transport:
        await asyncio.gather(*(transport.fetch(GET) for _ in range(8)))
        assert len(guest.asked) == 8


async def test_the_same_transport_serves_several_loops_and_threads(tmp_path: Path) -> None:
    async with played(tmp_path, answer_for_ever) as guest, client(guest) as transport:
        await transport.fetch(GET)
        bodies = await asyncio.gather(
            *(asyncio.to_thread(asyncio.run, transport.fetch(GET)) for _ in range(4))
        )
        assert bodies == [b"{}"] * 4


# --- what is sent again


async def test_a_request_that_may_be_repeated_is(tmp_path: Path) -> None:
    async with played(tmp_path, hang_up, answer_for_ever) as guest, client(guest) as transport:
        assert await transport.fetch(GET) == b"{}"
        assert guest.connections == 2


async def test_a_request_that_may_not_be_repeated_is_not(tmp_path: Path) -> None:
    async with played(tmp_path, hang_up, answer_for_ever) as guest, client(guest) as transport:
        problem = await refused(transport, INPUT)
        assert problem.code is ErrorCode.UNREACHABLE
        assert problem.details == {"admitted": "unknown"}
        assert [each for each in guest.asked if "health" not in each] == ["POST /v1/x/input HTTP/1.1"]


async def test_a_guest_that_always_hangs_up_is_given_up(tmp_path: Path) -> None:
    async with played(tmp_path, hang_up) as guest, client(guest) as transport:
        problem = await refused(transport, GET)
        assert problem.code is ErrorCode.UNREACHABLE
        assert len([each for each in guest.asked if "health" not in each]) == 3


async def test_nothing_that_listens_is_a_sandbox_that_is_gone(tmp_path: Path) -> None:
    transport = AsyncTransport(Address(path=str(tmp_path / "no")), "t", connect_timeout=5, reply_timeout=5)
    problem = await refused(transport, GET)
    assert problem.code is ErrorCode.SANDBOX_GONE
    assert problem.details == {"admitted": False}


async def test_a_guest_that_dies_over_a_request_is_gone_and_nobody_knows_what_it_did(tmp_path: Path) -> None:
    async def die(talk: Talk) -> None:
        await talk.request()
        (tmp_path / "s").unlink()

    async with played(tmp_path, die) as guest, client(guest) as transport:
        problem = await refused(transport, GET)
        assert problem.code is ErrorCode.SANDBOX_GONE
        assert problem.details == {"admitted": "unknown"}


async def test_a_guest_that_takes_one_more_call_while_it_dies_is_gone(tmp_path: Path) -> None:
    async def die(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        (tmp_path / "s").unlink()

    async with played(tmp_path, hang_up, die) as guest, client(guest) as transport:
        problem = await refused(transport, INPUT)
        assert problem.code is ErrorCode.SANDBOX_GONE
        assert transport.ended


async def test_a_guest_that_is_silent_is_unreachable_at_its_deadline(tmp_path: Path) -> None:
    async with played(tmp_path, say_nothing) as guest, client(guest, reply_timeout=0.05) as transport:
        problem = await refused(transport, GET)
        assert problem.code is ErrorCode.UNREACHABLE
        assert problem.details == {"admitted": "unknown"}
        assert guest.connections == 1


async def test_an_error_of_the_guest_is_raised_as_it_was_said(tmp_path: Path) -> None:
    async def refuse(talk: Talk) -> None:
        await talk.request()
        talk.answer(b'{"error": {"code": "EXISTS", "message": "m", "hint": "h"}}', status="409 Conflict")

    async with played(tmp_path, refuse) as guest, client(guest) as transport:
        problem = await refused(transport, GET)
        assert (problem.code, problem.message, problem.hint) == (ErrorCode.EXISTS, "m", "h")


async def test_a_refusal_in_the_middle_of_an_upload_is_heard(tmp_path: Path) -> None:
    async def refuse(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        talk.answer(
            b'{"error": {"code": "NO_SPACE", "message": "full"}}',
            status="507 Full",
            headers="Connection: close\r\n",
        )
        await talk.writer.drain()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 2**16

    async with played(tmp_path, refuse) as guest, client(guest) as transport:
        with pytest.raises(SandcellError) as caught:
            await transport.open(Request(method="PUT", path="/v1/files", streamed=True), chunks=endless())
        assert caught.value.code is ErrorCode.NO_SPACE


async def test_a_local_error_in_an_upload_is_not_mistaken_for_the_guest(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise FileNotFoundError("local")

    async with played(tmp_path, say_nothing) as guest, client(guest) as transport:
        with pytest.raises(FileNotFoundError):
            await transport.open(Request(method="PUT", path="/v1/files", streamed=True), chunks=broken())


# --- streams


async def follow(transport: AsyncTransport, again: Request | None = GET) -> list[int]:
    follower = AsyncFollower(transport, Request(method="POST", path="/v1/executions"), again)
    return [followed.entry.seq async for followed in follower.entries()]


async def test_a_stream_that_is_cut_goes_on_from_its_cursor(tmp_path: Path) -> None:
    async def first(talk: Talk) -> None:
        await talk.request()
        talk.begin_frames()
        talk.frames(line(1), line(2))
        await talk.writer.drain()

    async def second(talk: Talk) -> None:
        await talk.request()
        talk.begin_frames()
        talk.frames(line(3), ended(4))
        talk.end_frames()
        await talk.reader.read()

    async with played(tmp_path, first, second) as guest, client(guest) as transport:
        assert await follow(transport) == [1, 2, 3, 4]
        assert guest.asked == ["POST /v1/executions HTTP/1.1", "GET /v1/x?cursor=e1.2.20 HTTP/1.1"]


async def test_a_stream_that_ends_without_an_end_is_no_success(tmp_path: Path) -> None:
    async def endless(talk: Talk) -> None:
        while True:
            await talk.request()
            talk.begin_frames()
            talk.end_frames()

    async with played(tmp_path, endless) as guest, client(guest) as transport:
        with pytest.raises(SandcellError) as caught:
            await follow(transport)
        assert caught.value.code is ErrorCode.UNREACHABLE
        assert caught.value.details == {"admitted": True}


async def test_an_error_in_a_stream_is_raised(tmp_path: Path) -> None:
    async def fail(talk: Talk) -> None:
        await talk.request()
        talk.begin_frames()
        body = b'{"error": {"code": "CONTEXT_DIED", "message": "dead"}}'
        talk.frames(line(1), Entry(2, 0, Kind.ERROR, 0, 0.0, body))
        talk.end_frames()
        await talk.reader.read()

    async with played(tmp_path, fail) as guest, client(guest) as transport:
        with pytest.raises(SandcellError) as caught:
            await follow(transport)
        assert caught.value.code is ErrorCode.CONTEXT_DIED


async def test_a_followed_stream_gives_its_connection_back(tmp_path: Path) -> None:
    async def serve(talk: Talk) -> None:
        while True:
            await talk.request()
            talk.begin_frames()
            talk.frames(ended(1))
            talk.end_frames()

    async with played(tmp_path, serve) as guest, client(guest) as transport:
        for _ in range(3):
            assert await follow(transport) == [1]
        assert guest.connections == 1


async def test_a_follower_that_is_left_closes_its_connection(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def serve(talk: Talk) -> None:
        await talk.request()
        talk.begin_frames()
        talk.frames(line(1))
        await talk.reader.read()
        left.set()

    async with played(tmp_path, serve) as guest, client(guest) as transport:
        entries = AsyncFollower(transport, GET, GET).entries()
        assert (await anext(entries)).entry.seq == 1
        await entries.aclose()
        await left.wait()


async def test_a_deadline_ends_a_stream_that_says_no_more(tmp_path: Path) -> None:
    async def serve(talk: Talk) -> None:
        await talk.request()
        talk.begin_frames()
        talk.frames(line(1))
        await talk.reader.read()

    async with played(tmp_path, serve) as guest, client(guest) as transport:
        follower = AsyncFollower(transport, GET, GET)
        with pytest.raises(SandcellError) as caught:
            async for _ in follower.entries():
                follower.deadline = time.monotonic() + 0.05
        assert caught.value.code is ErrorCode.UNREACHABLE


# --- processes


async def test_a_forked_child_holds_no_connection_of_its_parent(tmp_path: Path) -> None:
    async with played(tmp_path, answer_for_ever) as guest:
        transport = Transport(guest.address, "token", connect_timeout=5.0, reply_timeout=5.0)
        await asyncio.to_thread(transport.fetch, GET)
        assert connections_to(guest.address) == 1
        assert await asyncio.to_thread(connections_of_a_child, guest.address) == 0
        await asyncio.to_thread(transport.fetch, GET)
        assert guest.connections == 1
        transport.close()


def connections_of_a_child(address: Address) -> int:
    child = os.fork()
    if child == 0:
        os._exit(connections_to(address))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def connections_to(address: Address) -> int:
    """How many descriptors of this process are connections to `address`."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copy:
            count += copy.getpeername() == address.path
    return count


# --- a guest that ends under a request


class CountingWaker:
    """Holds its sandbox, and counts how often it was asked to start that again."""

    is_holding = True

    def __init__(self) -> None:
        self.wakes = 0

    async def wake(self) -> None:
        self.wakes += 1

    async def ended(self) -> None:
        return None

    async def is_paused(self) -> bool:
        return False


class PausedWaker(CountingWaker):
    """Knows that its sandbox is held still."""

    async def is_paused(self) -> bool:
        return True


async def take_and_leave(talk: Talk) -> None:
    await talk.request()


async def say_that_it_ends(talk: Talk) -> None:
    await talk.request()
    body = b'{"error": {"code": "SANDBOX_GONE", "message": "the sandbox is just ending", "details": {"admitted": false}}}'
    talk.answer(body, status="410 Gone")


async def test_what_may_have_been_taken_starts_no_sandbox_again(tmp_path: Path) -> None:
    async with played(tmp_path, take_and_leave, say_that_it_ends) as guest, client(guest) as transport:
        waker = transport.waker = CountingWaker()
        with pytest.raises(SandcellError) as caught:
            await transport.open(GET)
        assert (caught.value.code, waker.wakes) == (ErrorCode.SANDBOX_GONE, 0)
        assert caught.value.details["admitted"] == "unknown"


async def answer_nothing(talk: Talk) -> None:
    await talk.request()
    await talk.reader.read()


@pytest.mark.parametrize("patience", [0.01, 1000.0], ids=["late", "long before its deadline"])
async def test_a_paused_guest_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr("sandcell.client.aio.transport._QUIET_S", 0.05)
    async with played(tmp_path, answer_nothing) as guest, client(guest) as transport:
        transport.waker = PausedWaker()
        with pytest.raises(SandcellError, match="paused") as caught:
            await transport.open(replace(GET, patience=patience))
        assert caught.value.code is ErrorCode.UNREACHABLE
        assert caught.value.details == {"admitted": "unknown", "paused": True}
        assert transport.paused


async def test_what_was_surely_not_taken_does(tmp_path: Path) -> None:
    async with played(tmp_path, say_that_it_ends, answer_for_ever) as guest, client(guest) as transport:
        waker = transport.waker = CountingWaker()
        (await transport.open(GET)).close()
        assert waker.wakes == 1
