"""One request and its answer passed on between two connections."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sandcell.ports.exchange import pass_on
from sandcell.ports.heads import Via, read_request
from sandcell.ports.wire import Wire

VIA = Via(port=8000, origin="http://127.9.9.9:555", client="127.0.0.1")
PATIENCE_S = 20.0


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("POST", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"),
        ("POST", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nwhole\r\n0\r\nTrailer: 1\r\n\r\n",
        ),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
async def test_an_answer_has_its_end_though_the_app_stays_on(method: str, answer: bytes, piece: int) -> None:
    asker, client = socket.socketpair()
    server, app = socket.socketpair()
    with asker, server, Wire(client) as at_client, Wire(app) as at_app:
        head = read_request(f"{method} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
            group.create_task(pass_on(at_client, at_app, head, VIA, "/"))
            group.create_task(
                _answer(server, [answer[at : at + piece] for at in range(0, len(answer), piece)])
            )
            got = await _all_of(asker)
            asker.close()
    assert got.endswith(answer.rpartition(b"\r\n\r\n")[2]) and got.count(b"whole") == answer.count(b"whole")


async def test_an_answer_that_tells_no_length_ends_with_its_connection() -> None:
    asker, client = socket.socketpair()
    server, app = socket.socketpair()
    with asker, server, Wire(client) as at_client, Wire(app) as at_app:
        head = read_request(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
            group.create_task(pass_on(at_client, at_app, head, VIA, "/"))
            await _answer(server, [b"HTTP/1.1 200 OK\r\n\r\nall ", b"of it"])
            server.shutdown(socket.SHUT_WR)
            assert (await _all_of(asker)).endswith(b"\r\n\r\nall of it")
            asker.close()


async def _answer(server: socket.socket, pieces: list[bytes]) -> None:
    loop = asyncio.get_running_loop()
    server.settimeout(0.0)
    await loop.sock_recv(server, 2**16)
    for piece in pieces:
        await loop.sock_sendall(server, piece)


async def _all_of(asker: socket.socket) -> bytes:
    asker.settimeout(0.0)
    got = b""
    while data := await asyncio.get_running_loop().sock_recv(asker, 2**16):
        got += data
    return got
