"""Makes in a folder what is in an archive. Standard library only: the worker and the client have it.

No symlink is followed, whatever is in the folder or comes with the archive: each folder on the way is opened from the one
above it. A file is made beside its place and put there whole.
"""

from __future__ import annotations

import errno
import os

from sandcell_container.drafts import draft_name
from sandcell_container.holes import write_with_holes
from sandcell_container.tar_reader import InvalidArchive

__all__ = ["FolderMaker"]

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_ENTRIES = 5_000_000


class FolderMaker:
    """A TarSink. `any_links`: symlinks may lead out of the folder; else these are left out and named in `left_out`.

    Call `finish` when all has come, and `close` in the end.
    """

    def __init__(self, folder: bytes, *, any_links: bool) -> None:
        self.files = 0
        self.bytes = 0
        self.left_out: list[str] = []
        self._any_links = any_links
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent: tuple[tuple[bytes, ...], int] | None = None  # the last one, as many files share it
        self._file = -1
        self._place: tuple[tuple[bytes, ...], bytes, int] = ((), b"", 0)
        self._folders: list[tuple[tuple[bytes, ...], int, int]] = []
        self._entries = 0

    # a TarSink

    def folder(self, name: tuple[bytes, ...], mode: int, mtime: int) -> None:
        self._count()
        if name:  # the folder itself stays as it is
            self._enter(name)
            self._folders.append((name, mode, mtime))

    def symlink(self, name: tuple[bytes, ...], target: bytes) -> None:
        self._count()
        if not self._any_links and not _stays_inside(len(name) - 1, target):
            self.left_out.append(f"{os.fsdecode(b'/'.join(name))}: a symlink that leads out of the folder")
            return
        parent, temporary = self._enter(name[:-1]), draft_name()
        os.symlink(target, temporary, dir_fd=parent)
        self._put(temporary, name, parent)

    def begin_file(self, name: tuple[bytes, ...], mode: int, mtime: int) -> None:
        self._count()
        parent, temporary = self._enter(name[:-1]), draft_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(temporary, flags, 0o600, dir_fd=parent)
        os.fchmod(self._file, mode)
        self._place = (name, temporary, mtime)

    def write(self, data: memoryview) -> None:
        self.bytes += len(data)
        write_with_holes(self._file, data)

    def end_file(self) -> None:
        name, temporary, mtime = self._place
        parent = self._enter(name[:-1])
        os.ftruncate(self._file, os.lseek(self._file, 0, os.SEEK_CUR))
        os.utime(self._file, (mtime, mtime))
        os.close(self._file)
        self._file = -1
        self._put(temporary, name, parent)
        self.files += 1

    def skipped(self, names: list[str]) -> None:
        self.left_out += names

    # its life

    def finish(self) -> None:
        """Give the folders their modes and times, last as they may take the right to write."""
        for name, mode, mtime in sorted(self._folders, key=lambda each: len(each[0]), reverse=True):
            fd = self._enter(name)
            os.fchmod(fd, mode)
            os.utime(fd, (mtime, mtime))
        self._folders.clear()

    def close(self) -> None:
        """Take away the file that is half there, and close what is open. Twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            name, temporary, _ = self._place
            os.unlink(temporary, dir_fd=self._enter(name[:-1]))
        self._leave()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _enter(self, name: tuple[bytes, ...]) -> int:
        """Return a descriptor of a folder, which is made where it is missing. It is open until the next one is entered."""
        if self._parent is not None and self._parent[0] == name:
            return self._parent[1]
        self._leave()
        fd = os.dup(self._root)
        os.set_inheritable(fd, False)
        try:
            for part in name:
                below = _open_or_make(part, fd)
                os.close(fd)
                fd = below
        except BaseException:
            os.close(fd)
            raise
        self._parent = (name, fd)
        return fd

    def _leave(self) -> None:
        parent, self._parent = self._parent, None
        if parent is not None:
            os.close(parent[1])

    def _put(self, temporary: bytes, name: tuple[bytes, ...], parent: int) -> None:
        try:
            os.rename(temporary, name[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            os.unlink(temporary, dir_fd=parent)
            raise

    def _count(self) -> None:
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise InvalidArchive(f"it holds more than {MOST_ENTRIES} files")


def _open_or_make(name: bytes, parent: int) -> int:
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(name, 0o777, dir_fd=parent)
        return os.open(name, FOLDER, dir_fd=parent)
    except OSError as problem:
        if problem.errno in (errno.ENOTDIR, errno.ELOOP):
            raise NotADirectoryError(errno.ENOTDIR, "a file or a symlink is in the way", name) from None
        raise


def _stays_inside(depth: int, target: bytes) -> bool:
    """Tell whether a symlink in a folder so deep leads no higher than the top.

    `..` counts only at its beginning: behind a name that is a symlink itself it would mean another folder.
    """
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    ups = 0
    while ups < len(parts) and parts[ups] == b"..":
        ups += 1
    return not target.startswith(b"/") and ups <= depth and b".." not in parts[ups:]
