"""How much of a journal nobody has read yet: what a writer that must not lose anything waits for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.frames import FRAME_HEAD

if TYPE_CHECKING:
    from sandcell_container.frames import Cursor

__all__ = ["Backlog"]


class Backlog:
    """The distance between a writer and its furthest reader, in bytes as a journal keeps them, heads included.

    `bound` is where the writer has to wait. A reader is one who has got as far as a cursor, or brings one.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._read = 0

    def is_full(self, written: Cursor) -> bool:
        return _place(written) - self._read >= self._bound

    def note_read(self, cursor: Cursor) -> None:
        """Somebody has read as far as `cursor`. Who is behind another is not waited for."""
        self._read = max(self._read, _place(cursor))


def _place(cursor: Cursor) -> int:
    return cursor.offset + cursor.seq * FRAME_HEAD.size
