"""Opening of what user code may have put there: no wait for a FIFO, no device, no way through /proc's magic links."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

TYPE_CHECKING = False  # importing typing would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "FOLDER",
    "NotRegular",
    "Refusal",
    "check_enterable",
    "check_regular",
    "kind_of",
    "libc",
    "make_folder",
    "open_regular",
    "open_without_magic",
    "rename_new",
    "step",
]

OPENAT2, AT_FDCWD, RESOLVE_NO_MAGICLINKS = 437, -100, 2  # the number is the same on every architecture
RENAME_NOREPLACE = 1
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

libc = ctypes.CDLL(None, use_errno=True)


class NotRegular(Exception):
    """The path leads to something that reading or writing may block on, or that acts when it is opened."""

    def __init__(self, kind: str, path: bytes = b"") -> None:
        super().__init__(kind)
        self.kind = kind
        self.path = path


class Refusal(Exception):
    """It is not done, for a reason that no errno says: one of the codes that the guest knows, and facts for a person."""

    def __init__(self, code: str, why: str, **details: Any) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.details = details


def open_without_magic(path: bytes, flags: int) -> int:
    """Open `path`, refusing what only looks like a symlink (/proc/PID/fd, root, cwd) where the kernel can."""
    flags |= os.O_CLOEXEC
    how = struct.pack("QQQ", flags, 0o666 if flags & os.O_CREAT else 0, RESOLVE_NO_MAGICLINKS)
    fd: int = libc.syscall(OPENAT2, AT_FDCWD, path, how, len(how))
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a seccomp filter that does not know it
        return os.open(path, flags, 0o666)
    raise OSError(number, os.strerror(number))


def open_regular(path: bytes, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; symlinks are followed. Without O_NONBLOCK the open of a FIFO waits for its other end."""
    fd = open_without_magic(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        check_regular(os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(kind_of(status.st_mode))


def check_enterable(path: bytes) -> None:
    """Raise where `path` is no folder, or is reached by way of a magic link."""
    os.close(open_without_magic(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK))


def kind_of(mode: int) -> str:
    names: dict[int, str] = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return names.get(stat.S_IFMT(mode), "no regular file")


def make_folder(path: bytes) -> None:
    """Make a folder and those above it, however many; one that is there is fine."""
    missing: list[bytes] = []
    while not _make_one(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        _make_one(each)


def _make_one(path: bytes) -> bool:
    """Make a folder, or see that it is there; returns False where the one above is missing."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        return False
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way") from None
    return True


def step(folder: int, name: str) -> int:
    """Open what the folder `name` is from `folder`, and close that."""
    there = os.open(name, FOLDER, dir_fd=folder)
    os.close(folder)
    return there


def rename_new(source: bytes, target: bytes) -> None:
    """Rename to a name that nothing has; FileExistsError where something does."""
    if hasattr(libc, "renameat2"):
        if libc.renameat2(AT_FDCWD, source, AT_FDCWD, target, RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number))
    if os.path.lexists(target):  # an old system or file system: what comes between is not noticed
        raise FileExistsError(errno.EEXIST, "is there already")
    os.rename(source, target)
