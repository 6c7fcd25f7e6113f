"""A body that streams into a file of the sandbox while it comes in, whatever its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from sandcell.guest.detached import Detached
from sandcell.guest.pipe import ChunkPipe
from sandcell.guest.request import ApiHandler
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sandcell.guest.state import Guest
    from sandcell_container.file_info import FileInfo
    from sandcell_container.guest.files import Files

__all__ = ["UploadHandler", "UploadTarget"]


class UploadTarget(NamedTuple):
    """Where the body of a PUT goes; `mode` are permission bits, None is as it is or 0644."""

    path: str
    mode: int | None = None


@stream_request_body
class UploadHandler(ApiHandler):
    """A noun whose PUT has a body of any length. What follows in `put` calls `uploaded`."""

    _upload: _Upload | None = None
    _refusal: Exception | None = None
    _dropped = 0

    def upload_target(self) -> UploadTarget:
        """Return where the body goes. Called before it comes; raises SandcellError to refuse it."""
        raise NotImplementedError

    def prepare(self) -> None:
        try:
            super().prepare()
            if self.request.method == "PUT":
                self._upload = _Upload(self.guest, self.upload_target())
        except SandcellError as problem:
            if self.request.method != "PUT":
                raise
            self._refusal = problem  # told when the body is there: see `_drop`

    async def uploaded(self) -> FileInfo:
        """Return the file; the body has arrived, piece by piece, and what is left is the end of the write."""
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
    """A file on its way in: the write runs beside the connection that brings the pieces."""

    def __init__(self, guest: Guest, target: UploadTarget) -> None:
        self._pipe = ChunkPipe()
        self._write = Detached(guest.group, self._written(guest.files, target))

    async def send(self, piece: bytes) -> None:
        """Pass on a piece; raises what the write failed with."""
        await self._pipe.send(piece)
        if self._write.is_done:
            await self._write.wait()

    async def finish(self) -> FileInfo:
        """All pieces were sent: return the file when it is whole and in its place."""
        self._pipe.end()
        return await self._write.wait()

    def break_off(self) -> None:
        """Half a file is none: the write is undone."""
        self._pipe.end(StreamClosedError())

    async def _written(self, files: Files, target: UploadTarget) -> FileInfo:
        try:
            return await files.write(target.path, self._pipe.chunks(), mode=target.mode)
        finally:
            self._pipe.end()
