"""Copies of files and folders, whole or not at all: made beside their place, then put into it."""

from __future__ import annotations

import errno
import os
import stat

from sandcell_container.guest.worker.describing import describe_one
from sandcell_container.guest.worker.folders import place_in, remove_tree
from sandcell_container.guest.worker.opening import (
    NotRegular,
    Refusal,
    check_enterable,
    kind_of,
    make_folder,
    open_regular,
)
from sandcell_container.guest.worker.writing import temporary_beside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["copy", "move"]

PIECE = 2**30
SMALL_PIECE = 2**20
NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


def copy(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Copy a file, what a symlink leads to, or a folder with all that is in it, in which symlinks stay symlinks."""
    target = os.fsencode(request["to"])
    source = os.path.realpath(path)
    os.lstat(source)
    _copy_to(source, target, overwrite=request["overwrite"])
    reply.done(describe_one(target))


def move(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Give another name on another file system: a copy, and then the removal of what was copied."""
    target = os.fsencode(request["to"])
    _copy_to(path, target, overwrite=request["overwrite"])
    if stat.S_ISDIR(os.lstat(path).st_mode):
        remove_tree(path)
    else:
        os.unlink(path)
    reply.done(describe_one(target))


def _copy_to(source: bytes, target: bytes, *, overwrite: bool) -> None:
    if os.path.lexists(target) and not overwrite:
        raise FileExistsError(errno.EEXIST, "is there already", target)
    folder = os.path.dirname(target)
    make_folder(folder)
    check_enterable(folder)
    if (os.path.realpath(folder) + b"/").startswith(source + b"/") and os.path.isdir(source):
        raise Refusal("INVALID_ARGUMENT", "a folder cannot be copied into itself")
    temporary = temporary_beside(target)
    try:
        _copy_any(source, temporary)
        place_in(temporary, target, overwrite=overwrite)
    except BaseException:
        _discard(temporary)
        raise


def _copy_any(source: bytes, target: bytes) -> None:
    """Copy what `source` is, and where it is a folder what is in it. One folder after another: no depth is too much."""
    todo = [(source, target)]
    made: list[tuple[bytes, os.stat_result]] = []
    while todo:
        source, target = todo.pop()
        status = os.lstat(source)
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(target, 0o700)
            made.append((target, status))
            todo += [(os.path.join(source, name), os.path.join(target, name)) for name in os.listdir(source)]
        else:
            _copy_one(source, target, status)
    for folder, status in reversed(made):  # last, as it may take the right to write into it
        os.chmod(folder, stat.S_IMODE(status.st_mode))
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_one(source: bytes, target: bytes, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISFIFO(status.st_mode):
        os.mkfifo(target, stat.S_IMODE(status.st_mode))
    elif stat.S_ISREG(status.st_mode):
        _copy_file(source, target)
    else:
        raise NotRegular(kind_of(status.st_mode), source)


def _copy_file(source: bytes, target: bytes) -> None:
    given = open_regular(source)
    try:
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _copy_bytes(given, made)
            status = os.fstat(given)
            os.fchmod(made, stat.S_IMODE(status.st_mode))
            os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(made)
    finally:
        os.close(given)


def _copy_bytes(given: int, made: int) -> None:
    try:
        while os.copy_file_range(given, made, PIECE):
            pass
    except OSError as problem:
        if problem.errno not in NO_KERNEL_COPY:
            raise
    while data := os.read(
        given, SMALL_PIECE
    ):  # files of /proc say 0 and hold more; and what the kernel does not copy
        view = memoryview(data)
        while view:
            view = view[os.write(made, view) :]


def _discard(path: bytes) -> None:
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove_tree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass  # it was not made yet, or was put in its place
