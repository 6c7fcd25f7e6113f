"""A copy of a tree that hostile code has filled, and may be changing meanwhile: nothing outside of it is ever touched.

Every step goes by a descriptor of the folder above, so that a folder that is replaced by a symlink is no way out.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["copy_tree"]

_DEEPEST = 200  # each level holds two descriptors
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not be waited for
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# It was removed, or became something else, between a look and the next step.
_CHANGED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL}
_CHUNK, _PIECE = 2**26, 2**20


class _Level(NamedTuple):
    """One folder: where it is read and where it is written."""

    source: int
    target: int


def copy_tree(source: Path, target: Path, *, owner: int | None = None) -> int:
    """Copy the folder `source` to `target`, which is not there yet; returns the bytes on the disk that the copy has.

    Files keep their mode but for setuid and setgid, their times, their holes and their hard links; symlinks are copied
    as they are; pipes, sockets and devices are left out. All is given to the user `owner`, which root may do.

    Raises:
        InvalidRequest (UNSUPPORTED): folders lie deeper than 200 levels.
        OSError: no space, or something may not be read.
    """
    target.mkdir(mode=0o700)
    with _opened(os.open(source, _FOLDER)) as read, _opened(os.open(target, _FOLDER)) as written:
        copier = _Copier(written, owner)
        copier.copy(_Level(read, written), ())
    return copier.size


class _Copier:
    def __init__(self, top: int, owner: int | None) -> None:
        self.size = 0
        self._top = top
        self._owner = owner
        self._linked: dict[tuple[int, int], str] = {}  # where in the copy a file with several names is

    def copy(self, level: _Level, way: tuple[str, ...]) -> None:
        """Copy what is in a folder, and then what the folder itself is. `way` leads to it."""
        if len(way) > _DEEPEST:
            raise error(ErrorCode.UNSUPPORTED, f"folders are nested deeper than {_DEEPEST} levels")
        for name in os.listdir(level.source):
            try:
                self._copy_one(level, (*way, name))
            except OSError as failed:
                if failed.errno not in _CHANGED:
                    raise
        self._dress(level.target, os.fstat(level.source))

    def _copy_one(self, level: _Level, way: tuple[str, ...]) -> None:
        name = way[-1]
        found = os.stat(name, dir_fd=level.source, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=level.source), name, dir_fd=level.target)
            if self._owner is not None:
                os.chown(name, self._owner, self._owner, dir_fd=level.target, follow_symlinks=False)
        elif stat.S_ISDIR(found.st_mode):
            os.mkdir(name, 0o700, dir_fd=level.target)
            with (
                _opened(os.open(name, _FOLDER, dir_fd=level.source)) as read,
                _opened(os.open(name, _FOLDER, dir_fd=level.target)) as written,
            ):
                self.copy(_Level(read, written), way)
        elif stat.S_ISREG(found.st_mode):
            with _opened(os.open(name, _FILE, dir_fd=level.source)) as read:
                self._copy_file(level, way, read)

    def _copy_file(self, level: _Level, way: tuple[str, ...], read: int) -> None:
        found = os.fstat(read)
        if not stat.S_ISREG(found.st_mode):
            return  # it became something else meanwhile
        if found.st_nlink > 1:
            known = self._linked.setdefault((found.st_dev, found.st_ino), "/".join(way))
            if known != "/".join(way):
                os.link(known, way[-1], src_dir_fd=self._top, dst_dir_fd=level.target, follow_symlinks=False)
                return
        with _opened(os.open(way[-1], _NEW, 0o600, dir_fd=level.target)) as written:
            _copy_data(read, written, found.st_size)
            self._dress(written, found)
            self.size += os.fstat(written).st_blocks * 512

    def _dress(self, written: int, found: os.stat_result) -> None:
        if self._owner is not None:
            os.fchown(written, self._owner, self._owner)
        os.fchmod(written, found.st_mode & 0o1777)
        os.utime(written, ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_data(read: int, written: int, size: int) -> None:
    """Copy the parts of a file that are no holes. Source: lseek(2), SEEK_DATA."""
    at = 0
    while at < size:
        try:
            start = os.lseek(read, at, os.SEEK_DATA)
        except OSError:
            break  # ENXIO: nothing but a hole is left
        end = min(os.lseek(read, start, os.SEEK_HOLE), size)
        while start < end:
            count = _copy_range(read, written, start, min(end - start, _CHUNK))
            if not count:
                return os.ftruncate(written, start)  # it was cut meanwhile
            start += count
        at = end
    os.ftruncate(written, size)


def _copy_range(read: int, written: int, at: int, size: int) -> int:
    """Copy some bytes, by the file system itself where it can; returns how many."""
    try:
        return os.copy_file_range(read, written, size, at, at)
    except OSError as failed:
        if failed.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
            raise
    return os.pwrite(written, os.pread(read, min(size, _PIECE), at), at)


@contextmanager
def _opened(handle: int) -> Generator[int]:
    try:
        yield handle
    finally:
        os.close(handle)
