"""Standard input on its way: as fast as it is read, whole or known not to be, and nobody left waiting."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.guest.stdin_pipe import StdinPipe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LARGE = bytes(range(256)) * 2**14  # 4 MiB


class Reader:
    """The process: reads when it is told to."""

    def __init__(self, pipe: StdinPipe) -> None:
        self.pipe = pipe
        self.fd = os.dup(pipe.read_end)
        pipe.close_read_end()

    def read(self, size: int) -> bytes:
        return os.read(self.fd, size)

    async def read_all(self) -> bytes:
        return await asyncio.to_thread(self._read_all)

    def hang_up(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _read_all(self) -> bytes:
        found = bytearray()
        while data := os.read(self.fd, 2**20):
            found += data
        return bytes(found)


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    made = Reader(StdinPipe(more=True))
    yield made
    made.pipe.close()
    made.hang_up()


async def test_what_is_given_at_once_may_be_longer_than_a_pipe() -> None:
    reader = Reader(StdinPipe(LARGE))
    assert await reader.read_all() == LARGE
    assert reader.pipe.is_whole
    reader.hang_up()


async def test_pieces_come_in_order_and_then_the_end(reader: Reader) -> None:
    reading = asyncio.create_task(reader.read_all())
    for piece in (b"a", LARGE, b"", b"z"):
        await reader.pipe.send(piece)
    assert not reader.pipe.is_whole
    reader.pipe.end()
    assert reader.pipe.is_whole
    assert await reading == b"a" + LARGE + b"z"


async def test_the_sender_waits_for_a_reader_that_is_slow(reader: Reader) -> None:
    sending = asyncio.create_task(reader.pipe.send(LARGE))
    await asyncio.wait({sending}, timeout=0.05)
    assert not sending.done()
    read = 0
    while read < len(LARGE):
        read += len(await asyncio.to_thread(reader.read, 2**20))
    await sending


async def test_what_nobody_reads_waits_until_the_process_has_ended(reader: Reader) -> None:
    reader.hang_up()
    sending = asyncio.create_task(reader.pipe.send(b"x"))
    await asyncio.wait({sending}, timeout=0.05)
    assert not sending.done()
    assert reader.pipe.is_whole  # there is nothing more that it would read
    reader.pipe.close()
    await sending
    await reader.pipe.send(b"more")


async def test_a_reader_that_stops_while_the_pipe_is_full_frees_nobody_but_by_its_end(reader: Reader) -> None:
    sending = asyncio.create_task(reader.pipe.send(LARGE))
    await asyncio.wait({sending}, timeout=0.05)
    reader.hang_up()
    await asyncio.wait({sending}, timeout=0.05)
    assert not sending.done()
    reader.pipe.close()
    await sending


async def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for data, more in ((b"", False), (LARGE, False), (LARGE, True)):
        reader = Reader(StdinPipe(data, more=more))
        reader.pipe.end()
        reader.pipe.close()
        reader.hang_up()
    assert len(os.listdir("/proc/self/fd")) == before
