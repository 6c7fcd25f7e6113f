"""Foreign errors become ours here, at the wall, by one pure function."""

from __future__ import annotations

import errno
import re

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = ["failure_of"]

_FIELD = re.compile(r"field `([^`]+)`|at `\$\.?([^`]*)`")

_ERRNO = {
    errno.ENOENT: ErrorCode.FILE_NOT_FOUND,
    errno.EACCES: ErrorCode.PERMISSION_DENIED,
    errno.EPERM: ErrorCode.PERMISSION_DENIED,
    errno.ENOSPC: ErrorCode.NO_SPACE,
    errno.EDQUOT: ErrorCode.NO_SPACE,
    errno.ENOTDIR: ErrorCode.NOT_A_DIRECTORY,
    errno.EISDIR: ErrorCode.IS_A_DIRECTORY,
}


# For errors that come without one: what a caller can do is the same wherever they arise.
_HINTS = {
    ErrorCode.FILE_NOT_FOUND: "look at the spelling; a relative path counts from the working directory",
    ErrorCode.INVALID_ARGUMENT: "GET /openapi.json has the shapes and their bounds",
    ErrorCode.INVALID_PATH: "a path has 1 to 4095 bytes, none of them NUL, and leads to a file or a folder",
    ErrorCode.IS_A_DIRECTORY: "list it, or name a file in it",
    ErrorCode.NOT_A_DIRECTORY: "name the folder, or read the file",
    ErrorCode.PERMISSION_DENIED: "user code has its own home, /workspace and /tmp to write in",
}


def failure_of(problem: BaseException, *, request_id: str = "") -> SandcellError:
    """Return what `problem` means to a caller; an error of ours is returned as it is, with a hint at the least.

    A body that does not fit its type names the field. What nobody foresaw is INTERNAL and says its kind
    only: the words of a foreign exception may hold what a caller is not to see; the log has them.
    """
    failure = _translated(problem, request_id)
    failure.hint = failure.hint or _HINTS.get(failure.code, "")
    return failure


def _translated(problem: BaseException, request_id: str) -> SandcellError:
    if isinstance(problem, SandcellError):
        return problem
    if isinstance(problem, msgspec.ValidationError):
        return _misshaped(problem)
    if isinstance(problem, msgspec.DecodeError | UnicodeDecodeError):
        return error(ErrorCode.INVALID_JSON, f"the body is no JSON: {problem}", hint="send a JSON object")
    if isinstance(problem, OSError) and problem.errno in _ERRNO:
        return error(_ERRNO[problem.errno], problem.strerror or str(problem))
    return error(
        ErrorCode.INTERNAL,
        f"an unexpected {type(problem).__name__}",
        hint="the log of the guest says more",
        details={"request_id": request_id} if request_id else None,
    )


def _misshaped(problem: msgspec.ValidationError) -> SandcellError:
    found = _FIELD.search(str(problem))
    field = (found[1] or found[2]) if found else ""
    details = {"field": field} if field else None
    return error(ErrorCode.INVALID_ARGUMENT, f"the body does not fit: {problem}", details=details)
