"""How far a writer is ahead of who reads it, and whether it has to wait for them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.frames import FRAME_HEAD

if TYPE_CHECKING:
    from sandcell_container.frames import Cursor

__all__ = ["Backlog"]


class Backlog:
    """The distance between a writer and its furthest reader, in bytes as a journal keeps them, heads included.

    The writer waits where it has got `bound` bytes ahead of what anybody has ever read; None: it need not. And
    `courtesy` bytes ahead of who reads just now it waits for a moment, so that nothing is dropped only because
    a reader had no turn: until that reader has gone on, or `lose_patience` says that the moment is over.
    """

    def __init__(self, bound: int | None, courtesy: int) -> None:
        self._bound = bound
        self._courtesy = courtesy
        self._read = 0
        self._reader: int | None = None
        self._is_patient = True

    def widen(self, bound: int) -> None:
        """From now on the writer may get `bound` bytes ahead."""
        self._bound = bound

    def note_read(self, cursor: Cursor) -> None:
        """Somebody has read as far as `cursor`. Who is behind another is not waited for."""
        self._read = max(self._read, _place(cursor))

    def note_reader(self, cursor: Cursor | None) -> None:
        """The furthest who reads is at `cursor` now, None: nobody does."""
        self._reader = None if cursor is None else _place(cursor)
        self._is_patient = True
        if cursor is not None:
            self.note_read(cursor)

    def lose_patience(self) -> None:
        self._is_patient = False

    def is_full(self, written: Cursor) -> bool:
        """Whether the writer has to wait until somebody has read."""
        return self._bound is not None and _place(written) - self._read >= self._bound

    def is_ahead(self, written: Cursor) -> bool:
        """Whether the writer is to wait for a moment."""
        return (
            self._is_patient and self._reader is not None and _place(written) - self._reader >= self._courtesy
        )


def _place(cursor: Cursor) -> int:
    return cursor.offset + cursor.seq * FRAME_HEAD.size
