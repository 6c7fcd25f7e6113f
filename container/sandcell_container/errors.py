"""The one hierarchy of errors: what the machinery raises, never what user code did.

SandcellError              code, message, hint, details, retryable
├── InvalidRequest         fix the request: 400, 405, 413, 422 with check=, 501
├── Refused                another credential or permission is needed: 401, 403
├── NotFound               name something that exists: 404
├── Conflict               the state forbids it now: 409
├── Gone                   it ended or was lost, make a new one: 410
├── WaitTimeout            the wait is over, the thing goes on: 408
├── Failed                 the work was done and failed, and `check=True` asked for an exception: 422
├── Limited                over a quota or a rate: 429, 507
├── Unavailable            nothing wrong with the request: retry, or mend the machine: 502, 503, 504
└── InternalError          a fault of ours: 500
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CODES",
    "Conflict",
    "ErrorCode",
    "Failed",
    "Gone",
    "InternalError",
    "InvalidRequest",
    "Limited",
    "NotFound",
    "Refused",
    "SandcellError",
    "Unavailable",
    "WaitTimeout",
    "error",
]


class ErrorCode(StrEnum):
    """What went wrong, for programs. Never an HTTP status."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    INVALID_NAME = "INVALID_NAME"
    INVALID_ENV_NAME = "INVALID_ENV_NAME"
    INVALID_PATH = "INVALID_PATH"
    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_LANGUAGE = "UNKNOWN_LANGUAGE"
    UNKNOWN_SIGNAL = "UNKNOWN_SIGNAL"
    NOT_A_DIRECTORY = "NOT_A_DIRECTORY"
    IS_A_DIRECTORY = "IS_A_DIRECTORY"
    CWD_NOT_FOUND = "CWD_NOT_FOUND"
    STALE_CURSOR = "STALE_CURSOR"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    HOST_NOT_ALLOWED = "HOST_NOT_ALLOWED"
    NOT_FOUND = "NOT_FOUND"
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    EXISTS = "EXISTS"
    BUSY = "BUSY"
    MATCH_COUNT = "MATCH_COUNT"
    CHANGED_SINCE = "CHANGED_SINCE"
    LOST = "LOST"
    SESSION_ENDED = "SESSION_ENDED"
    CONTEXT_DIED = "CONTEXT_DIED"
    SANDBOX_GONE = "SANDBOX_GONE"
    TOO_LARGE = "TOO_LARGE"
    COMMAND_FAILED = "COMMAND_FAILED"
    CODE_FAILED = "CODE_FAILED"
    RATE_LIMITED = "RATE_LIMITED"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    INTERNAL = "INTERNAL"
    UNSUPPORTED = "UNSUPPORTED"
    GIT_FAILED = "GIT_FAILED"
    PORT_NOT_LISTENING = "PORT_NOT_LISTENING"
    ENGINE_UNAVAILABLE = "ENGINE_UNAVAILABLE"
    IMAGE_NOT_FOUND = "IMAGE_NOT_FOUND"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    START_FAILED = "START_FAILED"
    UNREACHABLE = "UNREACHABLE"
    START_TIMEOUT = "START_TIMEOUT"
    NO_SPACE = "NO_SPACE"


class SandcellError(Exception):
    """An operation of the machinery did not succeed; user code that fails is data instead.

    `code` is for programs, `message` says what was tried on what, `hint` what to do next,
    `details` holds JSON-safe facts, `retryable` whether the same call may succeed later.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        hint: str = "",
        details: Mapping[str, Any] | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})
        self.retryable = CODES[code].retryable if retryable is None else retryable

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the body of CONTRACT section 3: `{"error": {code, message, hint, details, retryable}}`."""
        return {
            "error": {
                "code": str(self.code),
                "message": self.message,
                "hint": self.hint,
                "details": self.details,
                "retryable": self.retryable,
            }
        }


class InvalidRequest(SandcellError):
    """Fix the request."""


class Refused(SandcellError):
    """Another credential or permission is needed."""


class NotFound(SandcellError):
    """Name something that exists."""


class Conflict(SandcellError):
    """The present state forbids it."""


class Gone(SandcellError):
    """It ended or was lost; make a new one."""


class WaitTimeout(SandcellError):
    """The wait is over; what was waited for goes on."""


class Failed(SandcellError):
    """The work was done and failed, and `check=True` asked for an exception. `result` holds what came out."""

    result: Any = None


class Limited(SandcellError):
    """Over a quota, a rate, or the space there is."""


class Unavailable(SandcellError):
    """Nothing is wrong with the request: retry, or mend the machine."""


class InternalError(SandcellError):
    """A fault of ours."""


class CodeRow(NamedTuple):
    status: int
    retryable: bool
    kind: type[SandcellError]


# Source: CONTRACT section 4. A test walks the enum, so no code is without a row.
CODES: dict[ErrorCode, CodeRow] = {
    ErrorCode.INVALID_ARGUMENT: CodeRow(400, False, InvalidRequest),
    ErrorCode.INVALID_NAME: CodeRow(400, False, InvalidRequest),
    ErrorCode.INVALID_ENV_NAME: CodeRow(400, False, InvalidRequest),
    ErrorCode.INVALID_PATH: CodeRow(400, False, InvalidRequest),
    ErrorCode.INVALID_JSON: CodeRow(400, False, InvalidRequest),
    ErrorCode.UNKNOWN_LANGUAGE: CodeRow(400, False, InvalidRequest),
    ErrorCode.UNKNOWN_SIGNAL: CodeRow(400, False, InvalidRequest),
    ErrorCode.NOT_A_DIRECTORY: CodeRow(400, False, InvalidRequest),
    ErrorCode.IS_A_DIRECTORY: CodeRow(400, False, InvalidRequest),
    ErrorCode.CWD_NOT_FOUND: CodeRow(400, False, InvalidRequest),
    ErrorCode.STALE_CURSOR: CodeRow(400, False, InvalidRequest),
    ErrorCode.UNAUTHENTICATED: CodeRow(401, False, Refused),
    ErrorCode.FORBIDDEN: CodeRow(403, False, Refused),
    ErrorCode.PERMISSION_DENIED: CodeRow(403, False, Refused),
    ErrorCode.HOST_NOT_ALLOWED: CodeRow(403, False, Refused),
    ErrorCode.NOT_FOUND: CodeRow(404, False, NotFound),
    ErrorCode.FILE_NOT_FOUND: CodeRow(404, False, NotFound),
    ErrorCode.METHOD_NOT_ALLOWED: CodeRow(405, False, InvalidRequest),
    ErrorCode.WAIT_TIMEOUT: CodeRow(408, True, WaitTimeout),
    ErrorCode.EXISTS: CodeRow(409, False, Conflict),
    ErrorCode.BUSY: CodeRow(409, True, Conflict),
    ErrorCode.MATCH_COUNT: CodeRow(409, False, Conflict),
    ErrorCode.CHANGED_SINCE: CodeRow(409, False, Conflict),
    ErrorCode.LOST: CodeRow(410, False, Gone),
    ErrorCode.SESSION_ENDED: CodeRow(410, False, Gone),
    ErrorCode.CONTEXT_DIED: CodeRow(410, True, Gone),
    ErrorCode.SANDBOX_GONE: CodeRow(410, False, Gone),
    ErrorCode.TOO_LARGE: CodeRow(413, False, InvalidRequest),
    ErrorCode.COMMAND_FAILED: CodeRow(422, False, Failed),
    ErrorCode.CODE_FAILED: CodeRow(422, False, Failed),
    ErrorCode.RATE_LIMITED: CodeRow(429, True, Limited),
    ErrorCode.QUOTA_EXCEEDED: CodeRow(429, False, Limited),
    ErrorCode.INTERNAL: CodeRow(500, False, InternalError),
    ErrorCode.UNSUPPORTED: CodeRow(501, False, InvalidRequest),
    ErrorCode.GIT_FAILED: CodeRow(502, False, Unavailable),
    ErrorCode.PORT_NOT_LISTENING: CodeRow(502, True, Unavailable),
    ErrorCode.ENGINE_UNAVAILABLE: CodeRow(503, False, Unavailable),
    ErrorCode.IMAGE_NOT_FOUND: CodeRow(503, False, Unavailable),
    ErrorCode.VERSION_MISMATCH: CodeRow(503, False, Unavailable),
    ErrorCode.START_FAILED: CodeRow(503, False, Unavailable),
    ErrorCode.UNREACHABLE: CodeRow(503, True, Unavailable),
    ErrorCode.START_TIMEOUT: CodeRow(504, True, Unavailable),
    ErrorCode.NO_SPACE: CodeRow(507, False, Limited),
}


def error(
    code: ErrorCode,
    message: str,
    *,
    hint: str = "",
    details: Mapping[str, Any] | None = None,
    retryable: bool | None = None,
) -> SandcellError:
    """Make the error of `code`, of the class that the table gives it. Raise what this returns."""
    return CODES[code].kind(code, message, hint=hint, details=details, retryable=retryable)
