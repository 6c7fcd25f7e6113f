"""Which context a comm belongs to: those of the front's own kernel need no note. Pure, bounded."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Comms"]

_MOST = 10_000  # comms of other contexts: code opens as many as it likes


class Comms:
    """See the module. Also which other contexts the front's cells have used."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, str] = OrderedDict()
        self._known: dict[str, None] = {}

    @property
    def context_ids(self) -> tuple[str, ...]:
        """The other contexts that cells have run in."""
        return tuple(self._known)

    def know(self, context_id: str) -> None:
        """Cells run in this context."""
        self._known[context_id] = None

    def is_known(self, context_id: str) -> bool:
        return context_id in self._known

    def note(self, kind: str, comm_id: str, context_id: str | None) -> None:
        """Take a comm_open or a comm_close of a kernel."""
        if kind == "comm_close":
            self.close(comm_id)
        elif context_id is not None:
            self._places[comm_id] = context_id
            if len(self._places) > _MOST:
                self._places.popitem(last=False)

    def context_of(self, comm_id: str) -> str | None:
        """Return where a message for this comm goes, None for the front's own kernel."""
        return self._places.get(comm_id)

    def close(self, comm_id: str) -> None:
        self._places.pop(comm_id, None)

    def lose(self, context_id: str | None) -> None:
        """The kernel of a context is gone, and its comms with it."""
        for comm_id in [each for each, place in self._places.items() if place == context_id]:
            del self._places[comm_id]
