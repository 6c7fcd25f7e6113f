"""Bytes from a socket into a file, inside the kernel: they are copied once, and never into this process.

Standard library only: the guest and the client have it. Source: splice(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Self

from sandcell_container.holes import write_all

__all__ = ["Pour"]

_PIPE = 2**20
_REFUSED = {errno.EINVAL, errno.ENOSYS, errno.EBADF}  # by a file system, a terminal, an old kernel


class Pour:
    """What comes from a socket goes into `fd`, which stays the caller's. A context manager: leaving it closes what it has."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._from, self._into = os.pipe2(os.O_CLOEXEC)
        self._held = 0
        try:
            fcntl.fcntl(self._into, fcntl.F_SETPIPE_SZ, _PIPE)
        except OSError:
            pass  # the system grants less: it is only slower

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fill(self, sock: int, most: int) -> int:
        """Take at most `most` bytes from the socket, and return how many: 0 at its end. Then `drain`.

        Raises:
            BlockingIOError: nothing is there; the socket does not block.
            OSError: the connection broke.
        """
        flags = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
        self._held = os.splice(sock, self._into, min(most, _PIPE), flags=flags)
        return self._held

    def drain(self) -> None:
        """Write what was taken. Blocks as a write does. Raises OSError as that; the rest is then dropped."""
        try:
            while self._held and self._splice():
                pass
            while self._held:
                data = os.read(self._from, self._held)
                self._held -= len(data)
                write_all(self._fd, data)
        except OSError:
            self._drop()
            raise

    def close(self) -> None:
        """Twice is fine."""
        for fd in (self._from, self._into):
            if fd >= 0:
                os.close(fd)
        self._from = self._into = -1

    def _splice(self) -> bool:
        """Move some of what is held; returns False where it has to be copied."""
        try:
            moved = os.splice(self._from, self._fd, self._held)
        except OSError as problem:
            if problem.errno not in _REFUSED:
                raise
            return False
        self._held -= moved
        return True

    def _drop(self) -> None:
        while self._held:
            self._held -= len(os.read(self._from, self._held))
