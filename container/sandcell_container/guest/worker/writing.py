"""Files that are opened for the guest, which moves the bytes: to be read, written as a whole, made, or written on."""

from __future__ import annotations

import errno
import os
import stat

from sandcell_container.drafts import draft_name
from sandcell_container.file_tag import tag_of
from sandcell_container.guest.worker.describing import describe, describe_one
from sandcell_container.guest.worker.opening import (
    Refusal,
    check_enterable,
    check_regular,
    make_folder,
    open_regular,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["append", "begin", "check_tag", "commit", "fifo", "new", "read", "target_of", "temporary_beside"]


def read(reply: Reply, path: bytes, _: dict[str, Any]) -> None:
    fd = open_regular(path)
    try:
        reply.done(describe(path, os.path.basename(path), os.fstat(fd)), fd)
    finally:
        os.close(fd)


def begin(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Open a new file beside the one that is to be written."""
    target = target_of(path)
    status = check_tag(target, request)
    temporary = temporary_beside(target)
    plan: dict[str, object] = {
        "temporary": os.fsdecode(temporary),
        "target": os.fsdecode(target),
        "mode": None if status is None else stat.S_IMODE(status.st_mode),  # None: the umask says it
    }
    _open_new(reply, temporary, plan)


def commit(reply: Reply, temporary: bytes, request: dict[str, Any]) -> None:
    """Put what `begin` has opened into its place."""
    target = os.fsencode(request["target"])
    if request["mode"] is not None:
        os.chmod(temporary, request["mode"])
    if request["exclusive"]:
        os.link(temporary, target)  # and not a rename, which would take the place of what came between
        os.unlink(temporary)
    else:
        check_tag(target, request)
        os.rename(temporary, target)
    reply.done(describe_one(target))


def new(reply: Reply, path: bytes, _: dict[str, Any]) -> None:
    make_folder(os.path.dirname(path))
    _open_new(reply, path, {})


def fifo(reply: Reply, path: bytes, _: dict[str, Any]) -> None:
    """Make a FIFO, and open it for both: whoever reads or writes it by its path never waits for the other end."""
    make_folder(os.path.dirname(path))
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        reply.done(None, fd)
    finally:
        os.close(fd)


def append(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Open a file, made where there is none, so that what is written comes behind what is in it."""
    target = target_of(path)
    check_tag(target, request)
    fd = open_regular(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        reply.done(describe(target, os.path.basename(target), os.fstat(fd)), fd)
    finally:
        os.close(fd)


def target_of(path: bytes) -> bytes:
    """Return where what is written to `path` goes: a symlink is followed, as an editor does; folders are made."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    make_folder(folder)
    check_enterable(folder)
    return target


def check_tag(target: bytes, request: dict[str, Any]) -> os.stat_result | None:
    """Return what is known of the file that is to be replaced, None where there is none; it has to be as the caller knows it."""
    tags = request.get("if_match")
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        if tags is not None:
            raise Refusal("CHANGED_SINCE", "it is not there any more", etag=None) from None
        return None
    check_regular(status)
    if request.get("exclusive"):
        raise FileExistsError(errno.EEXIST, "is there already")
    if tags is not None and "*" not in tags and tag_of(status) not in tags:
        raise Refusal("CHANGED_SINCE", "it has changed since it was read", etag=tag_of(status))
    return status


def temporary_beside(target: bytes) -> bytes:
    return os.path.join(os.path.dirname(target), draft_name())


def _open_new(reply: Reply, path: bytes, answer: dict[str, object]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        reply.done(answer, fd)
    finally:
        os.close(fd)
