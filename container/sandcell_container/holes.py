"""Holes of sparse files: what is all zeros and was never written takes no room. Standard library only.

Code in a sandbox makes a file of a terabyte with one call; who fetches it is not to need a terabyte for that.
"""

from __future__ import annotations

import errno
import os

__all__ = ["before_hole", "skip_hole", "write_all", "write_with_holes"]

_STEP = 2**16
_ZEROS = bytes(_STEP)
_LEAST = 512  # bytes: less is not worth a call
_MOST = 2**20  # bytes at once


def write_with_holes(fd: int, data: bytes | memoryview) -> None:
    """Write `data` where the new file `fd` stands, and leave out what is zeros. Whoever calls it ends with `os.ftruncate`
    to where the file stands then, as a hole at the end is nothing by itself."""
    view, begin = memoryview(data), 0
    for at in range(0, len(view), _STEP):
        piece = view[at : at + _STEP]
        if not _is_zeros(piece):
            continue
        write_all(fd, view[begin:at])
        os.lseek(fd, len(piece), os.SEEK_CUR)
        begin = at + len(piece)
    write_all(fd, view[begin:])


def skip_hole(given: int, made: int, at: int, most: int) -> int:
    """Leave the hole that `given` has at `at` in the new file `made` as well, which stands there; return how many bytes of
    it, `most` at most: 0 where there is none, or `made` is no file."""
    try:
        hole = min(_seek(given, at, os.SEEK_DATA) - at, most)
        if hole > 0:
            os.ftruncate(made, os.lseek(made, hole, os.SEEK_CUR))
    except OSError:
        return 0  # a pipe, a device, a file system that knows no holes
    return max(hole, 0)


def before_hole(given: int, at: int, most: int) -> int:
    """Return how many bytes from `at` on come before the next hole of `given`, `most` at most."""
    try:
        return min(_seek(given, at, os.SEEK_HOLE) - at, most) or most
    except OSError:
        return most


def _seek(given: int, at: int, wanted: int) -> int:
    """Return where the next data or hole begins: the end of the file where there is no more, `at` behind that."""
    try:
        return os.lseek(given, at, wanted)
    except OSError as problem:
        if problem.errno != errno.ENXIO:
            raise
        return max(os.fstat(given).st_size, at)


def _is_zeros(piece: memoryview) -> bool:
    is_worth_it = len(piece) >= _LEAST and not piece[0] and not piece[-1]
    return is_worth_it and piece.tobytes() == _ZEROS[: len(piece)]


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of it. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:_MOST]) :]
