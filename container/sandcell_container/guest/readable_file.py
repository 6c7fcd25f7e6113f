"""A file that the worker has opened, read by the guest."""

from __future__ import annotations

import asyncio
import errno
import mimetypes
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.file_tag import tag_of
from sandcell_container.guest.file_errors import error_of_errno
from sandcell_container.guest.worker.describing import SNIFFED, is_binary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandcell_container.file_info import FileInfo

__all__ = ["LinePlace", "ReadableFile", "with_mime"]

_CHUNK = 2**18
_NO_END = 2**63
_TYPES = mimetypes.MimeTypes(filenames=())  # those of this module alone: the same on every machine


class LinePlace(NamedTuple):
    """Where some lines of a file are: bytes `start` to `end`. `total` lines are in the whole file."""

    start: int
    end: int
    total: int


class ReadableFile:
    """A regular file that is open. Give it back with `aclose`."""

    def __init__(self, info: FileInfo, fd: int) -> None:
        """Take `fd`, and look at it again: what the worker said of the file is only believed of its name."""
        status = os.fstat(fd)
        self._fd = fd
        self.is_measured = stat.S_ISREG(status.st_mode) and status.st_size > 0
        looked = replace(info, size=status.st_size, mtime=status.st_mtime, etag=tag_of(status))
        self.info = with_mime(replace(looked, binary=self._is_binary()))

    @property
    def fd(self) -> int:
        """Its descriptor, which stays its own."""
        return self._fd

    async def aclose(self) -> None:
        """Close the file. Twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes from `start` to `end`, by default to the size it was opened with: who was told a length gets it.

        Files of /proc say 0 and hold more: of those all there is. Ends early where the file has become shorter.
        """
        at, end = start, self.info.size or _NO_END if end is None else end
        while at < end and (data := self._read(at, min(_CHUNK, end - at))):
            at += len(data)
            yield data
            await asyncio.sleep(0)  # the disk never blocks the loop for longer than one chunk

    async def find_lines(self, first: int, count: int | None) -> LinePlace:
        """Return where `count` lines (None: all) from line `first` on are, the first of all being 1."""
        at = lines = 0
        begin = 0 if first <= 1 else None
        end = None
        is_open = False  # a last line without a newline
        last = None if count is None else first + count - 1
        async for chunk in self.chunks():
            found = chunk.count(b"\n")
            if begin is None and lines + found >= first - 1:
                begin = at + _behind_newline(chunk, first - 1 - lines)
            if end is None and last is not None and lines + found >= last:
                end = at + _behind_newline(chunk, last - lines)
            lines, at, is_open = lines + found, at + len(chunk), not chunk.endswith(b"\n")
        begin = at if begin is None else begin
        return LinePlace(begin, max(begin, at if end is None else end), lines + is_open)

    def _read(self, at: int, size: int) -> bytes:
        if self._fd < 0:
            return b""
        try:
            return os.pread(self._fd, size, at)
        except OSError as problem:
            raise error_of_errno(problem.errno or errno.EIO, self.info.path) from problem

    def _is_binary(self) -> bool | None:
        try:
            return is_binary(os.pread(self._fd, SNIFFED, 0))
        except OSError:
            return None  # some files of /proc and /sys say no when they are read


def with_mime(info: FileInfo) -> FileInfo:
    """Return `info` with its MIME type, where it is a file that somebody has looked into."""
    if info.binary is None:
        return info
    kind, coding = _TYPES.guess_type(info.name)
    if coding is not None:
        kind = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}.get(
            coding
        )
    return replace(info, mime=kind or ("application/octet-stream" if info.binary else "text/plain"))


def _behind_newline(chunk: bytes, number: int) -> int:
    """Return the place behind the `number`th newline of `chunk`, 0 for none."""
    at = 0
    for _ in range(number):
        at = chunk.index(b"\n", at) + 1
    return at
