"""Sandboxes of this machine as a caller sees them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandcell.api import SandboxInfo
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.engine import Engine, Record

__all__ = ["Found", "born_dead", "find_record", "info_of_record", "not_yours"]


class Found(NamedTuple):
    """One sandbox of this machine and the engine that has it."""

    engine: Engine
    record: Record


def find_record(found: Sequence[Found], name_or_id: str) -> Found:
    """Return the sandbox that has this id, else this name.

    Raises:
        NotFound (NOT_FOUND): there is none.
    """
    matches = [each for each in found if each.record.id == name_or_id]
    matches = matches or [each for each in found if each.record.name == name_or_id]
    if not matches:
        names = ", ".join(each.record.name for each in found[:20])
        raise error(
            ErrorCode.NOT_FOUND,
            f"no sandbox of this machine is called {name_or_id[:80]!r}",
            hint=f"there are: {names}"
            if names
            else "there is none at all: Sandbox.create() or `sandcell start` makes one",
        )
    return matches[0]


def info_of_record(record: Record) -> SandboxInfo:
    """Return what the record alone tells."""
    return SandboxInfo(
        id=record.id,
        name=record.name,
        status=record.status,
        engine=record.engine,
        created_at=record.created_at,
        started_at=record.started_at or record.created_at,
        starts=record.starts,
        version="",
        image=record.image,
    )


def not_yours(name: str, verb: str) -> SandcellError:
    """Return the error of an attached handle that would do what is its owner's to do; `verb` is the command's."""
    return error(
        ErrorCode.FORBIDDEN,
        f"the sandbox {name} belongs to the program that created it",
        hint=f"do it there, or by hand: sandcell {verb} {name}",
    )


def born_dead(problem: SandcellError, words: str) -> SandcellError:
    """Return what a SANDBOX_GONE means for a sandbox that was just made, whose guest said `words`."""
    lines = (line.strip(" |") for line in reversed(words.splitlines()))
    last = next((line for line in lines if line.strip("+-")), "")  # a group of exceptions ends with a rule
    return error(
        ErrorCode.START_FAILED,
        f"the sandbox ended as soon as it was made{last and ': '}{last[:300]}",
        hint="details['words'] has what its guest said; sandcell doctor tries what an engine needs",
        details={"reason": problem.message, "words": words},
    )
