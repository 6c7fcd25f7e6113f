"""What is kept of one output: its head and its tail, and the whole in a file where something was cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sandcell_container.end import Truncation
from sandcell_container.headtail import HeadTail
from sandcell_container.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.guest.spill import Spill
    from sandcell_container.headtail import Cut
    from sandcell_container.journal import Journal

__all__ = ["KeptOutput"]


class KeptOutput:
    """Takes the bytes of one stream, `name` and `kind`, in order; keeps `bound` of them, and with `spill` the whole."""

    def __init__(self, name: str, kind: Kind, bound: int, *, spill: Spill | None = None) -> None:
        self.name = name
        self._kind = kind
        self._kept = HeadTail(bound)
        self._spill = spill
        self._is_spilled = False
        self._is_waiting = False
        self._held: list[bytes] = []

    @property
    def is_waiting(self) -> bool:
        """Whether the file is being made: until then the writer should rest, as all that is given is held in memory."""
        return self._is_waiting

    def take(self, data: bytes, resume: Callable[[], None]) -> None:
        """Take the next bytes. The first ones that do not fit wait for the file; `resume` is called when it is there."""
        if self._is_waiting:
            self._held.append(data)
            return
        spill = self._spill
        if spill is None or self._is_spilled or len(data) + self._kept.total <= self._kept.bound:
            self._keep(data)
            return
        self._is_waiting = True
        self._held.append(data)
        spill.open_soon(lambda: self._begin_spill(spill, resume))

    def finish(self) -> Truncation | None:
        """End the file, and return what is told of the cut where there is one. Not while it is waiting."""
        return self._truncation(self._kept.finish()) if self._kept.is_cut else None

    def finish_into(self, journal: Journal) -> Truncation | None:
        """As `finish`, and append what is kept: all, or head, GAP and tail."""
        if not self._kept.is_cut:
            for piece in self._kept.pieces():
                journal.append(self._kind, piece)
            return None
        cut = self._kept.finish()
        if cut.head:
            journal.append(self._kind, cut.head)
        gap = {"stream": self.name, "bytes": cut.gap_bytes, "lines": cut.gap_lines, "entries": 0}
        journal.append(Kind.GAP, json.dumps(gap).encode())
        if cut.tail:
            journal.append(self._kind, cut.tail)
        return self._truncation(cut)

    def _truncation(self, cut: Cut) -> Truncation:
        path = self._spill.finish() if self._spill is not None else None
        return Truncation(bytes=cut.gap_bytes, lines=cut.gap_lines, total_bytes=cut.total_bytes, path=path)

    def _keep(self, data: bytes) -> None:
        self._kept.feed(data)
        if self._is_spilled and self._spill is not None:
            self._spill.write(data)

    def _begin_spill(self, spill: Spill, resume: Callable[[], None]) -> None:
        """The file is there, or cannot be: all that came so far goes into it, as nothing of that was cut yet."""
        self._is_waiting, self._is_spilled = False, True
        for piece in self._kept.pieces():
            spill.write(piece)
        held, self._held = self._held, []
        for data in held:
            self._keep(data)
        resume()
