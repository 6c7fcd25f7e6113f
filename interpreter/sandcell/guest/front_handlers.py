"""The HTTP side of fronts. Their WebSocket speaks our own subprotocol, and both framings of Jupyter.

Source: docs/protocol.md, "The front's WebSocket".
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Protocol

from sandcell.api import CreateFront
from sandcell.guest.journal_socket import JournalSocket
from sandcell.guest.request import ApiHandler
from sandcell_container.frames import Kind
from sandcell_kernel.websocket import (
    FRONT_SUBPROTOCOL,
    V1_SUBPROTOCOL,
    Placed,
    pack_default,
    pack_placed,
    unpack_default,
    unpack_v1,
)
from sandcell_kernel.wire import BadMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from sandcell_container.frames import Cursor, Entry
    from sandcell_container.journal import Journal
    from sandcell_kernel.wire import ChannelMessage

__all__ = ["FrontChannels", "FrontHandler", "FrontsHandler"]

log = logging.getLogger(__name__)

_GOING_AWAY = 1001
_BAD_DATA = 1007
_TRY_AGAIN = 1013
_TOGETHER = 256 * 2**10  # bytes of messages that go in one frame


class _Framing(Protocol):
    """How messages travel on one connection."""

    has_notes: bool

    def down(self, entries: Sequence[Entry]) -> Iterator[str | bytes]:
        """Write MESSAGE entries of the front's journal as frames. Raises BadMessage where this framing cannot hold one."""
        ...

    def up(self, frame: str | bytes) -> ChannelMessage:
        """Read a frame of the client. Raises BadMessage."""
        ...


class _FrontFraming:
    """Between our own ends: v1 frames that know their place in the journal, as many at once as there are, and notes."""

    has_notes = True

    def down(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        group, size = list[Placed](), 0
        for entry in entries:
            size += len(entry.data)
            if (
                group and size > _TOGETHER
            ):  # one that is large itself goes alone, or both together might be too large
                yield pack_placed(group)
                group, size = [], len(entry.data)
            group.append(Placed(entry.seq, entry.offset, entry.data))
        yield pack_placed(group)

    def up(self, frame: str | bytes) -> ChannelMessage:
        return _read_v1(frame)


class _V1Framing:
    """v1.kernel.websocket.jupyter.org."""

    has_notes = False

    def down(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        return (entry.data for entry in entries)

    def up(self, frame: str | bytes) -> ChannelMessage:
        return _read_v1(frame)


class _DefaultFraming:
    """For clients that ask for no subprotocol."""

    has_notes = False

    def down(self, entries: Sequence[Entry]) -> Iterator[str | bytes]:
        return (pack_default(*unpack_v1(entry.data)) for entry in entries)

    def up(self, frame: str | bytes) -> ChannelMessage:
        return unpack_default(frame)


_FRAMINGS: dict[str, _Framing] = {
    FRONT_SUBPROTOCOL: _FrontFraming(),
    V1_SUBPROTOCOL: _V1Framing(),
}
_DEFAULT_FRAMING = _DefaultFraming()


def _read_v1(frame: str | bytes) -> ChannelMessage:
    if isinstance(frame, str):
        raise BadMessage("a message of the v1 framing is a binary frame")
    return unpack_v1(frame)


class FrontsHandler(ApiHandler):
    """POST, GET /v1/fronts"""

    async def post(self) -> None:
        front = await self.guest.fronts.create(self.body(CreateFront))
        self.guest.memo.note_made("context", front.context.id)
        self.reply(front.info(), status=201)

    def get(self) -> None:
        self.reply([front.info() for front in self.guest.fronts.list()])


class FrontHandler(ApiHandler):
    """GET, DELETE /v1/fronts/{id}"""

    def get(self, front_id: str) -> None:
        self.reply(self.guest.fronts.get(front_id).info())

    def delete(self, front_id: str) -> None:
        self.guest.fronts.delete(front_id)
        self.reply({"id": front_id})


class FrontChannels(JournalSocket):
    """WS /v1/fronts/{id}/channels: one connection of a front end.

    With our own subprotocol the client is told everything after its cursor, from the start without one. Clients
    of the standard framings have no cursor as a rule and are told what comes from now on.

    One that falls behind what the journal keeps gets a note; where the framing has none it is cut off, and may
    connect again.
    """

    _framing: _Framing = _DEFAULT_FRAMING

    def find(self, noun_id: str) -> Journal:
        self._front = self.guest.fronts.get(noun_id)
        return self._front.journal

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        chosen = next((name for name in _FRAMINGS if name in subprotocols), None)
        self._framing = _FRAMINGS[chosen] if chosen else _DEFAULT_FRAMING
        return chosen

    def start(self) -> Cursor:
        journal = self._front.journal
        return journal.start if self._framing.has_notes else journal.cursor

    def attached(self) -> AbstractContextManager[None]:
        asked = self.get_query_argument("errands", "") == "true"
        return self._front.connected(does_errands=asked and self._framing.has_notes)

    def on_message(self, message: str | bytes) -> None:
        try:
            self._front.receive(*self._framing.up(message))
        except BadMessage as problem:
            log.warning("a client sends no message front=%s: %s", self._front.id, problem)
            self.close(_BAD_DATA, str(problem)[:100])

    async def greet(self, after: Cursor) -> None:
        if self._framing.has_notes:
            front = self._front
            await self.note("hello", epoch=front.journal.epoch, context_id=front.context.id)

    async def tell(self, batch: list[Entry]) -> None:
        written = list[asyncio.Future[None]]()
        if batch[0].kind == Kind.GAP:  # where there is one, it comes first
            if not self._framing.has_notes:
                self.close(_TRY_AGAIN, "messages were lost")
                return
            written.append(self.note("gap", **json.loads(batch[0].data)))
            del batch[0]
        for frame in self._framing.down(batch):
            written.append(self.write_message(frame, binary=isinstance(frame, bytes)))
        await asyncio.gather(*written)

    def over(self) -> None:
        self.close(_GOING_AWAY, "the front was deleted")
