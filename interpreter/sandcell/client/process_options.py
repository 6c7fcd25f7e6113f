"""What the caller asks of processes, checked and turned into plain requests. Pure: the same for both clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, TypeVar, cast

from msgspec import UnsetType

from sandcell.client.checks import check_callbacks, check_path, check_text, check_timeout, env_of, wrong
from sandcell.client.options import check_command, given_id
from sandcell.events import Stderr, Stdout
from sandcell.job_bodies import CreateProcess, ProcessStatus
from sandcell_container.end import End
from sandcell_container.spec import parse_size

__all__ = [
    "OnFull",
    "ProcessCallbacks",
    "ProcessOptions",
    "Scope",
    "StreamName",
    "check_grace",
    "check_pattern",
    "check_scope",
    "check_signal",
    "check_status",
    "make_process",
    "page_query",
    "seconds_of",
]

T = TypeVar("T")

OnFull = Literal["drop_oldest", "block"]
StreamName = Literal["stdout", "stderr"]
Scope = Literal["process", "group", "tree"]

_ON_FULL: tuple[OnFull, ...] = ("drop_oldest", "block")
_STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")
_SCOPES: tuple[Scope, ...] = ("process", "group", "tree")
_STATUSES: tuple[ProcessStatus, ...] = ("running", "ended")


class ProcessOptions(TypedDict, total=False):
    """How a process is started: see `Sandbox.start_process`."""

    id: str | None
    cwd: str | None
    env: Mapping[str, str | None] | None
    timeout: float | None
    stdin: bool
    memory: str | int | None
    on_full: OnFull
    keep_record: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCallbacks:
    """What is called with each piece of output, and once with the end."""

    on_output: Callable[[Stdout | Stderr], object] | None = None
    on_exit: Callable[[End], object] | None = None

    def __post_init__(self) -> None:
        check_callbacks(**{each.name: getattr(self, each.name) for each in fields(self)})

    def __bool__(self) -> bool:
        return self.on_output is not None or self.on_exit is not None


def make_process(
    command: object,
    *,
    id: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout: float | None = None,
    stdin: bool = False,
    memory: str | int | None = None,
    on_full: OnFull = "drop_oldest",
    keep_record: bool = True,
) -> CreateProcess:
    """Return the request of one process.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
    """
    return CreateProcess(
        command=check_command(command),
        id=given_id(id, prefix="prc", what="id of a process"),
        cwd=None if cwd is None else check_path(cwd, what="cwd"),
        env=None if env is None else env_of(env),
        timeout=seconds_of(timeout),
        stdin=bool(stdin),
        memory=None if memory is None else parse_size(memory, what="memory"),
        on_full=_choice(on_full, _ON_FULL, what="on_full"),
        keep_record=bool(keep_record),
    )


def page_query(
    cursor: str | None, *, limit: int | None, stream: StreamName | None, tail: int | None
) -> dict[str, str]:
    """Return the query of one page.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one of them cannot be, or `cursor` and `tail` are both given.
    """
    if cursor is not None and tail is not None:
        raise wrong("tail", "and cursor exclude each other", hint="tail is of all that came so far")
    if stream is not None:
        _choice(stream, _STREAMS, what="stream")
    asked = {"cursor": cursor, "limit": limit, "stream": stream, "tail": tail}
    return {"follow": "false", **{name: str(value) for name, value in asked.items() if value is not None}}


def check_scope(given: object) -> Scope:
    """Return whom a signal goes to, else raise INVALID_ARGUMENT."""
    return _choice(given, _SCOPES, what="scope")


def check_status(given: object) -> ProcessStatus:
    """Return a status to look for, else raise INVALID_ARGUMENT."""
    return _choice(given, _STATUSES, what="status")


def check_signal(given: object) -> int | str:
    """Return what can be the name or number of a signal, else raise INVALID_ARGUMENT."""
    if isinstance(given, int) and not isinstance(given, bool):
        return int(given)  # of signal.Signals, too
    return check_text(given, what="signal")


def check_pattern(given: object) -> re.Pattern[str]:
    """Return a regular expression, compiled where it is text, else raise INVALID_ARGUMENT."""
    hint = "re.escape() makes one of any text"
    if isinstance(given, re.Pattern):
        pattern = cast("re.Pattern[Any]", given)  # type: ignore[redundant-cast]  # one checker knows no more of it
        if isinstance(pattern.pattern, str):
            return pattern
        raise wrong("pattern", "is one of bytes", hint="output is looked at as text")
    try:
        return re.compile(check_text(given, what="pattern"))
    except re.error as problem:
        raise wrong("pattern", f"is no regular expression: {problem}", hint=hint) from problem


def check_grace(given: object) -> float:
    """Return seconds of 0 or more, else raise INVALID_ARGUMENT."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise wrong("grace", f"= {given!r} is no number of seconds", hint="0 kills at once")
    return float(given)


def seconds_of(timeout: object, *, what: str = "timeout") -> float | None:
    """Return `timeout`: seconds above 0, None for no limit. Raises INVALID_ARGUMENT."""
    checked = check_timeout(timeout, what=what)
    return None if isinstance(checked, UnsetType) else checked


def _choice(given: object, known: tuple[T, ...], *, what: str) -> T:
    """Return `given` when it is one of `known`, else raise INVALID_ARGUMENT."""
    for each in known:
        if given == each:
            return each
    names = ", ".join(map(str, known))
    raise wrong(what, f"= {given!r} is none of {names}", hint=f"one of {names}")
