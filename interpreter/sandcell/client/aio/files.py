"""Files of the sandbox: read, write, list, and whole files up and down with constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.api import FilePath, ListFiles
from sandcell.client.aio.channel import read_chunks, write_chunks
from sandcell.client.checks import check_count, check_data, check_path
from sandcell.client.options import MAX_READ, too_large
from sandcell.client.protocol import Request, decode_body, path_of
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.file_info import FileInfo
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    from os import PathLike

    from sandcell.client.aio.transport import AsyncTransport

__all__ = ["AsyncFiles"]

_BYTES = "application/octet-stream"
_MISSING = {ErrorCode.FILE_NOT_FOUND, ErrorCode.NOT_A_DIRECTORY}


class AsyncFiles:
    """Files as user code sees them: a relative path counts from the sandbox's working directory, or from the folder of
    the session that they are asked for by.

    Every method may raise FILE_NOT_FOUND, PERMISSION_DENIED, NOT_A_DIRECTORY, IS_A_DIRECTORY, INVALID_PATH
    and NO_SPACE.
    """

    def __init__(self, transport: AsyncTransport, *, session: str | None = None) -> None:
        self._transport = transport
        self._query = {} if session is None else {"session": session}

    async def read(self, path: str, *, max_bytes: str | int = MAX_READ) -> str:
        """Return a file's text. Bytes that are no UTF-8 come as U+FFFD; `read_bytes` has them as they are.

        Raises:
            InvalidRequest (TOO_LARGE): see `read_bytes`.
        """
        return (await self.read_bytes(path, max_bytes=max_bytes)).decode(errors="replace")

    async def read_bytes(self, path: str, *, max_bytes: str | int = MAX_READ) -> bytes:
        """Return a file's bytes, all at once.

        Raises:
            InvalidRequest (TOO_LARGE): it has more than `max_bytes`, by default 256 MiB, which is the most memory that
                a file may take here; `download` has no such limit.
        """
        limit = parse_size(max_bytes, what="max_bytes")
        answer = await self._transport.open(self._of_file("GET", path))
        try:
            parts, size = list[bytes](), 0
            async for chunk in answer.chunks():
                size += len(chunk)
                if size > limit:
                    raise too_large(path, limit)
                parts.append(chunk)
            return b"".join(parts)
        finally:
            answer.close()

    async def write(self, path: str, data: str | bytes, *, mode: int | None = None) -> FileInfo:
        """Write a whole file, its folders made where they are missing; readers see the old file or the new one.

        `mode` are its permission bits, by default those of the file that was there, else 0644.
        """
        body = check_data(data, what="data")
        return await self._transport.call(self._of_file("PUT", path, mode=mode, body=body), FileInfo)

    async def list(self, path: str = ".", *, recursive: bool = False, hidden: bool = True) -> list[FileInfo]:
        """Return what is in a folder, by name; `recursive` goes down, `hidden` includes names with a dot."""
        body = encode_names(ListFiles(path=check_path(path), recursive=recursive, hidden=hidden))
        return await self._transport.call(self._asking("list", body), list[FileInfo])

    async def stat(self, path: str) -> FileInfo:
        """Return what is known of a file; a symlink speaks of itself."""
        body = encode_names(FilePath(path=check_path(path)))
        return await self._transport.call(self._asking("stat", body), FileInfo)

    async def exists(self, path: str) -> bool:
        """Tell whether a file, folder or symlink has this path."""
        try:
            await self.stat(path)
        except SandcellError as problem:
            if problem.code in _MISSING:
                return False
            raise
        return True

    async def mkdir(self, path: str) -> FileInfo:
        """Make a folder and those above it; one that is there is fine."""
        body = encode_names(FilePath(path=check_path(path)))
        return await self._transport.call(self._asking("mkdir", body), FileInfo)

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        await self._transport.fetch(self._of_file("DELETE", path))

    async def upload(self, local: str | PathLike[str], remote: str) -> FileInfo:
        """Copy a file of this machine into the sandbox, in pieces: its size does not matter.

        Raises:
            OSError: the local file cannot be read.
        """
        request = self._of_file("PUT", remote, streamed=True)
        return decode_body(await self._transport.fetch(request, chunks=read_chunks(str(local))), FileInfo)

    async def download(self, remote: str, local: str | PathLike[str]) -> None:
        """Copy a file of the sandbox to this machine, in pieces. What is there is replaced when all has come.

        Raises:
            OSError: the local file cannot be written.
        """
        answer = await self._transport.open(self._of_file("GET", remote))
        try:
            await write_chunks(str(local), answer.chunks())
        finally:
            answer.close()

    def _of_file(
        self, method: str, path: str, *, mode: int | None = None, body: bytes = b"", streamed: bool = False
    ) -> Request:
        query = {**self._query, "path": check_path(path)}
        if mode is not None:
            query["mode"] = f"{check_count(mode, what='mode', least=0):o}"
        return Request(
            method=method,
            path=path_of("files"),
            query=query,
            body=body,
            streamed=streamed,
            content_type=_BYTES,
        )

    def _asking(self, verb: str, body: bytes) -> Request:
        return Request(method="POST", path=path_of("files", verb), query=self._query, body=body)
