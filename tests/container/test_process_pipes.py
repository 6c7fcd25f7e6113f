"""The guest's ends of the pipes of a process."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.process_pipes import InputPipe, OutputPipe


class Taken:
    """What came out of a pipe."""

    def __init__(self) -> None:
        self.data = b""
        self._news = asyncio.Event()

    def take(self, data: bytes) -> None:
        self.data += data
        self._news.set()

    async def until(self, data: bytes) -> None:
        async with asyncio.timeout(10):
            while self.data != data:
                self._news.clear()
                await self._news.wait()


async def test_output_comes_while_it_is_taken_and_waits_while_not() -> None:
    taken = Taken()
    pipe = OutputPipe(taken.take)
    os.write(pipe.write_end, b"one")
    pipe.resume()
    await taken.until(b"one")
    pipe.pause()
    os.write(pipe.write_end, b"two")
    await asyncio.sleep(0)
    assert taken.data == b"one"
    pipe.resume()
    pipe.resume()
    await taken.until(b"onetwo")
    pipe.close()
    pipe.close()


async def test_what_is_there_at_the_end_is_taken_and_no_more() -> None:
    taken = Taken()
    pipe = OutputPipe(taken.take)
    kept = os.dup(pipe.write_end)  # somebody else's, who goes on
    os.write(pipe.write_end, b"last")
    pipe.finish()
    assert taken.data == b"last"
    with pytest.raises(BrokenPipeError):
        os.write(kept, b"late")
    os.close(kept)


async def test_a_stream_that_its_process_has_closed_is_looked_at_no_more() -> None:
    taken = Taken()
    pipe = OutputPipe(taken.take)
    pipe.resume()
    os.write(pipe.write_end, b"all")
    pipe.close_write_end()
    await taken.until(b"all")
    await asyncio.sleep(0)
    pipe.pause()
    pipe.resume()
    pipe.finish()
    assert taken.data == b"all"


async def test_a_pipe_that_is_found_full_is_made_larger() -> None:
    taken = Taken()
    pipe = OutputPipe(taken.take)
    writer = pipe.write_end
    os.set_blocking(writer, False)
    size = os.write(writer, b"x" * 2**20)
    assert size == fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == 2**16
    pipe.resume()
    await taken.until(b"x" * size)
    assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == 2**20
    pipe.close()


async def test_input_is_written_as_it_is_read() -> None:
    pipe = InputPipe()
    reader = os.dup(pipe.read_end)
    pipe.close_read_end()
    writing = asyncio.ensure_future(pipe.write(b"x" * 100_000, timeout_s=10))
    await asyncio.sleep(0)
    got = 0
    while not writing.done():
        got += len(os.read(reader, 2**16))
        await asyncio.wait({writing}, timeout=0.05)
    assert await writing == 100_000
    pipe.close()
    while data := os.read(reader, 2**16):
        got += len(data)
    assert got == 100_000
    os.close(reader)


async def test_input_that_nobody_reads_says_how_much_it_took() -> None:
    pipe = InputPipe()
    assert await pipe.write(b"x" * 100_000, timeout_s=0.05) == 2**16
    assert await pipe.write(b"x", timeout_s=0.05) == 0
    pipe.close()


async def test_who_waits_for_room_hears_that_it_was_closed() -> None:
    pipe = InputPipe()
    writing = asyncio.ensure_future(pipe.write(b"x" * 100_000, timeout_s=10))
    await asyncio.wait({writing}, timeout=0.05)
    pipe.close()
    pipe.close()
    with pytest.raises(SandcellError) as caught:
        await writing
    assert caught.value.code is ErrorCode.LOST


async def test_a_cancelled_writer_leaves_the_next_its_turn() -> None:
    pipe = InputPipe()
    first = asyncio.ensure_future(pipe.write(b"x" * 100_000, timeout_s=10))
    await asyncio.wait({first}, timeout=0.05)
    second = asyncio.ensure_future(pipe.write(b"y", timeout_s=10))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(os.read(pipe.read_end, 2**17)) == 2**16
    assert await second == 1
    assert os.read(pipe.read_end, 10) == b"y"
    pipe.close()
