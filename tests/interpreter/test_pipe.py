"""A body on its way, a piece at a time."""

from __future__ import annotations

import asyncio

import pytest

from sandcell.guest.pipe import ChunkPipe


async def read_all(pipe: ChunkPipe) -> list[bytes]:
    return [piece async for piece in pipe.chunks()]


async def test_pieces_arrive_in_order_and_none_is_lost() -> None:
    pipe = ChunkPipe()
    sent = [bytes([number]) for number in range(50)]
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read_all(pipe))
        for piece in sent:
            await pipe.send(piece)
        pipe.end()
    assert reading.result() == sent


async def test_a_writer_waits_for_its_reader() -> None:
    pipe = ChunkPipe()
    await pipe.send(b"1")
    second = asyncio.ensure_future(pipe.send(b"2"))
    await asyncio.wait({second}, timeout=0)
    assert not second.done()
    pieces = pipe.chunks()
    assert await anext(pieces) == b"1"
    await second
    assert await anext(pieces) == b"2"


async def test_a_loss_is_raised_behind_what_came() -> None:
    pipe = ChunkPipe()
    await pipe.send(b"1")
    pipe.end(ConnectionError("gone"))
    pieces = pipe.chunks()
    assert await anext(pieces) == b"1"
    with pytest.raises(ConnectionError):
        await anext(pieces)


async def test_a_writer_is_let_go_when_nobody_reads_any_more() -> None:
    pipe = ChunkPipe()
    await pipe.send(b"1")
    waiting = asyncio.ensure_future(pipe.send(b"2"))
    await asyncio.wait({waiting}, timeout=0)
    pipe.end()
    await waiting
    await pipe.send(b"3")
