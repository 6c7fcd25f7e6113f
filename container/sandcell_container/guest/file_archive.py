"""Folders as streams of tar, both ways: a worker of its own reads or makes the folder, a pipe is between."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error
from sandcell_container.file_info import TransferReport
from sandcell_container.guest.file_errors import error_of_answer, error_of_errno
from sandcell_container.guest.user_worker import believe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from sandcell_container.guest.files import Files
    from sandcell_container.guest.user_worker import Answer, Errand

__all__ = ["FolderStream", "open_folder", "write_folder"]

_CHUNK = 2**18
_OPENED_S = 20.0
_LAST_S = 3600.0  # from the last byte to the end: files that were replaced are removed meanwhile


class FolderStream:
    """A folder that is read: `chunks` yields its tar once. `report` is there when that has ended."""

    def __init__(self, errand: Errand, fd: int, path: str) -> None:
        self.report: TransferReport | None = None
        self._errand = errand
        self._fd = fd
        self._path = path

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the stream. Raises what the worker tells when it could not go on: what came until then is no archive."""
        while data := await _read(self._fd):
            yield data
        answer = await self._errand.next(_LAST_S)
        _check(answer, self._path)
        self.report = believe(answer.data, TransferReport)


@asynccontextmanager
async def open_folder(files: Files, path: str, exclude: Sequence[str]) -> AsyncGenerator[FolderStream]:
    """Yield a folder as a stream; what matches a pattern of `exclude` is not in it. Leaving the block ends it.

    Raises:
        FILE_NOT_FOUND, NOT_A_DIRECTORY, PERMISSION_DENIED, INVALID_ARGUMENT: a pattern is none.
    """
    fields = {"path": files.absolute(path), "exclude": list(exclude)}
    async with files.worker.errand("pack", repr(path[:200]), **fields) as errand:
        fd = await _opened(errand, path)
        try:
            yield FolderStream(errand, fd, path)
        finally:
            os.close(fd)


async def write_folder(
    files: Files, path: str, chunks: AsyncIterator[bytes], *, replace: bool
) -> TransferReport:
    """Make in a folder what a stream of tar holds. Each file is there whole or not; what else is in the folder stays.

    With `replace` that, and nothing else, is in the folder afterwards, and nothing has changed when it fails.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is no tar archive, or holds what leads out of the folder, a link to a file, a
            device. More: see `Files`.
    """
    fields = {"path": files.absolute(path), "replace": replace}
    async with files.worker.errand("unpack", repr(path[:200]), **fields) as errand:
        fd = await _opened(errand, path)
        try:
            async for chunk in chunks:
                if not await _write(fd, chunk):
                    break  # it has given up, and says why
        finally:
            os.close(fd)
        answer = await errand.next(_LAST_S)
        _check(answer, path)
        return believe(answer.data, TransferReport)


async def _opened(errand: Errand, path: str) -> int:
    """Return the pipe that the worker has opened."""
    answer = await errand.next(_OPENED_S)
    _check(answer, path)
    try:
        if answer.fd < 0 or not stat.S_ISFIFO(os.fstat(answer.fd).st_mode):
            raise error(ErrorCode.INTERNAL, f"no stream was opened for {path[:200]!r}")
        os.set_blocking(answer.fd, False)
    except BaseException:
        answer.close()
        raise
    return answer.take_fd()


def _check(answer: Answer, path: str) -> None:
    if answer.number or answer.refused:
        answer.close()
        raise error_of_answer(answer, path)


async def _read(fd: int) -> bytes:
    """Return what is next in the pipe, b"" at its end."""
    while True:
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            await _ready(fd, writing=False)


async def _write(fd: int, data: bytes) -> bool:
    """Write all of `data`; returns False where nobody reads any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await _ready(fd, writing=True)
        except BrokenPipeError:
            return False
        except OSError as problem:
            raise error_of_errno(problem.errno or errno.EIO, "the archive") from problem
    return True


async def _ready(fd: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(fd, _wake, ready)
    try:
        await ready
    finally:
        remove(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
