"""Creates that are given up on the way leave nothing that nobody has an id of."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import AsyncSandbox
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

DEADLINE = 30.0
NOUNS = ("sessions", "terminals", "contexts", "processes")
BODIES: dict[str, dict[str, Any]] = {noun: {} for noun in NOUNS} | {"processes": {"command": "sleep 1000"}}


@pytest.fixture
async def own() -> AsyncGenerator[AsyncSandbox]:
    async with await AsyncSandbox.create(engine="local") as made:
        await made.exec("true")
        yield made


async def left_of(sandbox: AsyncSandbox) -> list[object]:
    some = [*await sandbox.sessions(), *await sandbox.terminals()]
    return [*some, *await sandbox.contexts(), *await sandbox.processes()]


async def await_nothing(sandbox: AsyncSandbox) -> None:
    async with asyncio.timeout(DEADLINE):
        while await left_of(sandbox):
            pass  # each round asks the guest, which is what takes them back


async def test_a_cancelled_create_is_taken_back(own: AsyncSandbox) -> None:
    makers: list[Callable[[], Coroutine[Any, Any, object]]] = [
        own.create_session,
        own.create_terminal,
        own.create_context,
        lambda: own.start_process("sleep 1000"),
    ]
    for make in makers:
        for steps in (1, 2, 3, 4, 6, 8):
            making = asyncio.ensure_future(make())
            for _ in range(steps):
                await asyncio.sleep(0)
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
    await await_nothing(own)


@pytest.mark.parametrize("noun", NOUNS)
async def test_what_no_client_waits_for_any_more_is_taken_back(own: AsyncSandbox, noun: str) -> None:
    for is_kept in (False, True, True):
        await asyncio.to_thread(ask_and_go, own.id, noun, BODIES[noun], is_kept=is_kept)
    await own.exec("true")  # the guest has begun it by now
    await await_nothing(own)


async def test_one_that_is_known_stays(own: AsyncSandbox) -> None:
    await own.create_session("known")
    await asyncio.to_thread(ask_and_go, own.id, "sessions", {"id": "known"})
    assert (await own.exec("true")).ok
    assert [each.id for each in await own.sessions()] == ["known"]


def ask_and_go(sandbox_id: str, noun: str, body: dict[str, Any], *, is_kept: bool = False) -> None:
    record = the_host().find(sandbox_id).record
    token = f"Authorization: Bearer {record.token}\r\n"
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/{noun} HTTP/1.1\r\nHost: sandbox\r\n{token}"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(record.address.path)
        if is_kept:  # an answered connection hears of its end in another way than a new one
            connection.sendall(f"GET /v1/health HTTP/1.1\r\nHost: sandbox\r\n{token}\r\n".encode())
            connection.recv(2**16)
        connection.sendall(head.encode() + text)
