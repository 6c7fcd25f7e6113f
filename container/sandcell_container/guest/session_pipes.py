"""What a session's commands say: one pipe for each stream and the whole session, read as fast as its taker takes it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.masks import StreamMask
from sandcell_container.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.guest.masks import Masks
    from sandcell_container.guest.session_command import SessionCommand

__all__ = ["SessionPipes"]

_CHUNK = 2**18
_PLAIN_PIPE = 2**16
_LARGE_PIPE = 2**20
_LAST_BYTES = 4096


class SessionPipes:
    """Output goes to the command that it was given to last, also after its end.

    `last_output` are the last bytes of both streams since then. `masks` takes secrets out of all of it.
    """

    def __init__(self, masks: Masks | None = None) -> None:
        self.last_output = b""
        self._command: SessionCommand | None = None
        self._streams = list[_Stream]()
        try:
            for kind in (Kind.STDOUT, Kind.STDERR):
                self._streams.append(_Stream(kind, None if masks is None else StreamMask(masks)))
        except OSError as problem:
            self.close()
            message = f"no pipe for the session: {os.strerror(problem.errno or 0)}"
            raise error(ErrorCode.START_FAILED, message, retryable=True) from problem
        self._heed()

    @property
    def write_ends(self) -> tuple[int, int]:
        """For the shell: its stdout and stderr."""
        stdout, stderr = self._streams
        return stdout.write_end, stderr.write_end

    def close_write_ends(self) -> None:
        """The shell has them now."""
        for stream in self._streams:
            stream.close_write_end()

    async def give_to(self, command: SessionCommand) -> None:
        """Take what was said until now for the one before, what comes from now on for `command`."""
        await self.drain()
        self._command, self.last_output = command, b""
        command.journal.when_read(self._heed)

    async def drain(self) -> None:
        """Take what is there now, and no more: a background job may write for ever."""
        for stream in self._streams:
            left = stream.pending()
            while left > 0:
                await self._ready(stream)
                data = stream.read(min(left, _CHUNK))
                if not data:
                    break  # taken by the loop meanwhile
                left -= len(data)
                self._take(stream, data)
            if stream.mask is not None:
                await self._ready(stream)
                self._give(stream, stream.mask.finish())
            await self._ready(stream)

    def close(self) -> None:
        """Give them back. Twice is fine."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def _heed(self) -> None:
        """Read each stream, or let its writers wait: the file for the whole is being made, or a follower is behind."""
        command = self._command
        for stream in self._streams:
            wanted = command is None or not (command.is_waiting(stream.kind) or command.is_behind)
            if wanted:
                stream.resume(self._on_readable)
            else:
                stream.pause()
            if stream.ready is not None and not self._is_waiting(stream) and not stream.ready.done():
                stream.ready.set_result(None)

    async def _ready(self, stream: _Stream) -> None:
        while self._is_waiting(stream):
            stream.ready = asyncio.get_running_loop().create_future()
            await stream.ready

    def _is_waiting(self, stream: _Stream) -> bool:
        return self._command is not None and self._command.is_waiting(stream.kind)

    def _on_readable(self, stream: _Stream) -> None:
        data = stream.read(_CHUNK)
        if data:
            self._take(stream, data)
        elif data is not None:
            stream.pause()  # nobody is left who could write
            stream.is_over = True

    def _take(self, stream: _Stream, data: bytes) -> None:
        self._give(stream, data if stream.mask is None else stream.mask.feed(data))

    def _give(self, stream: _Stream, data: bytes) -> None:
        """What is said before the first command is the rc files' affair."""
        if self._command is None or not data:
            return
        self.last_output = (self.last_output + data[-_LAST_BYTES:])[-_LAST_BYTES:]
        self._command.take(stream.kind, data, self._heed)
        self._heed()


class _Stream:
    """One pipe of a session."""

    def __init__(self, kind: Kind, mask: StreamMask | None) -> None:
        self.kind = kind
        self.mask = mask
        self.is_over = False
        self.ready: asyncio.Future[None] | None = None
        self._is_read = False
        self._loop = asyncio.get_running_loop()
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)

    def pending(self) -> int:
        """Return how many bytes there are to read now."""
        return int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)

    def read(self, size: int) -> bytes | None:
        """Return what is there, empty at the end of the stream, None where there is nothing yet."""
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return None
        if len(data) == _PLAIN_PIPE:  # one who fills a pipe writes much: fewer turns for both sides
            with suppress(OSError):  # all pipes of the user together have what they may have
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _LARGE_PIPE)
        return data

    def resume(self, on_readable: Callable[[_Stream], None]) -> None:
        if not self._is_read and not self.is_over:
            self._is_read = True
            self._loop.add_reader(self._fd, on_readable, self)

    def pause(self) -> None:
        if self._is_read:
            self._is_read = False
            self._loop.remove_reader(self._fd)

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        self.close_write_end()
        self.pause()
        os.close(self._fd)
