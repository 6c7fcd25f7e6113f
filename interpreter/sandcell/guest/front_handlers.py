"""The HTTP side of fronts. Their WebSocket speaks our own subprotocol, and both framings of Jupyter.

Source: docs/protocol.md, "The front's WebSocket".
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from sandcell.api import CreateFront
from sandcell.failure import failure_of
from sandcell.guest.request import ApiHandler, check_token
from sandcell_container.errors import CODES, SandcellError
from sandcell_container.frames import Cursor, Kind
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
    from types import TracebackType

    from sandcell.guest.fronts import Front
    from sandcell.guest.state import Guest
    from sandcell_container.frames import Entry
    from sandcell_kernel.wire import ChannelMessage

__all__ = ["FrontChannels", "FrontHandler", "FrontsHandler"]

log = logging.getLogger(__name__)

_GOING_AWAY = 1001
_BAD_DATA = 1007
_INTERNAL = 1011
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


class FrontChannels(WebSocketHandler):
    """WS /v1/fronts/{id}/channels: one connection of a front end, and a lease of the sandbox while it is open.

    With our own subprotocol the client is told everything after its cursor, from the start without one. Clients
    of the standard framings have no cursor as a rule and are told what comes from now on.

    A slow client is waited for, one batch of the journal at a time, and holds up nobody. One that falls behind
    what the journal keeps gets a note; where the framing has none it is cut off, and may connect again.
    """

    def initialize(self, guest: Guest) -> None:
        self._guest = guest
        self._framing: _Framing = _DEFAULT_FRAMING
        self._open_until_closed = ExitStack()
        self._follower: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        return self._guest.config.max_message

    def prepare(self) -> None:
        """Check token, front and cursor while the answer can still be an HTTP error."""
        given = self.request.headers.get("Authorization", "")
        check_token(given, self.get_query_argument("token", ""), token=self._guest.boot.token)
        self._front = self._guest.fronts.get(self.path_args[0])
        cursor = self.get_query_argument("cursor", "")
        epoch = self._front.journal.epoch
        self._cursor = Cursor.parse(cursor, epoch=epoch) if cursor else None

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        chosen = next((name for name in _FRAMINGS if name in subprotocols), None)
        self._framing = _FRAMINGS[chosen] if chosen else _DEFAULT_FRAMING
        return chosen

    def open(self, *args: str, **kwargs: str) -> None:
        front, journal = self._front, self._front.journal
        front.connect()
        self._open_until_closed.enter_context(self._guest.leases.hold())
        start = journal.start if self._framing.has_notes else journal.cursor
        self._follower = self._guest.fronts.follow(self._follow(front, self._cursor or start))

    def on_message(self, message: str | bytes) -> None:
        try:
            self._front.receive(*self._framing.up(message))
        except BadMessage as problem:
            log.warning("a client sends no message front=%s: %s", self._front.id, problem)
            self.close(_BAD_DATA, str(problem)[:100])

    def on_close(self) -> None:
        if self._follower is not None:
            self._front.disconnect()
            self._follower.cancel()
        self._open_until_closed.close()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        problem = failure_of(kwargs["exc_info"][1]) if "exc_info" in kwargs else None
        if problem is not None:
            self.set_status(CODES[problem.code].status)
            self.finish(problem.to_dict())
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if isinstance(value, SandcellError):
            log.debug("refused path=%s: %s", self.request.path, value)
        else:
            super().log_exception(typ, value, tb)

    async def _follow(self, front: Front, after: Cursor) -> None:
        try:
            if self._framing.has_notes:
                await self._note("hello", epoch=front.journal.epoch, context_id=front.context.id)
            async for batch in front.journal.follow(after):
                await self._send(batch)
            self.close(_GOING_AWAY, "the front was deleted")
        except WebSocketClosedError:
            return
        except Exception:
            log.exception("a connection failed front=%s", front.id)
            self.close(_INTERNAL)

    async def _send(self, batch: list[Entry]) -> None:
        written = list[asyncio.Future[None]]()
        for entry in batch:
            if entry.kind == Kind.MESSAGE:
                frame = self._framing.down(entry)
                written.append(self.write_message(frame, binary=isinstance(frame, bytes)))
            elif entry.kind == Kind.GAP and self._framing.has_notes:
                written.append(self._note("gap", **json.loads(entry.data)))
            elif entry.kind == Kind.GAP:
                self.close(_TRY_AGAIN, "messages were lost")
                return
        await asyncio.gather(*written)

    def _note(self, kind: str, **facts: object) -> asyncio.Future[None]:
        return self.write_message(json.dumps({"note": kind, **facts}))
