"""The connection of a viewer on this machine to a terminal in a guest: kept, and taken up where it broke."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from tornado.websocket import WebSocketClosedError

from sandcell.client.protocol import path_of
from sandcell.guest_socket import open_socket
from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor, FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tornado.websocket import WebSocketClientConnection

    from sandcell.guest_address import GuestAddress
    from sandcell_container.frames import Entry

__all__ = ["LOST_HINT", "TerminalLink"]

log = logging.getLogger(__name__)

_MAX_FAILURES = 3  # connections in a row that broke before the guest said anything
_MAX_MESSAGE = 2**26
LOST_HINT = "what ran in it is gone; a new terminal begins with a new shell"


class TerminalLink:
    """See the module. `run` keeps the connection; `type` and `resize` use it.

    `show` is awaited with what comes out, in order and once, and whether it was there before the connection; the guest waits
    meanwhile. `tell` is called with a line for the person: what is missing, what was not typed.
    """

    def __init__(
        self,
        guest: GuestAddress,
        terminal_id: str,
        *,
        show: Callable[[bytes, bool], Awaitable[None]],
        tell: Callable[[str], None],
    ) -> None:
        self._guest = guest
        self._terminal_id = terminal_id
        self._show = show
        self._tell = tell
        self._cursor: Cursor | None = None
        self._live = 0
        self._size: tuple[int, int] | None = None
        self._connection: WebSocketClientConnection | None = None
        self._news = asyncio.Event()
        self._greeted = False

    async def run(self) -> CommandEnd:
        """Show the terminal until its end, and return how it ended. Cancelling closes the connection.

        Raises:
            SandcellError: why it can be shown no more: SANDBOX_GONE, NOT_FOUND (it was deleted), UNREACHABLE.
        """
        failures = 0
        while failures < _MAX_FAILURES:
            self._greeted = False
            ended = await self._hold_connection()
            if ended is not None:
                return ended
            failures = 0 if self._greeted else failures + 1
        raise error(ErrorCode.UNREACHABLE, f"the sandbox closed {failures} connections in a row")

    async def type(self, data: bytes) -> None:
        """Type `data`, and return when it is on its way; without a connection that is waited for."""
        while self._connection is None:
            self._news.clear()
            await self._news.wait()
        try:
            await self._connection.write_message(data, binary=True)
        except WebSocketClosedError:
            log.debug("a connection broke under %d bytes that were typed", len(data))

    def resize(self, cols: int, rows: int) -> None:
        """Make the terminal as large, now and with each new connection."""
        self._size = (cols, rows)
        self._send_size()

    async def _hold_connection(self) -> CommandEnd | None:
        """Show what comes until the terminal ends, or the connection: then None."""
        query = {"cursor": str(self._cursor)} if self._cursor else {}
        path = path_of("terminals", self._terminal_id, "io")
        connection = await open_socket(self._guest, path, query, max_message=_MAX_MESSAGE, hint=LOST_HINT)
        self._connection = connection
        self._news.set()
        self._send_size()
        try:
            while (frame := await connection.read_message()) is not None:
                ended = await self._take(frame)
                if ended is not None:
                    return ended
            return None
        finally:
            self._connection = None
            connection.close()

    async def _take(self, frame: str | bytes) -> CommandEnd | None:
        if isinstance(frame, str):
            self._take_note(frame)
            return None
        for entry in FrameDecoder().feed(frame):
            await self._take_entry(entry)
            if entry.kind == Kind.ENDED:
                return msgspec.json.decode(entry.data, type=CommandEnd)
        return None

    async def _take_entry(self, entry: Entry) -> None:
        if self._cursor is not None:
            self._cursor = Cursor(self._cursor.epoch, entry.seq, entry.offset)
        if entry.kind == Kind.STDOUT:
            await self._show(entry.data, entry.seq <= self._live)
        elif entry.kind == Kind.GAP:
            self._tell(f"{json.loads(entry.data)['bytes']} bytes of output were too much for this terminal")

    def _take_note(self, text: str) -> None:
        note = json.loads(text)
        if note["note"] == "hello":
            self._greeted = True
            self._cursor = self._cursor or Cursor.parse(note["cursor"], epoch=note["epoch"])
            self._live = Cursor.parse(note["live"], epoch=note["epoch"]).seq
        elif note["note"] == "refused":
            self._tell(note["error"]["message"])

    def _send_size(self) -> None:
        if self._connection is None or self._size is None:
            return
        cols, rows = self._size
        note = json.dumps({"note": "resize", "cols": cols, "rows": rows})
        with suppress(WebSocketClosedError):  # the next connection sends it
            asyncio.ensure_future(self._connection.write_message(note)).add_done_callback(_note_failure)


def _note_failure(sent: asyncio.Future[None]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        log.debug("a size was not sent, its connection broke: %s", sent.exception())
