"""How a process comes to its end: who meant it to, how it exited, what it left behind. Pure."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from sandcell_container.end import CommandEnd, End
from sandcell_container.guest.exec import usage_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.guest.job import JobExit

__all__ = ["Ending", "OwnCause"]

OwnCause = Literal["timeout", "killed"]


class Ending:
    """Collects it. `judge` may see in an end that memory was short; it is not asked where this side ended the process."""

    def __init__(self, judge: Callable[[End], End]) -> None:
        self._judge = judge
        self._began = time.monotonic()
        self._lasted = 0.0
        self._cause: OwnCause | None = None
        self._who: str | None = None
        self._exit: JobExit | None = None
        self._has_exited = False
        self._leftovers = 0

    @property
    def has_exited(self) -> bool:
        """Whether the started process is gone; others of its tree may be there."""
        return self._has_exited

    def note_start(self) -> None:
        self._began = time.monotonic()

    def note_cause(self, cause: OwnCause, who: str | None) -> None:
        """Somebody ends it. The first who does counts, and nobody does where it had ended by itself."""
        if self._cause is None and not self._has_exited:
            self._cause, self._who = cause, who

    def note_exit(self, ended: JobExit | None) -> None:
        """The started process was reaped; None: the sandbox was lost before."""
        self._has_exited, self._exit = True, ended
        self._lasted = time.monotonic() - self._began

    def note_leftovers(self, count: int) -> None:
        """So many processes of its tree were ended besides the started one."""
        self._leftovers = max(self._leftovers, count)

    def result(self) -> CommandEnd:
        """Return how it ended."""
        end = self._how()
        return CommandEnd(
            end=end,
            exit_code=end.code,
            signal=end.signal,
            duration=self._lasted,
            leftovers=self._leftovers,
            usage=usage_of(self._exit),
        )

    def _how(self) -> End:
        ended = self._exit
        if ended is None:
            return End(cause="lost", at=time.time())
        end = ended.end(self._cause)
        return self._judge(end) if self._cause is None else replace(end, who=self._who)
