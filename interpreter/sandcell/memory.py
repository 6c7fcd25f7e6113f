"""Memory of an interpreter: what it may have, and whether the lack of it is what ended it."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.end import End

__all__ = [
    "LEAST_MEMORY",
    "MemoryLimit",
    "check_memory",
    "describe_size",
    "judge_end",
    "limit_of",
    "warnings_of",
]

LEAST_MEMORY = 64 * 2**20  # an interpreter alone has 35 MiB

# What RLIMIT_DATA counts of an interpreter that nothing is in, such as the stacks of its threads. A context's own limit
# leaves it out.
_RESERVED = 88 * 2**20
_NEAR = 0.9  # of a limit: a program that died of it had asked for a piece more than was left
# How C code ends that was given no memory; SIGTRAP is V8.
_FAULTS = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTRAP}


class MemoryLimit(NamedTuple):
    """What an interpreter may have, in bytes; `reserved` of these it never uses."""

    size: int
    reserved: int = 0


def describe_size(size: int) -> str:
    """Return a number of bytes as a person reads it."""
    return f"{size / 2**20:g} MiB" if size % 2**20 == 0 else f"{size} bytes"


def limit_of(context: int | None, sandbox: int | None) -> MemoryLimit | None:
    """Return the limit that is reached first of a context's own and of the sandbox's, None where there is none."""
    if context is not None and (sandbox is None or context <= sandbox):
        return MemoryLimit(context)
    return MemoryLimit(sandbox, _RESERVED) if sandbox is not None else None


def check_memory(wanted: int | None, *, least: int = LEAST_MEMORY, who: str = "an interpreter") -> int | None:
    """Return the limit in bytes that `who` is to have.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): nobody of the kind can live with less than `least`.
    """
    if wanted is not None and wanted < least:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"memory={describe_size(wanted)} is too little for {who}",
            hint=f"it needs {describe_size(least)} at least",
            details={"field": "memory"},
        )
    return wanted


def warnings_of(wanted: int | None, sandbox: int | None, *, of: str = "context") -> tuple[str, ...]:
    """Return what does not hold as asked for of a limit, in a sandbox that has one of its own or has none."""
    if wanted is None:
        return ()
    told = [f"memory is limited for each process of the {of}, not for their sum"]
    if sandbox is not None and sandbox < wanted:
        told.append(f"the sandbox's own limit of {describe_size(sandbox)} is lower")
    return tuple(told)


def judge_end(end: End, limit: MemoryLimit | None) -> End:
    """Return how a process ended, with the cause "oom" where a fault of it says that its limit left it without memory."""
    near = limit is not None and (end.peak_memory or 0) >= _NEAR * (limit.size - limit.reserved)
    return replace(end, cause="oom", limit="memory") if end.signal in _FAULTS and near else end
