"""One file, as raw bytes both ways; the work is done with the user's rights by `sandcell_container.guest.files`."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING

from tornado.iostream import StreamClosedError

from sandcell.guest.conditions import Span, condition_of, is_known, line_span, span_of
from sandcell.guest.sending import LARGE, send_file
from sandcell.guest.upload import FileIntake, PipedIntake, UploadHandler
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell.guest.request import ApiHandler
    from sandcell.guest.upload import Intake
    from sandcell_container.file_info import FileInfo
    from sandcell_container.guest.readable_file import ReadableFile

__all__ = ["FileHandler", "path_in_query", "permissions_of", "placed"]

# What user code has written is shown by no browser as if it were of this server.
_AS_STRANGER = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}


class FileHandler(UploadHandler):
    """GET, HEAD, PUT, PATCH, DELETE /v1/files?path="""

    def intake(self) -> Intake:
        files, path, condition = self.guest.files, path_in_query(self), condition_of(self.request.headers)
        if self.request.method == "PATCH":
            return PipedIntake(
                self.guest.group, lambda chunks: files.append(path, chunks, condition=condition)
            )
        made = files.replacing(path, mode=permissions_of(self), condition=condition)
        return FileIntake(self.guest.group, made, path)

    async def get(self) -> None:
        file = await self.guest.files.read(path_in_query(self))
        try:
            span = await self._begin(file)
            if span is not None and file.is_measured and span.end - span.start >= LARGE:
                await send_file(self, file.fd, span)
                return
            if span is not None:
                self.cancel_when_client_goes()
                async for chunk in file.chunks(span.start, span.end if file.is_measured else None):
                    self.write(chunk)
                    await self.flush()
            self.finish()
        except (asyncio.CancelledError, StreamClosedError):
            if not self.client_gone:
                raise
        finally:
            await file.aclose()

    async def head(self) -> None:
        file = await self.guest.files.read(path_in_query(self))
        try:
            await self._begin(file)
        finally:
            await file.aclose()
        self.finish()

    async def put(self) -> None:
        self.reply(await self.uploaded(), status=201)

    async def patch(self) -> None:
        self.reply(await self.uploaded())

    async def delete(self) -> None:
        path = path_in_query(self)
        await self.guest.files.remove(path, recursive=self.flag("recursive", default=False))
        self.reply({"path": path})

    async def _begin(self, file: ReadableFile) -> Span | None:
        """Set status and headers; return the bytes that follow, None where none do."""
        info = file.info
        self._describe(info)
        if is_known(self.request.headers, info.etag):
            self.set_status(304)
            return None
        lines = self.get_query_argument("lines", "")
        if lines:
            place = await file.find_lines(*line_span(lines))
            self.set_header("Sandcell-Lines", place.total)
            span: Span | None = Span(place.start, place.end, is_part=False)
        elif not file.is_measured:
            return Span(0, 0)  # files of /proc say 0 and hold more; these go in chunks
        else:
            span = span_of(self.request.headers, info.size, info.etag)
            self.set_header("Accept-Ranges", "bytes")
        if span is None:
            self._refuse_range(info)
        else:
            self._announce(span, info)
        return span

    def _announce(self, span: Span, info: FileInfo) -> None:
        if span.is_part:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {span.start}-{span.end - 1}/{info.size}")
        self.set_header("Content-Length", span.end - span.start)

    def _refuse_range(self, info: FileInfo) -> None:
        problem = error(
            ErrorCode.INVALID_ARGUMENT,
            f"the file has only {info.size} bytes",
            details={"field": "Range", "size": info.size},
        )
        self.set_status(416)
        self.set_header("Content-Range", f"bytes */{info.size}")
        self.set_header("Content-Type", "application/json")
        self.write(problem.to_dict())

    def _describe(self, info: FileInfo) -> None:
        is_text = info.binary is False and (info.mime or "").startswith("text/")
        self.set_header(
            "Content-Type", f"{info.mime or 'application/octet-stream'}" + "; charset=utf-8" * is_text
        )
        self.set_header("ETag", f'"{info.etag}"')
        self.set_header("Last-Modified", formatdate(info.mtime, usegmt=True))
        for name, value in _AS_STRANGER.items():
            self.set_header(name, value)


def permissions_of(handler: ApiHandler) -> int | None:
    """Return the query's `mode`, permission bits in octal; None where it is not given."""
    text = handler.get_query_argument("mode", "")
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


def path_in_query(handler: ApiHandler) -> str:
    """Return the query's path, which counts from the folder of the query's `session` where there is one."""
    # Not by get_query_argument: it takes control characters away, and a name may have them.
    path = handler.request.query_arguments.get("path", [b""])[-1]
    if not path:
        raise error(ErrorCode.INVALID_PATH, "the query has no path", hint="?path=FILE")
    return placed(handler, path.decode("utf-8", "surrogateescape"))


def placed(handler: ApiHandler, path: str) -> str:
    """Return `path`, which counts from the folder of the query's `session` where there is one.

    Raises:
        NotFound, Gone (SESSION_ENDED): see `SessionRoom.place`.
    """
    session_id = handler.get_query_argument("session", "")
    return handler.guest.sessions.place(session_id, path) if session_id else path
