"""How things end and what was cut: shapes that every surface shares."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Cause", "CommandEnd", "End", "KillReport", "Truncation", "end_of_status"]

Cause = Literal[
    "exited", "signaled", "killed", "timeout", "interrupted", "oom", "limit", "lost", "culled", "replaced"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Why and how something ended. Source: DESIGN decision 14.

    `code` is an exit code, or None when a signal ended it (`signal` is then its number). `limit` names the
    limit that was hit. `peak_memory` is in bytes, None where it is not known: of a program that had little, some 10 to 20 MB, it
    cannot be told from that of what started it. `who` is the origin that ended it on purpose. `at` is in
    seconds since the epoch (UTC). `state` tells whether the interpreter state behind an execution was kept.
    """

    cause: Cause
    code: int | None = None
    signal: int | None = None
    limit: str | None = None
    peak_memory: int | None = None
    who: str | None = None
    at: float = 0.0
    state: Literal["kept", "lost"] = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What was cut out of the middle of a text; the whole is at `path` inside the sandbox, None where it is not."""

    bytes: int
    lines: int
    total_bytes: int
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """The ENDED payload of an exec or of a command in a session.

    `exit_code` is None when a signal ended it (then `signal` is its number). `truncated` is by stream name.
    `leftovers` counts the processes of its tree that had to be ended. `usage`: cpu_user and cpu_system in
    seconds. `duration` in seconds.
    """

    end: End
    exit_code: int | None
    signal: int | None
    duration: float
    leftovers: int = 0
    truncated: dict[str, Truncation] = field(default_factory=dict[str, Truncation])
    usage: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class KillReport:
    """What ending a process came to: how many processes of its tree were signalled, and how many are left.

    What is left cannot die now: it waits inside the kernel, or runs with another user's rights.
    """

    killed: int = 0
    survived: int = 0


def end_of_status(
    status: int, *, at: float, peak_memory: int | None = None, cause: Cause | None = None
) -> End:
    """Turn a raw wait status into an End; `cause` overrides what the status alone would say."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return End(cause=cause or "signaled", signal=-code, peak_memory=peak_memory, at=at)
    return End(cause=cause or "exited", code=code, peak_memory=peak_memory, at=at)
