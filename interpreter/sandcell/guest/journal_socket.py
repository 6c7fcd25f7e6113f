"""A WebSocket that tells a journal: who may connect, from where on, how long it is a lease. The framing is not known here."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from sandcell.failure import failure_of
from sandcell.guest.former import as_lost
from sandcell.guest.request import check_token
from sandcell_container.errors import CODES, SandcellError
from sandcell_container.frames import Cursor

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager
    from types import TracebackType

    from sandcell.guest.state import Guest
    from sandcell_container.frames import Entry
    from sandcell_container.journal import Journal

__all__ = ["JournalSocket"]

log = logging.getLogger(__name__)

_INTERNAL = 1011


class JournalSocket(WebSocketHandler, ABC):
    """One connection to the noun whose id is in the path, and a lease of the sandbox while it is open.

    A slow client is waited for, one batch of the journal at a time, and holds up nobody.
    """

    def initialize(self, guest: Guest) -> None:
        self.guest = guest
        self._open_until_closed = ExitStack()
        self._follower: asyncio.Task[None] | None = None

    # what a noun does in its own way

    @abstractmethod
    def find(self, noun_id: str) -> Journal:
        """Return the journal to tell. Raises NotFound, which becomes the answer."""

    @abstractmethod
    def start(self) -> Cursor:
        """Return where a client without a cursor begins."""

    @abstractmethod
    def attached(self) -> AbstractContextManager[None]:
        """Return what holds while the connection is open."""

    async def greet(self, after: Cursor) -> None:
        """Say what comes before everything else."""

    @abstractmethod
    async def tell(self, batch: list[Entry]) -> None:
        """Send entries, and return when the client has taken them."""

    @abstractmethod
    def over(self) -> None:
        """Say goodbye: the journal has ended."""

    # the connection

    def note(self, kind: str, **facts: object) -> asyncio.Future[None]:
        """Send a text frame of JSON."""
        return self.write_message(json.dumps({"note": kind, **facts}))

    @property
    def max_message_size(self) -> int:
        return self.guest.config.max_message

    def prepare(self) -> None:
        """Check token, noun and cursor while the answer can still be an HTTP error."""
        given = self.request.headers.get("Authorization", "")
        check_token(given, self.get_query_argument("token", ""), token=self.guest.boot.token)
        self._journal = self.find(self.path_args[0])
        cursor = self.get_query_argument("cursor", "")
        self._cursor = Cursor.parse(cursor, epoch=self._journal.epoch) if cursor else None

    def open(self, *args: str, **kwargs: str) -> None:
        self._open_until_closed.enter_context(self.guest.leases.hold())
        self._open_until_closed.enter_context(self.attached())
        self._follower = self.guest.followers.start(self._follow(self._cursor or self.start()))

    def on_close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
        self._open_until_closed.close()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        if "exc_info" in kwargs:
            problem = as_lost(self.guest.memo, failure_of(kwargs["exc_info"][1]))
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

    async def _follow(self, after: Cursor) -> None:
        try:
            await self.greet(after)
            async for batch in self._journal.follow(after):
                await self.tell(batch)
            self.over()
        except WebSocketClosedError:
            return
        except Exception:
            log.exception("a connection failed path=%s", self.request.path)
            self.close(_INTERNAL)
