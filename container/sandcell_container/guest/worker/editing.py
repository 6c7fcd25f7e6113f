"""Changes inside a text: read once, changed in memory, written once. What does not fit changes nothing."""

from __future__ import annotations

import errno
import os
import stat

from sandcell_container.guest.worker.describing import describe_one
from sandcell_container.guest.worker.opening import Refusal, open_regular
from sandcell_container.guest.worker.writing import check_tag, temporary_beside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["insert", "insert_after", "replace", "replace_all"]

LARGEST = 64 * 2**20


def replace(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    edits = [(_bytes_of(old), _bytes_of(new)) for old, new in request["edits"]]
    target, data = _load(path, request)
    _store(target, replace_all(data, edits), request)
    reply.done(describe_one(target))


def insert(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    target, data = _load(path, request)
    _store(target, insert_after(data, request["line"], _bytes_of(request["text"])), request)
    reply.done(describe_one(target))


def replace_all(data: bytes, edits: list[tuple[bytes, bytes]]) -> bytes:
    """Return `data` with one edit after another done; each finds its old text exactly once in what those before it have left."""
    for index, (old, new) in enumerate(edits):
        count = data.count(old)
        if count != 1:
            raise Refusal(
                "MATCH_COUNT", f"the old text is there {count} times, not once", count=count, index=index
            )
        data = data.replace(old, new)
    return data


def insert_after(data: bytes, line: int, text: bytes) -> bytes:
    """Return `data` with `text` as lines of their own behind line `line`: 0 is the start, beyond the end appends."""
    at = 0
    for _ in range(line):
        found = data.find(b"\n", at)
        if found < 0:
            at = len(data)
            break
        at = found + 1
    before, after = data[:at], data[at:]
    if before and not before.endswith(b"\n"):
        before += b"\n"
    if text and not text.endswith(b"\n"):
        text += b"\n"
    return before + text + after


def _load(path: bytes, request: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return where a file is, symlinks followed, and what is in it."""
    with os.fdopen(open_regular(path), "rb") as file:
        target = os.path.realpath(path)
        status = check_tag(target, request)
        opened = os.fstat(file.fileno())
        if status is None or not os.path.samestat(status, opened):
            raise OSError(errno.EBUSY, "was replaced meanwhile")
        if opened.st_size > LARGEST:
            raise OSError(errno.EFBIG, "is too large to be changed")
        return target, file.read(LARGEST)


def _store(target: bytes, data: bytes, request: dict[str, Any]) -> None:
    """Put `data` into the place of what is there, which keeps its mode; readers see the old or the new."""
    temporary = temporary_beside(target)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        status = check_tag(target, request)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, "was removed meanwhile")
        os.chmod(temporary, stat.S_IMODE(status.st_mode))
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
