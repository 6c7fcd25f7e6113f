"""What earlier starts of the sandbox had: who asks for it is told that it is lost, and not that it never was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.api import ContextInfo
from sandcell.job_bodies import ProcessInfo, SessionInfo, TerminalInfo
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from sandcell_container.memo import Kind, Memo

__all__ = ["RESTARTED", "as_lost", "note_answer"]

RESTARTED = "the sandbox was stopped and started again"
_KINDS: dict[type, Kind] = {
    ContextInfo: "context",
    SessionInfo: "session",
    ProcessInfo: "process",
    TerminalInfo: "terminal",
}


def note_answer(memo: Memo, answer: object) -> None:
    """Remember what was just made, where `answer` says that something was."""
    kind = _KINDS.get(type(answer))
    if kind is not None and isinstance(answer, ContextInfo | SessionInfo | ProcessInfo | TerminalInfo):
        memo.note_made(kind, answer.id)


def as_lost(memo: Memo, problem: SandcellError) -> SandcellError:
    """Return LOST for a NOT_FOUND whose details name, by kind and id, what an earlier start had; another error as it is."""
    match problem.details:
        case {"kind": "context" | "session" | "process" | "terminal" | "run" as kind, "id": str(name)} if (
            problem.code is ErrorCode.NOT_FOUND and memo.is_lost(kind, name)
        ):
            return error(
                ErrorCode.LOST,
                f"the {kind} {name[:80]} is lost: {RESTARTED} since",
                hint="files, environment and secrets are there; make a new one",
                details=problem.details,
            )
        case _:
            return problem
