"""A writer that waits a moment for who reads it: nothing is dropped only because a reader had no turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandcell_container.guest.backlog import Backlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.journal import Journal

__all__ = ["Pace"]

_PATIENCE_S = 0.05


class Pace:
    """Between a journal and what fills it, which `pause` stops and `resume` lets go on; both may be called twice.

    `ahead` bytes ahead of the furthest of the journal's readers it is stopped, until that one has gone on, and for 50 ms at
    most: a reader that stands still stops nobody. Without readers nothing is. Give it back with `close`.
    """

    def __init__(
        self, journal: Journal, ahead: int, *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._backlog = Backlog(None, ahead)
        self._pause = pause
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        journal.when_read(self._on_read)

    def regulate(self) -> None:
        """Something was written: stop it, or let it go on."""
        if self._is_closed:
            return
        if not self._backlog.is_ahead(self._journal.cursor):
            self._resume()
            return
        self._pause()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._lose_patience)

    def close(self) -> None:
        """Regulate no more. Twice is fine."""
        self._is_closed = True
        self._stop_timer()

    def _on_read(self) -> None:
        self._backlog.note_reader(self._journal.furthest)
        self._stop_timer()
        self.regulate()

    def _lose_patience(self) -> None:
        self._timer = None
        self._backlog.lose_patience()
        self.regulate()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
