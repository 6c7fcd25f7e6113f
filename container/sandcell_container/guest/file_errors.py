"""What the system and the worker say of a file, in our codes. Pure."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError
    from sandcell_container.guest.user_worker import Answer

__all__ = ["error_of_answer", "error_of_errno"]

_CODES: dict[int, ErrorCode] = {
    errno.ENOENT: ErrorCode.FILE_NOT_FOUND,
    errno.EISDIR: ErrorCode.IS_A_DIRECTORY,
    errno.ENOTDIR: ErrorCode.NOT_A_DIRECTORY,
    errno.EACCES: ErrorCode.PERMISSION_DENIED,
    errno.EPERM: ErrorCode.PERMISSION_DENIED,
    errno.EROFS: ErrorCode.PERMISSION_DENIED,
    errno.ETXTBSY: ErrorCode.PERMISSION_DENIED,
    errno.EEXIST: ErrorCode.EXISTS,
    errno.ENOTEMPTY: ErrorCode.EXISTS,
    errno.EINVAL: ErrorCode.INVALID_PATH,
    errno.ELOOP: ErrorCode.INVALID_PATH,
    errno.ENAMETOOLONG: ErrorCode.INVALID_PATH,
    errno.ENXIO: ErrorCode.INVALID_PATH,
    errno.ENODEV: ErrorCode.INVALID_PATH,
    errno.ENOSPC: ErrorCode.NO_SPACE,
    errno.EDQUOT: ErrorCode.NO_SPACE,
    errno.EFBIG: ErrorCode.TOO_LARGE,
    errno.EAGAIN: ErrorCode.BUSY,  # another process holds a lease
    errno.EBUSY: ErrorCode.BUSY,
}
_HINTS: dict[int, str] = {
    errno.EISDIR: "recursive=True removes a folder with all that is in it; other calls want a file",
    errno.EEXIST: "overwrite=True takes its place",
}
_REFUSED = {
    ErrorCode.MATCH_COUNT: "give more of the text around it, so that it is there exactly once",
    ErrorCode.CHANGED_SINCE: "read it again, and repeat the change on what is there now",
    ErrorCode.INVALID_ARGUMENT: "docs/files.md says what is taken",
    ErrorCode.QUOTA_EXCEEDED: "",
}


def error_of_errno(number: int, path: str, *, kind: str = "") -> SandcellError:
    """Translate what the system said about `path`; `kind` is what that is, where it is no regular file."""
    if kind or number == errno.ENXIO:
        return error(
            ErrorCode.INVALID_PATH,
            f"{path[:200]!r} is {kind or 'a socket or a device'}",
            hint="only regular files can be read and written here",
        )
    return error(
        _CODES.get(number, ErrorCode.INTERNAL),
        f"{path[:200]!r}: {os.strerror(number)}",
        hint=_HINTS.get(number, ""),
        details={"path": path[:4096], "errno": errno.errorcode.get(number, str(number))},
    )


def error_of_answer(answer: Answer, path: str) -> SandcellError:
    """Translate the failure that the worker tells about `path`, which it may do wrongly: only codes that it may use are."""
    if not answer.refused:
        return error_of_errno(answer.number, answer.at or path, kind=answer.kind)
    found = next((code for code in _REFUSED if code == answer.refused), ErrorCode.INTERNAL)
    facts = {
        name: value
        for name, value in answer.details.items()
        if isinstance(value, int | str | None) and len(str(value)) < 200
    }
    return error(
        found,
        f"{path[:200]!r}: {answer.why}",
        hint=_REFUSED.get(found, ""),
        details={"path": path[:4096], **facts},
    )
