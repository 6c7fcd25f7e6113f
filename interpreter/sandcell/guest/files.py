"""Files, as raw bytes both ways; the work is done with the user's rights by `sandcell_container.guest.files`."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING

from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from sandcell.api import FilePath, ListFiles
from sandcell.guest.detached import Detached
from sandcell.guest.pipe import ChunkPipe
from sandcell.guest.request import ApiHandler
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sandcell.guest.state import Guest
    from sandcell_container.file_info import FileInfo
    from sandcell_container.guest.files import Files

__all__ = ["FileHandler", "ListFilesHandler", "MakeFolderHandler", "StatFileHandler"]


@stream_request_body
class FileHandler(ApiHandler):
    """GET, HEAD, PUT, DELETE /v1/files?path="""

    _upload: _Upload | None = None
    _refusal: Exception | None = None
    _dropped = 0

    def prepare(self) -> None:
        try:
            super().prepare()
            if self.request.method == "PUT":
                self._upload = _Upload(self.guest, self.file_path(), self._mode())
        except SandcellError as problem:
            if self.request.method != "PUT":
                raise
            self._refusal = problem  # told when the body is there: see `_drop`

    async def get(self) -> None:
        file = await self.guest.files.read(self.file_path())
        try:
            self._describe(file.info)
            self.cancel_when_client_goes()
            async for chunk in file.chunks:
                self.write(chunk)
                await self.flush()
            self.finish()
        except (asyncio.CancelledError, StreamClosedError):
            if not self.client_gone:
                raise
        finally:
            await file.aclose()

    async def head(self) -> None:
        self._describe(await self.guest.files.stat(self.file_path()))
        self.finish()

    async def put(self) -> None:
        """The body has arrived, piece by piece; what is left is the end of the write."""
        if self._refusal is not None:
            raise self._refusal
        assert self._upload is not None
        self.reply(await self._upload.finish(), status=201)

    async def delete(self) -> None:
        path = self.file_path()
        await self.guest.files.remove(path)
        self.reply({"path": path})

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        if self._refusal is not None:
            self._drop(chunk)
            return None
        return super().data_received(chunk) if self._upload is None else self._pass_on(self._upload, chunk)

    def on_connection_close(self) -> None:
        if self._upload is not None:
            self._upload.break_off()
        super().on_connection_close()

    def file_path(self) -> str:
        """Return the query's path."""
        # Not by get_query_argument: it takes control characters away, and a name may have them.
        path = self.request.query_arguments.get("path", [b""])[-1]
        if not path:
            raise error(ErrorCode.INVALID_PATH, "the query has no path", hint="?path=FILE")
        return path.decode("utf-8", "surrogateescape")

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

    def _describe(self, info: FileInfo) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        if info.size:  # files of /proc say 0 and hold more; these go in chunks
            self.set_header("Content-Length", info.size)
        self.set_header("Last-Modified", formatdate(info.mtime, usegmt=True))

    def _mode(self) -> int | None:
        text = self.get_query_argument("mode", "")
        if not text:
            return None
        try:
            mode = int(text, 8)
        except ValueError:
            mode = -1
        if not 0 <= mode <= 0o7777:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"mode={text[:20]!r} are no permission bits",
                hint="octal, as 644",
                details={"field": "mode"},
            )
        return mode


class _Upload:
    """A file on its way in: the write runs beside the connection that brings the pieces."""

    def __init__(self, guest: Guest, path: str, mode: int | None) -> None:
        self._pipe = ChunkPipe()
        self._write = Detached(guest.group, self._written(guest.files, path, mode))

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

    async def _written(self, files: Files, path: str, mode: int | None) -> FileInfo:
        try:
            return await files.write(path, self._pipe.chunks(), mode=mode)
        finally:
            self._pipe.end()


class ListFilesHandler(ApiHandler):
    """POST /v1/files/list"""

    async def post(self) -> None:
        body = self.body(ListFiles)
        self.reply(await self.guest.files.list(body.path, recursive=body.recursive, hidden=body.hidden))


class StatFileHandler(ApiHandler):
    """POST /v1/files/stat"""

    async def post(self) -> None:
        self.reply(await self.guest.files.stat(self.body(FilePath).path))


class MakeFolderHandler(ApiHandler):
    """POST /v1/files/mkdir"""

    async def post(self) -> None:
        self.reply(await self.guest.files.mkdir(self.body(FilePath).path), status=201)
