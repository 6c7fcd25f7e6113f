"""What the archive program says when it fails, as the error of a copy. Pure."""

from __future__ import annotations

from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = ["MOST_SAID", "failure_of_copy", "not_running"]

MOST_SAID = 4096  # bytes of what it says that are kept
_CODES = {
    "FileNotFoundError": ErrorCode.FILE_NOT_FOUND,
    "NotADirectoryError": ErrorCode.NOT_A_DIRECTORY,
    "PermissionError": ErrorCode.PERMISSION_DENIED,
    "ProcessLookupError": ErrorCode.SANDBOX_GONE,
    "Refused": ErrorCode.INVALID_PATH,
}
_WORDS = {"No space left": ErrorCode.NO_SPACE, "Read-only file system": ErrorCode.PERMISSION_DENIED}


def failure_of_copy(path: str, said: bytes) -> SandcellError:
    """Return the error of a copy to or from `path`; `said` is the program's line: the name of an exception, and its text."""
    line = said.decode(errors="replace").strip()
    kind, _, text = line.partition(": ")
    by_text = (code for words, code in _WORDS.items() if words in text)
    code = next(by_text, _CODES.get(kind, ErrorCode.INVALID_ARGUMENT))
    return error(code, f"{path[:80]!r} cannot be copied: {text[:300] or line[:300]}", hint="see the message")


def not_running() -> SandcellError:
    """Return the error of a copy from or to what does not run."""
    return error(ErrorCode.BUSY, "the sandbox does not run, so nothing can be copied", hint="start it first")
