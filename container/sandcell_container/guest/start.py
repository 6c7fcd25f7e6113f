"""One process to start: what it is asked to be, checked and encoded, and what is said when it does not start. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = ["Start", "encode_start", "start_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One process to start. `argv[0]` is looked up in the PATH of `env` when it has no slash; `env` is the whole
    environment; `cwd` is absolute. The descriptors are the caller's own, who closes them when the start returned;
    None is /dev/null. The process gets no other descriptor, and a session of its own. `terminal`, the slave end of a
    PTY, is all three, none of which is given then, and becomes the one that controls the session. `extra` is its
    descriptor 3, for a program of ours, which closes it before user code runs. `memory` is how many bytes it may have,
    and each process that it starts; user code cannot take that back."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    terminal: int | None = None
    extra: int | None = None
    memory: int | None = None


def encode_start(start: Start) -> list[bytes]:
    """Return the fields of a start from MEMORY on. Raises as `Spawner.start` does for what is wrong with the words."""
    if not start.argv or not start.argv[0]:
        raise error(ErrorCode.INVALID_ARGUMENT, "the command names no program")
    for name in start.env:
        if not name or "=" in name or "\0" in name:
            raise error(
                ErrorCode.INVALID_ENV_NAME,
                f"{name[:80]!r} cannot be the name of a variable",
                hint="at least one character, and neither = nor NUL",
            )
    if not start.cwd.startswith("/"):
        raise error(ErrorCode.INVALID_ARGUMENT, f"the folder {start.cwd[:80]!r} is not absolute")
    cwd = _encode(start.cwd, "the folder")
    argv = [_encode(argument, "an argument") for argument in start.argv]
    env = [_encode(f"{name}={value}", f"the variable {name[:80]!r}") for name, value in start.env.items()]
    return [b"%d" % (start.memory or 0), cwd, b"%d" % len(argv), *argv, *env]


def _encode(text: str, what: str) -> bytes:
    """Return the bytes of `text`, as PEP 383 has it: lone surrogates stand for bytes that are not UTF-8."""
    if "\0" in text:
        raise error(
            ErrorCode.INVALID_ARGUMENT, f"{what} holds a NUL character", hint="no command can take one"
        )
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        raise error(ErrorCode.INVALID_ARGUMENT, f"{what} is no text: {problem.reason}") from None


def start_error(number: int, step: str, start: Start) -> SandcellError:
    """Translate what the system said about a start."""
    details = {"errno": errno.errorcode.get(number, str(number)), "step": step}
    if step == "cwd":
        code, message, hint = _CWD_PROBLEMS.get(number, _OTHER_CWD_PROBLEM)
    else:
        code, message, hint = _EXEC_PROBLEMS.get(number, _OTHER_EXEC_PROBLEM)
    message = message.format(cwd=start.cwd[:200], program=start.argv[0][:200], reason=os.strerror(number))
    return error(code, message, hint=hint, details=details, retryable=True if number in _TRANSIENT else None)


_TRANSIENT = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETXTBSY})
_Problem = tuple[ErrorCode, str, str]
_OTHER_CWD_PROBLEM: _Problem = (ErrorCode.CWD_NOT_FOUND, "cannot enter {cwd!r}: {reason}", "")
_CWD_PROBLEMS: dict[int, _Problem] = {
    errno.ENOENT: (
        ErrorCode.CWD_NOT_FOUND,
        "there is no folder {cwd!r}",
        "make it first, or name another cwd",
    ),
    errno.ENOTDIR: (ErrorCode.CWD_NOT_FOUND, "{cwd!r} is no folder", "name a folder as cwd"),
    errno.EACCES: (ErrorCode.PERMISSION_DENIED, "the user may not enter {cwd!r}", "name another cwd"),
}
_OTHER_EXEC_PROBLEM: _Problem = (ErrorCode.START_FAILED, "{program!r} did not start: {reason}", "")
_EXEC_PROBLEMS: dict[int, _Problem] = {
    errno.ENOENT: (
        ErrorCode.INVALID_ARGUMENT,
        "no program {program!r}",
        "look at the spelling, at PATH, and at the interpreter that its first line names",
    ),
    errno.ENOTDIR: (ErrorCode.INVALID_ARGUMENT, "no program {program!r}", "a part of its path is no folder"),
    errno.EACCES: (
        ErrorCode.INVALID_ARGUMENT,
        "{program!r} may not be executed",
        "chmod +x, or start it by its interpreter",
    ),
    errno.ENOEXEC: (
        ErrorCode.INVALID_ARGUMENT,
        "{program!r} is no program",
        "a script needs a first line such as #!/bin/sh",
    ),
    errno.E2BIG: (
        ErrorCode.INVALID_ARGUMENT,
        "the arguments and the environment of {program!r} are too long",
        "one argument or variable may have 128 KiB; pass more by stdin or a file",
    ),
    errno.ENAMETOOLONG: (ErrorCode.INVALID_ARGUMENT, "the name of the program is too long", ""),
    errno.ELOOP: (ErrorCode.INVALID_ARGUMENT, "{program!r} is a loop of symbolic links", ""),
    errno.EAGAIN: (
        ErrorCode.START_FAILED,
        "{program!r} did not start: the process limit of the sandbox is reached",
        "end some of its processes",
    ),
    errno.EMFILE: (
        ErrorCode.START_FAILED,
        "{program!r} did not start: the spawner has too many open files",
        "end some of the sandbox's processes",
    ),
}
