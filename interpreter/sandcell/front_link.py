"""The connection from the kernel process to its front in a guest: kept, and taken up again where it broke."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from tornado.websocket import WebSocketClosedError

from sandcell.client.protocol import path_of
from sandcell.guest_socket import open_socket
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor
from sandcell_kernel.websocket import FRONT_SUBPROTOCOL, pack_v1, unpack_placed, unpack_v1
from sandcell_kernel.wire import BadMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tornado.websocket import WebSocketClientConnection

    from sandcell.guest_address import GuestAddress
    from sandcell_kernel.websocket import Placed
    from sandcell_kernel.wire import Channel, Message

__all__ = ["FrontLink"]

log = logging.getLogger(__name__)

_MAX_FAILURES = 3  # connections in a row that broke before the guest said anything
_CLOSE_S = 0.5
_HINT = "restart the kernel: a new sandbox is made, without the variables and files of this one"


class FrontLink:
    """See the module. `run` keeps the connection; `send` uses it.

    `on_open` is called for each new connection, `on_message` for each message in order and once, `on_gap` with the
    count of messages that the guest no longer has, `on_close` when a connection broke. From the loop; they must
    not block.
    """

    def __init__(
        self,
        guest: GuestAddress,
        front_id: str,
        *,
        max_message: int,
        on_open: Callable[[], None],
        on_message: Callable[[Channel, Message], None],
        on_gap: Callable[[int], None],
        on_close: Callable[[], None],
    ) -> None:
        self._guest = guest
        self._front_id = front_id
        self._max_message = max_message
        self._on_open = on_open
        self._on_message = on_message
        self._on_gap = on_gap
        self._on_close = on_close
        self._cursor: Cursor | None = None
        self._connection: WebSocketClientConnection | None = None
        self._greeted = False

    def send(self, channel: Channel, message: Message) -> None:
        """Send; without a connection nothing happens, because what was not answered is sent again after `on_open`."""
        if self._connection is None:
            return
        try:
            sent = self._connection.write_message(pack_v1(channel, message), binary=True)
        except WebSocketClosedError:
            return  # on_close follows
        asyncio.ensure_future(sent).add_done_callback(_note_failure)

    async def run(self) -> None:
        """Keep a connection to the front until it cannot be had any more. Cancelling closes it.

        Raises:
            SandcellError: why not: SANDBOX_GONE, NOT_FOUND, STALE_CURSOR (another guest), UNREACHABLE.
        """
        failures = 0
        while failures < _MAX_FAILURES:
            self._greeted = False
            await self._hold_connection()
            failures = 0 if self._greeted else failures + 1
        raise error(
            ErrorCode.UNREACHABLE,
            f"the sandbox closed {failures} connections in a row",
            hint="restart the kernel",
        )

    async def _hold_connection(self) -> None:
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection = self._connection = await self._connect(closed)
        self._on_open()
        try:
            await closed
        finally:
            self._connection = None
            self._on_close()
            connection.close()
            await asyncio.wait({closed}, timeout=_CLOSE_S)  # when cancelled: for the guest's own goodbye

    async def _connect(self, closed: asyncio.Future[None]) -> WebSocketClientConnection:
        def take(frame: str | bytes | None) -> None:
            if frame is not None:
                self._take(frame)
            elif not closed.done():
                closed.set_result(None)

        return await open_socket(
            self._guest,
            path_of("fronts", self._front_id, "channels"),
            {"errands": "true"} | ({"cursor": str(self._cursor)} if self._cursor else {}),
            max_message=self._max_message,
            hint=_HINT,
            subprotocols=[FRONT_SUBPROTOCOL],
            on_message=take,
        )

    def _take(self, frame: str | bytes) -> None:
        if isinstance(frame, str):
            self._take_note(json.loads(frame))
            return
        try:
            messages = unpack_placed(frame)
        except BadMessage as problem:
            log.warning("dropped what the sandbox sent: %s", problem)
            return
        for placed in messages:
            self._take_message(placed)

    def _take_message(self, placed: Placed) -> None:
        if self._cursor is not None:
            self._cursor = Cursor(self._cursor.epoch, placed.seq, placed.offset)
        try:
            self._on_message(*unpack_v1(placed.frame))
        except BadMessage as problem:
            log.warning("dropped a message of the sandbox: %s", problem)

    def _take_note(self, note: dict[str, Any]) -> None:
        if note["note"] == "hello":
            self._greeted = True
            self._cursor = self._cursor or Cursor(note["epoch"], 0, 0)
        elif note["note"] == "gap":
            self._on_gap(note["entries"])


def _note_failure(sent: asyncio.Future[None]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        log.debug("a message was not sent, its connection broke: %s", sent.exception())
