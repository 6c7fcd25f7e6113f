"""The guest's server where a request is none, is half one, or is one too many: each hears why, in our form."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from http.client import HTTPResponse
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from sandcell.config import Config
from sandcell.guest.app import make_server
from sandcell.guest.connections import Connections
from sandcell_container.memo import Memo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tornado.httpserver import HTTPServer

    from sandcell.guest.connections import GuestStream
    from sandcell.guest.state import Guest

PATIENCE = 0.3
HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer t\r\n\r\n"
POST = b"POST /v1/exec HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer t\r\n"


class Answer(NamedTuple):
    status: int
    body: Any
    closes: bool

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Peer:
    """Another program's end of a connection."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(0.0)
        self.sock.connect(path)
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(10):
            await self._loop.sock_sendall(self.sock, data)

    async def ask(self, request: bytes = HEALTH) -> Answer:
        """Send a request and return its answer, which comes in one piece; the connection stays open."""
        await self.send(request)
        async with asyncio.timeout(10):
            return _parse(await self._loop.sock_recv(self.sock, 2**16))

    async def last_words(self) -> Answer | None:
        """Return what is said before the connection is closed from there, None where that is nothing."""
        said = b""
        async with asyncio.timeout(10):
            while piece := await self._loop.sock_recv(self.sock, 2**16):
                said += piece
        return _parse(said) if said else None

    async def is_open(self) -> bool:
        return (await self.ask()).status == 200


def _parse(said: bytes) -> Answer:
    class Said:
        def makefile(self, _: str) -> BytesIO:
            return BytesIO(said)

    answer = HTTPResponse(cast("Any", Said()))
    answer.begin()
    return Answer(answer.status, json.loads(answer.read()), answer.will_close)


class House:
    """A server, and the way to it."""

    def __init__(self, path: str, server: HTTPServer) -> None:
        self.path = path
        self._server = server
        self._peers: list[Peer] = []

    def connect(self) -> Peer:
        self._peers.append(Peer(self.path))
        return self._peers[-1]

    async def say(self, request: bytes) -> Answer:
        """Say something on a connection of its own, and return what comes back before that is closed."""
        peer = self.connect()
        await peer.send(request)
        answer = await peer.last_words()
        assert answer is not None
        return answer

    async def close(self) -> None:
        for each in self._peers:
            each.sock.close()
        await self._server.close_all_connections()


@asynccontextmanager
async def a_house(tmp_path: Path, *, most: int = 10) -> AsyncGenerator[House]:
    boot = SimpleNamespace(token="t", sandbox_id="s")
    leases = SimpleNamespace(is_over=False)
    guest = SimpleNamespace(
        config=Config(), boot=boot, memo=Memo(None), masks=None, leases=leases, next_request_id=lambda: "r"
    )
    server = make_server(cast("Guest", guest))
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(50)
        with Connections(listener, server, most=most, patience=PATIENCE):
            house = House(path, server)
            yield house
            await house.close()


# --- what is no request

NO_REQUEST = {
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "no host": b"GET /v1/health HTTP/1.1\r\n\r\n",
    "no version": b"GET /v1/health\r\n\r\n",
    "a header that is none": b"GET / HTTP/1.1\r\nHost: s\r\nno colon\r\n\r\n",
    "a length that is none": POST + b"Content-Length: many\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "both lengths": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a coding that nobody knows": POST + b"Transfer-Encoding: zip\r\n\r\n",
    "a chunk without a size": POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
}


@pytest.mark.parametrize("case", NO_REQUEST)
async def test_what_is_no_request_hears_so_in_our_form(tmp_path: Path, case: str) -> None:
    async with a_house(tmp_path) as house:
        answer = await house.say(NO_REQUEST[case])
        assert (answer.status, answer.code, answer.closes) == (400, "INVALID_ARGUMENT", True)
        assert answer.body["error"]["hint"]
        assert await house.connect().is_open()


async def test_a_head_that_never_ends_is_too_large(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        answer = await house.say(b"GET / HTTP/1.1\r\nA: " + b"x" * 2**17)
        assert (answer.status, answer.code, answer.closes) == (413, "TOO_LARGE", True)


# --- half a request

HALVES = {
    "a head": b"GET /v1/hea",
    "a head of a connection that has served": HEALTH + b"GET /v1/hea",
    "a body": POST + b"Content-Length: 10\r\n\r\n{",
    "a body in pieces": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    "a body without a byte": POST + b"Content-Length: 10\r\n\r\n",
    "what comes before standard input": POST
    + b"Content-Type: application/vnd.sandcell.exec\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\0\0\0\r\n",
}


@pytest.mark.parametrize("case", HALVES)
async def test_half_a_request_is_given_up_in_our_form(tmp_path: Path, case: str) -> None:
    async with a_house(tmp_path) as house:
        peer = house.connect()
        if HALVES[case].startswith(HEALTH):
            assert await peer.is_open()
        began = asyncio.get_running_loop().time()
        await peer.send(HALVES[case].removeprefix(HEALTH))
        answer = await peer.last_words()
        took = asyncio.get_running_loop().time() - began
        assert answer is not None
        assert (answer.status, answer.code, answer.closes) == (408, "WAIT_TIMEOUT", True)
        assert PATIENCE <= took < 10 * PATIENCE


async def test_a_head_that_trickles_in_has_no_more_time(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        peer = house.connect()
        words = asyncio.create_task(peer.last_words())
        for byte in (HEALTH[:-2] + b"A: " + b"x" * 1000).decode():
            await peer.send(byte.encode())
            if (await asyncio.wait({words}, timeout=PATIENCE / 10))[0]:
                break
        answer = await words
        assert answer is not None and answer.code == "WAIT_TIMEOUT"


async def test_a_body_may_take_as_long_as_it_likes_while_it_comes(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        peer = house.connect()
        body = b'{"nonsense": 1}'
        await peer.send(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        words = asyncio.create_task(peer.ask(b""))
        for byte in body.decode():
            await asyncio.wait({words}, timeout=PATIENCE / 5)
            await peer.send(byte.encode())
        assert (await words).code == "INVALID_ARGUMENT"  # it was read, and has a field too many


async def test_an_idle_connection_stays(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        fresh, used = house.connect(), house.connect()
        assert await used.is_open()
        await house.say(b"GET /v1/hea")  # until that is given up, both were looked at
        assert await fresh.is_open() and await used.is_open()


# --- too many


async def test_one_too_many_takes_the_place_of_the_longest_idle(tmp_path: Path) -> None:
    async with a_house(tmp_path, most=3) as house:
        peers = [house.connect() for _ in range(3)]
        for each in peers:
            assert await each.is_open()
        assert await peers[0].is_open()  # now the second has been idle longest
        assert await house.connect().is_open()
        assert await peers[1].last_words() is None
        assert await peers[0].is_open() and await peers[2].is_open()


async def test_one_too_many_where_none_is_idle_is_refused(tmp_path: Path) -> None:
    async with a_house(tmp_path, most=2) as house:
        for _ in range(2):
            await house.connect().send(POST + b"Content-Length: 10\r\n\r\n")
        refused = await house.connect().last_words()
        assert refused is not None
        assert (refused.status, refused.code, refused.closes) == (429, "RATE_LIMITED", True)
        assert refused.body["error"]["retryable"] is True


async def test_a_peer_on_another_machine_is_looked_after() -> None:
    """One that vanishes without a word is gone after half a minute; one on this machine cannot do so."""
    taken: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    def take(stream: GuestStream, _: object) -> None:
        assert stream.socket is not None
        taken.set_result(stream.socket)

    server = SimpleNamespace(handle_stream=take)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connections(listener, cast("HTTPServer", server), most=2, patience=PATIENCE),
        socket.create_connection(listener.getsockname()),
        await taken as peer,
    ):
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
