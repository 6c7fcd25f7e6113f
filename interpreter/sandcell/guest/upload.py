"""A body that streams into the sandbox while it comes in, whatever its length."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from sandcell.guest.detached import Detached
from sandcell.guest.pipe import ChunkPipe
from sandcell.guest.request import ApiHandler
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

__all__ = ["Receiver", "UploadHandler"]

Receiver = Callable[[AsyncIterator[bytes]], Coroutine[Any, Any, object]]
"""Takes a body piece by piece, and returns what the answer is when all of it is where it belongs."""

_METHODS = {"PUT", "PATCH"}


@stream_request_body
class UploadHandler(ApiHandler):
    """A noun whose PUT or PATCH has a body of any length. What follows in that method calls `uploaded`."""

    _upload: _Upload | None = None
    _refusal: Exception | None = None
    _dropped = 0

    def receiver(self) -> Receiver:
        """Return where the body goes. Called before it comes; raises SandcellError to refuse it."""
        raise NotImplementedError

    def prepare(self) -> None:
        try:
            super().prepare()
            if self.request.method in _METHODS:
                self._upload = _Upload(self.guest.group, self.receiver())
        except SandcellError as problem:
            if self.request.method not in _METHODS:
                raise
            self._refusal = problem  # told when the body is there: see `_drop`

    async def uploaded(self) -> object:
        """Return the answer; the body has arrived, piece by piece, and what is left is the end of the write."""
        if self._refusal is not None:
            raise self._refusal
        assert self._upload is not None
        return await self._upload.finish()

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        if self._refusal is not None:
            self._drop(chunk)
            return None
        return super().data_received(chunk) if self._upload is None else self._pass_on(self._upload, chunk)

    def on_connection_close(self) -> None:
        if self._upload is not None:
            self._upload.break_off()
        super().on_connection_close()

    async def _pass_on(self, upload: _Upload, chunk: bytes) -> None:
        try:
            await upload.send(chunk)
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


class _Upload:
    """A body on its way in: what takes it runs beside the connection that brings the pieces."""

    def __init__(self, group: asyncio.TaskGroup, receiver: Receiver) -> None:
        self._pipe = ChunkPipe()
        self._write = Detached(group, self._received(receiver))

    async def send(self, piece: bytes) -> None:
        """Pass on a piece; raises what the write failed with."""
        await self._pipe.send(piece)
        if self._write.is_done:
            await self._write.wait()

    async def finish(self) -> object:
        """All pieces were sent: return the answer when all is in its place."""
        self._pipe.end()
        return await self._write.wait()

    def break_off(self) -> None:
        """The rest does not come: the write fails."""
        self._pipe.end(StreamClosedError())

    async def _received(self, receiver: Receiver) -> object:
        try:
            return await receiver(self._pipe.chunks())
        finally:
            self._pipe.end()
