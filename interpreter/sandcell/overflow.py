"""Results over their bound, on their way into a run's journal: each goes whole into a file of the sandbox.

Our own runtime does that itself before it sends. This is for all other kernels, and for what code sends by other ways.
What waits for its file makes the events behind it wait, so that whoever hears of a file finds it.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell.content import size_of
from sandcell.events import Event, ResultAdded, ResultUpdated, Stderr, Stdout
from sandcell.handle import LeftOut, note_left_out
from sandcell_container.guest.spill import Spill, SpillStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell.content import ResultLimits

__all__ = ["Overflow", "ResultFiles"]

_MOST_HELD = 8 * 2**20  # bytes, about, that wait behind a file: then they wait no longer, and there is none
_EVENT_COST = 200
# As in `sandcell_runtime.spills`, which lives in another interpreter.
_BINARY = ("image/png", "image/jpeg", "image/gif", "application/pdf")
_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpeg",
    "image/gif": ".gif",
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/javascript": ".js",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/latex": ".tex",
}

_Shown = ResultAdded | ResultUpdated


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """Where results that are too large become files: made in `folder` by `store`, with the user's rights."""

    folder: str
    store: SpillStore


@dataclass(slots=True, eq=False)
class _Pending:
    """An event that waits for files, one for each of `parts`; `outs` are those that are there, or could not be made."""

    event: _Shown
    parts: dict[str, Any]
    outs: list[LeftOut] = field(default_factory=list[LeftOut])


class Overflow:
    """Takes the events of one run and hands them on in order. Without `files` what is too large is only left out."""

    def __init__(
        self, append: Callable[[Event], None], limits: ResultLimits, files: ResultFiles | None
    ) -> None:
        self._append = append
        self._limits = limits
        self._files = files
        self._pending: _Pending | None = None
        self._waiting: deque[Event] = deque()
        self._held = 0

    def take(self, event: Event) -> None:
        if self._pending is None:
            self._pass(event)
            return
        self._waiting.append(event)
        self._held += _cost(event)
        if self._held > _MOST_HELD:
            self._settle(self._pending)

    def _pass(self, event: Event) -> None:
        over = self._parts_over(event) if isinstance(event, _Shown) else {}
        if not isinstance(event, _Shown) or not over:
            self._append(event)
        else:
            self._pending = pending = _Pending(event, over)
            for mime in over:
                self._spill(pending, mime)

    def _parts_over(self, event: _Shown) -> dict[str, Any]:
        return {mime: part for mime, part in event.data.items() if size_of(part) > self._limits.of(mime)}

    def _spill(self, pending: _Pending, mime: str) -> None:
        if self._files is None:
            self._note(pending, LeftOut(mime, size_of(pending.parts[mime]), None))
            return
        path = f"{self._files.folder}/result-{secrets.token_hex(6)}{_suffix_of(mime)}"
        spill = Spill(self._files.store, path)
        spill.open_soon(partial(self._write, pending, mime, spill))

    def _write(self, pending: _Pending, mime: str, spill: Spill) -> None:
        data = _file_form(mime, pending.parts[mime])
        if pending is self._pending:
            spill.write(data)
            self._note(pending, LeftOut(mime, len(data), spill.finish()))
        elif (path := spill.finish()) is not None and self._files is not None:
            self._files.store.remove_soon(path)  # nobody waits for it any more

    def _note(self, pending: _Pending, out: LeftOut) -> None:
        pending.outs.append(out)
        if len(pending.outs) == len(pending.parts):
            self._settle(pending)

    def _settle(self, pending: _Pending) -> None:
        """Hand on the event with what it knows of its files, then what waits behind it."""
        made = {out.mime for out in pending.outs}
        lost = [LeftOut(m, size_of(part), None) for m, part in pending.parts.items() if m not in made]
        outs = [*pending.outs, *lost]
        event = pending.event
        kept = {mime: part for mime, part in event.data.items() if mime not in pending.parts}
        data, metadata = note_left_out(kept, event.metadata, outs)
        self._append(msgspec.structs.replace(event, data=data, metadata=metadata))
        for out in outs:
            self._append(out.event(late=event.late))
        self._pending, self._held = None, 0
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self.take(each)


def _suffix_of(mime: str) -> str:
    return _SUFFIXES.get(mime) or (".json" if mime.endswith("+json") else ".txt")


def _cost(event: Event) -> int:
    match event:
        case Stdout() | Stderr():
            return _EVENT_COST + len(event.text)
        case ResultAdded() | ResultUpdated():
            return _EVENT_COST + sum(map(size_of, event.data.values()))
        case _:
            return _EVENT_COST


def _file_form(mime: str, part: Any) -> bytes:
    """Return what a part had been: the bytes of an image, text as UTF-8, JSON as text."""
    if not isinstance(part, str):
        return json.dumps(part).encode()
    if mime in _BINARY:
        try:
            return base64.b64decode("".join(part.split()), validate=True)
        except (binascii.Error, ValueError):
            pass  # no base64: the code displayed something else there, and gets it as it is
    return part.encode()
