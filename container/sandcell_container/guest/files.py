"""Files of the sandbox, for the guest: everything is done by a worker that has the user's rights and no others.

The guest gets open descriptors of regular files and moves the bytes itself. It never opens a path, and it believes
the worker nothing that could hurt: what is opened is looked at again, answers have a bounded time and a fixed shape.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_info import FileInfo
from sandcell_container.guest.user_worker import believe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sandcell_container.guest.user_worker import Answer, UserWorker

__all__ = ["Files", "ReadableFile"]

_LONGEST_PATH = 4095  # PATH_MAX without its NUL
_CHUNK = 2**18


class ReadableFile:
    """A regular file that is open: `chunks` yields its bytes once. Give it back with `aclose`."""

    def __init__(self, info: FileInfo, fd: int) -> None:
        self.info = info
        self.chunks: AsyncIterator[bytes] = self._read()
        self._fd = fd

    async def aclose(self) -> None:
        """Close the file. Twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _read(self) -> AsyncIterator[bytes]:
        """No more than the size it was opened with, so that who was told a length gets it; but files of /proc say
        0 and hold more."""
        left = self.info.size or 2**63
        while left > 0 and self._fd >= 0:
            try:
                data = os.read(self._fd, min(_CHUNK, left))
            except OSError as problem:
                raise _error_of(problem.errno or errno.EIO, self.info.path) from problem
            if not data:
                return
            left -= len(data)
            yield data
            await asyncio.sleep(0)  # the disk never blocks the loop for longer than one chunk


class Files:
    """The files that user code sees, with its rights. Paths that are not absolute count from `workdir`.

    An async context manager: leaving it waits for what goes on by itself.

    Every call raises SandcellError: FILE_NOT_FOUND; IS_A_DIRECTORY, NOT_A_DIRECTORY; PERMISSION_DENIED;
    INVALID_PATH (empty, NUL, too long, a loop of links, a FIFO, socket or device); NO_SPACE; TOO_LARGE; BUSY;
    UNREACHABLE (the worker died or did not answer; whether the work was done is not known).
    """

    def __init__(self, worker: UserWorker, workdir: str) -> None:
        self._worker = worker
        self._workdir = workdir
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        group, self._group = self._group, None
        if group is not None:
            await group.__aexit__(None, None, None)

    async def read(self, path: str) -> ReadableFile:
        """Open a regular file; symlinks are followed. Whoever gets it closes it."""
        answer = await self._ask("read", path)
        try:
            info = believe(answer.data, FileInfo)
            status = _check_regular(answer.fd, path)
        except BaseException:
            answer.close()
            raise
        return ReadableFile(replace(info, size=status.st_size, mtime=status.st_mtime), answer.take_fd())

    async def write(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> FileInfo:
        """Write a whole file: readers see the old one or the new one. Missing folders are made, a symlink is followed.

        `mode` are permission bits; None keeps those of the file that is there, else the umask says. When it fails
        or is cancelled, what was there before is still there, but for folders that were made.
        """
        answer = await self._ask("begin", path)
        plan = believe(answer.data, _WritePlan)
        try:
            _check_regular(answer.fd, path)
            async for chunk in chunks:
                _write_all(answer.fd, chunk, path)
            answer.close()
            bits = plan.mode if mode is None else mode
            done = await self._ask("commit", plan.temporary, target=plan.target, mode=bits)
        except BaseException:
            answer.close()
            await self._forget(plan.temporary)
            raise
        return believe(done.data, FileInfo)

    async def list(self, path: str, *, recursive: bool = False, hidden: bool = True) -> list[FileInfo]:
        """Return what is in a folder, by name; with `recursive` each folder is followed by what is in it.

        Symlinks are listed and not followed. `hidden` includes names that begin with a dot. TOO_LARGE above
        100000 entries. What is in a folder that the user may not read is left out.
        """
        answer = await self._ask("list", path, recursive=recursive, hidden=hidden)
        return believe(answer.parts, list[FileInfo])

    async def stat(self, path: str) -> FileInfo:
        """Return what is known of a file; a symlink speaks of itself."""
        return believe((await self._ask("stat", path)).data, FileInfo)

    async def mkdir(self, path: str) -> FileInfo:
        """Make a folder and those above it; one that is there is fine."""
        return believe((await self._ask("mkdir", path)).data, FileInfo)

    async def remove(self, path: str) -> None:
        """Remove a file, a symlink, or a folder with all that is in it."""
        await self._ask("remove", path)

    # a SpillStore

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        """Make the new file `path`, and the folders above it; call back with a descriptor to write it, or None."""

        async def open_it() -> None:
            fd = None
            try:
                answer = await self._ask("new", path)
                _check_regular(answer.fd, path)
                fd = answer.take_fd()
            except SandcellError:
                pass  # said by None
            finally:
                callback(fd)

        if self._group is None:
            callback(None)
        else:
            self._group.create_task(open_it())

    def remove_soon(self, path: str) -> None:
        """Remove what `open_soon` made."""
        if self._group is not None:
            self._group.create_task(self._forget(path))

    async def _ask(self, verb: str, path: str, **more: object) -> Answer:
        """Have the worker do something to `path`; whoever gets the answer closes it."""
        answer = await self._worker.ask(verb, repr(path[:200]), path=self._absolute(path), **more)
        if answer.number:
            raise _error_of(answer.number, path, kind=answer.kind)
        return answer

    def _absolute(self, path: str) -> str:
        if not path or "\0" in path:
            raise error(ErrorCode.INVALID_PATH, "a path is empty or holds a NUL character")
        full = os.path.join(self._workdir, path)
        full = full if ".." in full.split("/") else os.path.normpath(full)
        try:
            size = len(full.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as problem:
            raise error(ErrorCode.INVALID_PATH, f"{path[:80]!r} is no path: {problem.reason}") from None
        if size > _LONGEST_PATH:
            raise _error_of(errno.ENAMETOOLONG, path)
        return full

    async def _forget(self, path: str) -> None:
        try:
            await self._ask("remove", path)
        except SandcellError:
            pass  # gone already, or the worker is: nothing more can be done about it


class _WritePlan(msgspec.Struct, frozen=True):
    temporary: str
    target: str
    mode: int | None


def _check_regular(fd: int, path: str) -> os.stat_result:
    """Look again at what the worker opened, which it may lie about."""
    if fd < 0:
        raise error(ErrorCode.INTERNAL, f"no file was opened for {path[:200]!r}")
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _error_of(errno.EINVAL, path, kind="no regular file")
    return status


def _write_all(fd: int, data: bytes, path: str) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as problem:
        raise _error_of(problem.errno or errno.EIO, path) from problem


_CODES: dict[int, ErrorCode] = {
    errno.ENOENT: ErrorCode.FILE_NOT_FOUND,
    errno.EISDIR: ErrorCode.IS_A_DIRECTORY,
    errno.ENOTDIR: ErrorCode.NOT_A_DIRECTORY,
    errno.EACCES: ErrorCode.PERMISSION_DENIED,
    errno.EPERM: ErrorCode.PERMISSION_DENIED,
    errno.EROFS: ErrorCode.PERMISSION_DENIED,
    errno.EEXIST: ErrorCode.EXISTS,
    errno.EINVAL: ErrorCode.INVALID_PATH,
    errno.ELOOP: ErrorCode.INVALID_PATH,
    errno.ENAMETOOLONG: ErrorCode.INVALID_PATH,
    errno.ENXIO: ErrorCode.INVALID_PATH,
    errno.ENODEV: ErrorCode.INVALID_PATH,
    errno.ENOSPC: ErrorCode.NO_SPACE,
    errno.EDQUOT: ErrorCode.NO_SPACE,
    errno.EFBIG: ErrorCode.TOO_LARGE,
    errno.EAGAIN: ErrorCode.BUSY,  # another process holds a lease
    errno.EBUSY: ErrorCode.BUSY,
}


def _error_of(number: int, path: str, *, kind: str = "") -> SandcellError:
    """Translate what the system said about `path`."""
    code = _CODES.get(number, ErrorCode.INTERNAL)
    if kind or number == errno.ENXIO:
        return error(
            ErrorCode.INVALID_PATH,
            f"{path[:200]!r} is {kind or 'a socket or a device'}",
            hint="only regular files can be read and written here",
        )
    return error(
        code,
        f"{path[:200]!r}: {os.strerror(number)}",
        details={"path": path[:4096], "errno": errno.errorcode.get(number, str(number))},
    )
