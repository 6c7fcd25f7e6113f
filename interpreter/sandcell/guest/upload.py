"""A body that streams into the sandbox while it comes in, whatever its length."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from sandcell.guest.connections import Moved, stream_of
from sandcell.guest.detached import Detached
from sandcell.guest.pipe import ChunkPipe
from sandcell.guest.request import ApiHandler
from sandcell_container.errors import SandcellError
from sandcell_container.guest.file_errors import error_of_errno
from sandcell_container.holes import write_all
from sandcell_container.pour import Pour

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from sandcell.guest.connections import GuestStream
    from sandcell_container.guest.files import Replacing

__all__ = ["DraftIntake", "FileIntake", "Intake", "PipedIntake", "UploadHandler"]

Receiver = Callable[[AsyncIterator[bytes]], Coroutine[Any, Any, object]]
"""Takes a body piece by piece, and returns what the answer is when all of it is where it belongs."""

_METHODS = {"PUT", "PATCH"}
_LARGE = 2**20


class Intake(Protocol):
    """Where a body goes."""

    async def begin(self, stream: GuestStream | None, length: int) -> None:
        """Get ready for a body of `length` bytes, 0 where that is not known, from this connection. Raises SandcellError."""
        ...

    async def take(self, piece: bytes) -> None:
        """Take a piece. Raises what keeps it from that."""
        ...

    async def finish(self) -> object:
        """All pieces have come: return the answer when all is in its place."""
        ...

    def give_up(self) -> None:
        """The rest does not come, or is of no use: what was taken is undone. After the end it does nothing."""
        ...


@stream_request_body
class UploadHandler(ApiHandler, ABC):
    """A noun whose PUT or PATCH has a body of any length. What follows in that method calls `uploaded`."""

    hears_out = True
    """Whether a refusal is told when the body is there: see `_drop`."""

    _intake: Intake | None = None
    _refusal: Exception | None = None
    _dropped = 0

    @abstractmethod
    def intake(self) -> Intake:
        """Return where the body goes. Called before it comes; raises SandcellError to refuse it."""

    async def prepare(self) -> None:
        try:
            super().prepare()
            if self.request.method in _METHODS:
                self._intake = self.intake()
                length = self.request.headers.get("Content-Length", "0")
                await self._intake.begin(stream_of(self.request.connection), int(length))
        except SandcellError as problem:
            if self.request.method not in _METHODS or not self.hears_out:
                raise
            self._refusal = problem

    async def uploaded(self) -> object:
        """Return the answer; the body has arrived, piece by piece, and what is left is the end of the write."""
        if self._refusal is not None:
            raise self._refusal
        assert self._intake is not None
        return await self._intake.finish()

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        if self._refusal is not None:
            self._drop(chunk)
            return None
        return super().data_received(chunk) if self._intake is None else self._take(self._intake, chunk)

    def on_connection_close(self) -> None:
        if self._intake is not None:
            self._intake.give_up()
        super().on_connection_close()

    def on_finish(self) -> None:
        if self._intake is not None:
            self._intake.give_up()
        super().on_finish()

    async def _take(self, intake: Intake, chunk: bytes) -> None:
        try:
            await intake.take(chunk)
        except Exception as problem:  # noqa: BLE001 -- whatever it is, it is answered
            self._refusal = problem
            self._drop(chunk)

    def _drop(self, chunk: bytes) -> None:
        """Read on for a while, because many clients hear a refusal only when they have sent all; but not for ever:
        the answer then comes at once, and ends the connection."""
        self._dropped += len(chunk)
        problem = self._refusal
        if self._dropped > self.guest.config.max_body and problem is not None:
            self.send_error(500, exc_info=(type(problem), problem, problem.__traceback__))


class PipedIntake:
    """A body that somebody reads: that runs beside the connection which brings the pieces."""

    def __init__(self, group: asyncio.TaskGroup, receiver: Receiver) -> None:
        self._pipe = ChunkPipe()
        self._work = Detached(group, self._received(receiver))

    async def begin(self, stream: GuestStream | None, length: int) -> None:
        """It has begun."""

    async def take(self, piece: bytes) -> None:
        await self._pipe.send(piece)
        if self._work.is_done:
            await self._work.wait()

    async def finish(self) -> object:
        self._pipe.end()
        return await self._work.wait()

    def give_up(self) -> None:
        self._pipe.end(StreamClosedError())

    async def _received(self, receiver: Receiver) -> object:
        try:
            return await receiver(self._pipe.chunks())
        finally:
            self._pipe.end()


class DraftIntake:
    """A body that becomes a file: a draft beside its place until all is there."""

    def __init__(self, group: asyncio.TaskGroup, made: Replacing) -> None:
        self.made = made
        self._group = group
        self._is_over = False

    async def finish(self) -> object:
        try:
            return await self.made.keep()
        finally:
            self.give_up()

    def give_up(self) -> None:
        if not self._is_over:
            self._is_over = True
            Detached(self._group, self.made.close())


class FileIntake(DraftIntake):
    """One whose bytes come. A long one is moved from the connection into it by the kernel."""

    def __init__(self, group: asyncio.TaskGroup, made: Replacing, path: str) -> None:
        super().__init__(group, made)
        self._path = path
        self._stream: GuestStream | None = None
        self._pour: Pour | None = None

    async def begin(self, stream: GuestStream | None, length: int) -> None:
        await self.made.open()
        if stream is not None and length >= _LARGE:
            self._stream, self._pour = stream, Pour(self.made.fd)
            stream.divert(self._pour)

    async def take(self, piece: bytes) -> None:
        try:
            if not isinstance(piece, Moved):
                write_all(self.made.fd, piece)
            elif piece.problem is not None:
                raise piece.problem
        except OSError as problem:
            self.give_up()
            raise error_of_errno(problem.errno or errno.EIO, self._path) from problem

    async def finish(self) -> object:
        self._release()
        return await super().finish()

    def give_up(self) -> None:
        self._release()
        super().give_up()

    def _release(self) -> None:
        """The connection's bytes are its own again."""
        if self._stream is not None:
            self._stream.divert(None)
        if self._pour is not None:
            self._pour.close()
        self._stream = self._pour = None
