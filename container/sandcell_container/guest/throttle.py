"""Lets a process write, or wait: for somebody to read what must not be dropped, or a moment for who is reading."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from sandcell_container.guest.backlog import Backlog

if TYPE_CHECKING:
    from sandcell_container.journal import Cursor, Journal, JournalLimits

__all__ = ["Throttle"]

_AHEAD = 2**19  # of a follower: half of what a journal holds in memory, so that it reads from there
_PATIENCE_S = 0.05


class Pipes(Protocol):
    """What the process writes into. Paused, it waits once they are full."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Throttle:
    """Between the pipes of a process and its journal, whose readers it is told of. `must_keep`: nothing of it is to be
    dropped before somebody has read it. Give it back with `stop`."""

    def __init__(self, pipes: Pipes, journal: Journal, limits: JournalLimits, *, must_keep: bool) -> None:
        self._pipes = pipes
        self._journal = journal
        self._disk = limits.disk
        self._backlog = Backlog(limits.memory // 2 if must_keep else None, _AHEAD)
        self._has_asked = False
        self._is_over = False
        self._patience: asyncio.TimerHandle | None = None
        journal.when_read(self._on_read)

    def note_written(self) -> None:
        """The journal has more."""
        if self._is_over:
            return
        written = self._journal.cursor
        if self._backlog.is_full(written):
            self._ask_for_disk()
        if self._backlog.is_full(written):
            self._pipes.pause()
        elif self._backlog.is_ahead(written):
            self._pipes.pause()
            if self._patience is None:
                self._patience = asyncio.get_running_loop().call_later(_PATIENCE_S, self._lose_patience)
        else:
            self._pipes.resume()

    def note_read(self, cursor: Cursor) -> None:
        """Somebody has read as far as `cursor`, and does not read just now."""
        self._backlog.note_read(cursor)
        self.note_written()

    def stop(self) -> None:
        """Wait for nobody any more. Twice is fine."""
        self._is_over = True
        self._be_patient()

    def _be_patient(self) -> None:
        """Whoever reads has gone on: the moment begins anew."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _on_read(self) -> None:
        self._backlog.note_reader(self._journal.furthest)
        self._be_patient()
        self.note_written()

    def _lose_patience(self) -> None:
        self._patience = None
        self._backlog.lose_patience()
        self.note_written()

    def _ask_for_disk(self) -> None:
        """Set aside the disk of what must not be dropped; where there is too little of it, memory has to do.

        Half of the room is for what was read, and may have been lost on its way.
        """
        if not self._has_asked:
            self._has_asked = True
            if self._journal.reserve_disk():
                self._backlog.widen(self._disk // 2)
