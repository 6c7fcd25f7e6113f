"""What callers give, whatever its type: returned when it can be used, else refused by the parameter's name. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

from msgspec import UnsetType

from sandcell.environment import check_env
from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = [
    "check_bytes_as_text",
    "check_callbacks",
    "check_count",
    "check_data",
    "check_file",
    "check_number",
    "check_path",
    "check_text",
    "check_timeout",
    "env_of",
    "wrong",
]


def wrong(
    what: str, problem: str, *, hint: str, code: ErrorCode = ErrorCode.INVALID_ARGUMENT
) -> SandcellError:
    """Return the error of the parameter `what`."""
    return error(code, f"{what} {problem}"[:200], hint=hint, details={"field": what})


def check_text(given: object, *, what: str, code: ErrorCode = ErrorCode.INVALID_ARGUMENT) -> str:
    """Return `given` when it is text that can be sent, else raise `code` (INVALID_ARGUMENT)."""
    if not isinstance(given, str):
        hint = f"give {what} as a str"
        raise wrong(what, f"has to be text, not {type(given).__name__}", hint=hint, code=code)
    try:
        given.encode()
    except UnicodeEncodeError as problem:
        hint = "a lone surrogate is half a character"
        raise wrong(what, f"is no text: {problem}", hint=hint, code=code) from problem
    return given


def check_path(given: object, *, what: str = "path") -> str:
    """Return `given`, text or a path object, as text when it may name a file; one that is no UTF-8 is as `os.fsdecode` gives it.

    Raises:
        InvalidRequest (INVALID_PATH): it is neither, or holds a surrogate that stands for no byte.
    """
    text: object = os.fspath(cast("os.PathLike[str]", given)) if isinstance(given, os.PathLike) else given
    return check_bytes_as_text(text, what=what, code=ErrorCode.INVALID_PATH)


def check_bytes_as_text(given: object, *, what: str, code: ErrorCode = ErrorCode.INVALID_ARGUMENT) -> str:
    """Return `given` when it stands for bytes, as `os.fsdecode` makes text of them; else raise `code`."""
    if not isinstance(given, str):
        raise wrong(what, f"has to be text, not {type(given).__name__}", hint="give it as a str", code=code)
    try:
        given.encode(errors="surrogateescape")
    except UnicodeEncodeError as problem:
        hint = "os.fsdecode() makes text of any bytes"
        raise wrong(what, f"is no text: {problem}", hint=hint, code=code) from problem
    return given


def check_file(given: object, *, what: str) -> str:
    """Return the path of a file of this machine, else raise INVALID_ARGUMENT."""
    path: object = (
        os.fspath(cast("os.PathLike[str]", given)) if isinstance(given, str | os.PathLike) else None
    )
    if not isinstance(path, str) or not path or "\0" in path:
        raise wrong(what, f"= {given!r} is no path", hint="of a file on this machine")
    return path


def check_data(given: object, *, what: str) -> bytes:
    """Return bytes or text, which is sent as UTF-8, else raise INVALID_ARGUMENT."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(cast("bytes", given))
    if isinstance(given, str):
        return check_text(given, what=what).encode()
    raise wrong(
        what, f"has to be text or bytes, not {type(given).__name__}", hint="str(...) makes text of it"
    )


def check_number(given: object, *, what: str, hint: str) -> float:
    """Return `given` when it is a finite number above 0, else raise INVALID_ARGUMENT."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise wrong(what, f"has to be a number, not {type(given).__name__}", hint=hint)
    if not (given > 0 and math.isfinite(given)):
        raise wrong(what, f"= {given!r} has to be a finite number above 0", hint=hint)
    return given


def check_count(given: object, *, what: str, least: int) -> int:
    """Return `given` when it is a whole number of at least `least`, else raise INVALID_ARGUMENT."""
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise wrong(what, f"= {given!r} is too few or no whole number", hint=f"at least {least}")
    return given


def check_timeout(given: object, *, what: str = "timeout") -> float | UnsetType | None:
    """Return `given`: seconds above 0, None for no limit, UNSET for the sandbox's default.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is 0 or less, or no finite number.
    """
    if given is None or isinstance(given, UnsetType):
        return given
    return float(check_number(given, what=what, hint="seconds above 0; None is no limit"))


def env_of(given: object, *, what: str = "env") -> dict[str, str | None]:
    """Return `given` as changes to an environment: nothing for None.

    Raises:
        InvalidRequest: INVALID_ARGUMENT: it is no mapping, or a value no text; INVALID_ENV_NAME.
    """
    if given is None:
        return {}
    if not _is_mapping(given):
        problem = f"has to be a mapping, not {type(given).__name__}"
        raise wrong(what, problem, hint='names and their values: {"NAME": "value"}')
    checked = {
        check_text(name, what=what, code=ErrorCode.INVALID_ENV_NAME): value for name, value in given.items()
    }
    for value in checked.values():
        if value is not None:
            check_bytes_as_text(value, what=what)
    return dict(check_env(checked))


def _is_mapping(given: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(given, Mapping)


def check_callbacks(**given: object) -> None:
    """Refuse what is neither None nor can be called: INVALID_ARGUMENT."""
    for name, callback in given.items():
        if callback is not None and not callable(callback):
            problem = f"has to be a function, not {type(callback).__name__}"
            raise wrong(name, problem, hint=f"give {name} what can be called with one argument")
