"""Bytes from one open file into another, inside the kernel where it can. Standard library only.

Source: copy_file_range(2), sendfile(2).
"""

from __future__ import annotations

import errno
import os

from sandcell_container.holes import before_hole, skip_hole, write_all

__all__ = ["copy_piece"]

# Another file system, one that cannot, or a target that is a pipe or a terminal.
_REFUSED = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
_MOST_IN_MEMORY = 2**20


def copy_piece(given: int, made: int, at: int, most: int) -> int:
    """Copy at most `most` bytes from `at` of `given` on to where the new file `made` stands; return how many, 0 at the end
    of `given`. A hole stays one.

    Raises:
        OSError: one cannot be read, or the other not be written.
    """
    if hole := skip_hole(given, made, at, most):
        return hole
    most = before_hole(given, at, most)
    for copy in (_share, _send):
        try:
            return copy(given, made, at, most)
        except OSError as problem:
            if problem.errno not in _REFUSED:
                raise
    data = os.pread(given, min(most, _MOST_IN_MEMORY), at)
    write_all(made, data)
    return len(data)


def _share(given: int, made: int, at: int, most: int) -> int:
    """The best where the file system can let both have the same blocks."""
    return os.copy_file_range(given, made, most, at)


def _send(given: int, made: int, at: int, most: int) -> int:
    return os.sendfile(made, given, at, most)
