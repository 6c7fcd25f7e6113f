"""Files, as raw bytes both ways; the work is done with the user's rights by `sandcell_container.guest.files`."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING

from tornado.iostream import StreamClosedError

from sandcell.api import FilePath, ListFiles
from sandcell.guest.request import ApiHandler
from sandcell.guest.upload import UploadHandler, UploadTarget
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.file_info import FileInfo

__all__ = ["FileHandler", "ListFilesHandler", "MakeFolderHandler", "StatFileHandler"]


class FileHandler(UploadHandler):
    """GET, HEAD, PUT, DELETE /v1/files?path="""

    def upload_target(self) -> UploadTarget:
        return UploadTarget(self.file_path(), self._mode())

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
        self.reply(await self.uploaded(), status=201)

    async def delete(self) -> None:
        path = self.file_path()
        await self.guest.files.remove(path)
        self.reply({"path": path})

    def file_path(self) -> str:
        """Return the query's path."""
        # Not by get_query_argument: it takes control characters away, and a name may have them.
        path = self.request.query_arguments.get("path", [b""])[-1]
        if not path:
            raise error(ErrorCode.INVALID_PATH, "the query has no path", hint="?path=FILE")
        return _placed(self, path.decode("utf-8", "surrogateescape"))

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


class ListFilesHandler(ApiHandler):
    """POST /v1/files/list"""

    async def post(self) -> None:
        body = self.body(ListFiles, lone="surrogatepass")
        path = _placed(self, body.path)
        self.reply(await self.guest.files.list(path, recursive=body.recursive, hidden=body.hidden))


class StatFileHandler(ApiHandler):
    """POST /v1/files/stat"""

    async def post(self) -> None:
        path = _placed(self, self.body(FilePath, lone="surrogatepass").path)
        self.reply(await self.guest.files.stat(path))


class MakeFolderHandler(ApiHandler):
    """POST /v1/files/mkdir"""

    async def post(self) -> None:
        path = _placed(self, self.body(FilePath, lone="surrogatepass").path)
        self.reply(await self.guest.files.mkdir(path), status=201)


def _placed(handler: ApiHandler, path: str) -> str:
    """Return `path`, which counts from the folder of the query's `session` where there is one.

    Raises:
        NotFound, Gone (SESSION_ENDED): see `SessionRoom.place`.
    """
    session_id = handler.get_query_argument("session", "")
    return handler.guest.sessions.place(session_id, path) if session_id else path
