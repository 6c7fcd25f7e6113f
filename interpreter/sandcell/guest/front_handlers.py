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
    pack_default,
    pack_placed,
    unpack_default,
    unpack_v1,
)
from sandcell_kernel.wire import BadMessage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sandcell_container.frames import Cursor, Entry
    from sandcell_container.journal import Journal
    from sandcell_kernel.wire import ChannelMessage

__all__ = ["FrontChannels", "FrontHandler", "FrontsHandler"]

log = logging.getLogger(__name__)

_GOING_AWAY = 1001
_BAD_DATA = 1007
_TRY_AGAIN = 1013


class _Framing(Protocol):
    """How messages travel on one connection."""

    has_notes: bool

    def down(self, entry: Entry) -> str | bytes:
        """Write a MESSAGE entry of the front's journal. Raises BadMessage where this framing cannot hold it."""
        ...

    def up(self, frame: str | bytes) -> ChannelMessage:
        """Read a frame of the client. Raises BadMessage."""
        ...


class _FrontFraming:
    """Between our own ends: v1 frames that know their place in the journal, and notes."""

    has_notes = True

    def down(self, entry: Entry) -> str | bytes:
        return pack_placed(entry.seq, entry.offset, entry.data)

    def up(self, frame: str | bytes) -> ChannelMessage:
        return _read_v1(frame)


class _V1Framing:
    """v1.kernel.websocket.jupyter.org."""

    has_notes = False

    def down(self, entry: Entry) -> str | bytes:
        return entry.data

    def up(self, frame: str | bytes) -> ChannelMessage:
        return _read_v1(frame)


class _DefaultFraming:
    """For clients that ask for no subprotocol."""

    has_notes = False

    def down(self, entry: Entry) -> str | bytes:
        return pack_default(*unpack_v1(entry.data))

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
        return self._front.connected()

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
        for entry in batch:
            if entry.kind == Kind.MESSAGE:
                frame = self._framing.down(entry)
                written.append(self.write_message(frame, binary=isinstance(frame, bytes)))
            elif entry.kind == Kind.GAP and self._framing.has_notes:
                written.append(self.note("gap", **json.loads(entry.data)))
            elif entry.kind == Kind.GAP:
                self.close(_TRY_AGAIN, "messages were lost")
                return
        await asyncio.gather(*written)

    def over(self) -> None:
        self.close(_GOING_AWAY, "the front was deleted")
