"""The guest's ends of the pipes of a process: output as it comes, input as fast as it is read."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.errors import SandcellError

__all__ = ["InputPipe", "OutputPipe"]

_CHUNK = 2**18
_PIPE = 2**16  # what Linux gives a pipe
# For one that was found full: fewer turns of the loop. Not for every pipe, as those of one user may have 64 MiB in all.
_WIDE_PIPE = 2**20


class OutputPipe:
    """One stream of a process. `take` gets what it writes; `write_end` is the process's, closed once that has it."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._is_over = False
        self._is_wide = False
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)

    def resume(self) -> None:
        """Take what comes from now on."""
        if self._fd >= 0 and not self._is_reading and not self._is_over:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def pause(self) -> None:
        """Take nothing until `resume`: a process that writes more than the pipe holds waits."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def finish(self) -> None:
        """Take what is there, as no process is left to write more, and close."""
        if self._fd < 0:
            return
        left = self._pending()  # no more: somebody else who opened it may write for ever
        while left > 0 and (data := self._read(min(left, _CHUNK))):
            left -= len(data)
            self._take(data)
        self.close()

    def close(self) -> None:
        """Give it back. Twice is fine."""
        self.close_write_end()
        self.pause()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close_write_end(self) -> None:
        """The process has it now."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def _on_readable(self) -> None:
        data = self._read(_CHUNK)
        if data:
            self._take(data)
            if len(data) >= _PIPE and not self._is_wide:
                self._widen()
        elif data is not None:
            self._is_over = True  # the process may live on without it
            self.pause()

    def _read(self, size: int) -> bytes | None:
        """Return what is there, empty at the end of the stream, None where there is nothing yet."""
        try:
            return os.read(self._fd, size)
        except BlockingIOError:
            return None

    def _pending(self) -> int:
        """Return how many bytes there are to read now."""
        return int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)

    def _widen(self) -> None:
        self._is_wide = True
        with suppress(OSError):  # the user has no more room for pipes: it stays as it is
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _WIDE_PIPE)


class InputPipe:
    """The standard input of a process. `read_end` is the process's, closed once that has it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self.read_end, self._fd = os.pipe()
        os.set_blocking(self._fd, False)

    async def write(self, data: bytes, *, timeout_s: float) -> int:
        """Write `data` as fast as it is read, behind what others write; returns how many bytes fitted in by the timeout.

        Cancelling leaves a part of it written.

        Raises:
            Gone (LOST): it was closed, or nobody is left who could read it.
        """
        taken = 0
        with suppress(TimeoutError):  # what was taken by then is the answer
            async with asyncio.timeout(timeout_s), self._turn:
                while taken < len(data):
                    taken += await self._write_some(memoryview(data)[taken:])
        return taken

    def close(self) -> None:
        """Let the process see the end of its input. Twice is fine."""
        self.close_read_end()
        if self._fd >= 0:
            self._stop_waiting()
            os.close(self._fd)
            self._fd = -1

    def close_read_end(self) -> None:
        """The process has it now."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    async def _write_some(self, data: memoryview) -> int:
        while True:
            if self._fd < 0:
                raise _lost("has been closed")
            try:
                return os.write(self._fd, data)
            except BrokenPipeError:
                raise _lost("is read by nobody any more") from None
            except BlockingIOError:
                await self._have_room()

    async def _have_room(self) -> None:
        room = self._room = self._loop.create_future()
        self._loop.add_writer(self._fd, self._stop_waiting)
        try:
            await room
        finally:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._room is None:
            return
        self._loop.remove_writer(self._fd)
        if not self._room.done():
            self._room.set_result(None)
        self._room = None


def _lost(why: str) -> SandcellError:
    return error(ErrorCode.LOST, f"the standard input of the process {why}")
