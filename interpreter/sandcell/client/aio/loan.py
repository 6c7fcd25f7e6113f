"""A file of the sandbox that is open in this process as well: its bytes go through no connection."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell.client.aio.channel import to_its_end
from sandcell.client.protocol import Request, decode_body, path_of
from sandcell_container.errors import ErrorCode, error
from sandcell_container.file_copy import copy_piece
from sandcell_container.file_info import FileInfo
from sandcell_container.guest.file_errors import error_of_errno

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandcell.client.aio.answer import AsyncUpload
    from sandcell.client.aio.transport import AsyncTransport

__all__ = ["AsyncDraft", "AsyncLentFile", "borrow_draft", "borrow_file"]

_PIECE = (
    8 * 2**20
)  # as much as is copied at once: a callback hears of each, and the guest of each that is written
_STILL_HERE = b"."
_PATH = path_of("files", "descriptor")
_OF_TARGET = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # what only the side that is written to can mean


async def borrow_file(transport: AsyncTransport, request: Request) -> AsyncLentFile | None:
    """Open the file whose bytes `request` asks for; None where what leads to the guest carries no descriptors. Raises as
    `AsyncTransport.open`."""
    loan = await transport.borrow(replace(request, path=_PATH))
    if loan is None:
        return None
    fd, conversation = loan
    try:
        info = decode_body(await conversation.hear(), FileInfo)
    except BaseException:
        os.close(fd)
        conversation.close()
        raise
    return AsyncLentFile(fd, info)


async def borrow_draft(transport: AsyncTransport, request: Request) -> AsyncDraft | None:
    """Begin the file that `request` writes. Otherwise as `borrow_file`."""
    loan = await transport.borrow(replace(request, path=_PATH, streamed=True, length=None))
    return None if loan is None else AsyncDraft(*loan, request.query["path"])


class AsyncLentFile:
    """A file to be read; close it."""

    def __init__(self, fd: int, info: FileInfo) -> None:
        self.total = info.size
        self._path = info.path
        self._fd = fd

    async def pour(self, fd: int) -> AsyncIterator[int]:
        """Write the file to a descriptor, and yield how many bytes, piece by piece.

        Raises:
            OSError: that cannot be written.
            Conflict (CHANGED_SINCE): the file has become shorter meanwhile.
        """
        async for count in _copied(self._fd, fd, self.total):
            if not count:
                raise error(ErrorCode.CHANGED_SINCE, f"{self._path[:200]!r} has become shorter meanwhile")
            yield count

    def close(self) -> None:
        os.close(self._fd)


class AsyncDraft:
    """A file to be written, which is in its place after `keep`; close it."""

    def __init__(self, fd: int, upload: AsyncUpload, path: str) -> None:
        self._fd = fd
        self._upload = upload
        self._path = path

    async def fill(self, fd: int, size: int) -> AsyncIterator[int]:
        """Write as many bytes of a descriptor, and yield how many, piece by piece.

        Raises:
            OSError: that cannot be read, or has become shorter.
            SandcellError: the draft cannot be written, as NO_SPACE.
        """
        try:
            async for count in _copied(fd, self._fd, size):
                if not count:
                    raise OSError(f"the file has become shorter than {size} bytes meanwhile")
                await self._upload.send(_STILL_HERE)
                yield count
        except OSError as problem:
            if problem.errno not in _OF_TARGET:
                raise
            raise error_of_errno(problem.errno, self._path) from problem

    async def keep(self) -> bytes:
        """Put it into its place, and return the answer's body."""
        return await self._upload.finish()

    def close(self) -> None:
        os.close(self._fd)
        self._upload.close()


async def _copied(given: int, made: int, size: int) -> AsyncIterator[int]:
    """Copy `size` bytes, and yield how many, piece by piece; 0 where there are no more."""
    done = 0
    while done < size:
        count = await to_its_end(copy_piece, given, made, done, min(_PIECE, size - done))
        yield count
        done += count
