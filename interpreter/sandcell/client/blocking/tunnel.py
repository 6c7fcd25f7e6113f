# Made from ../aio/tunnel.py by `python -m sandcell.client.generate`: change that file, not this one.
"""A connection through the guest to what listens in its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.client.http1 import AnswerReader
from sandcell.client.protocol import Cut, Head, Mark
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell.client.blocking.channel import Channel
    from sandcell.client.blocking.connection import Connection
    from sandcell.client.blocking.transport import Transport
    from sandcell_container.errors import SandcellError

__all__ = ["Tunnel"]


class Tunnel:
    """A connection through the guest to what listens in the sandbox; close it. Deadlines by `time.monotonic()`; past one is
    TimeoutError."""

    def __init__(self, transport: Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection
        self._reader = AnswerReader()

    @property
    def channel(self) -> Channel:
        """The connection itself, for who speaks first and reads by itself."""
        return self._connection.channel

    def ask(self, request: bytes, method: str, deadline: float | None) -> Head:
        """Send a request and return the head of its answer.

        Raises:
            Unavailable (PORT_NOT_LISTENING): the connection ended before, or what came is no HTTP.
            Gone (SANDBOX_GONE): because the sandbox did.
        """
        self._reader.begin(method)
        try:
            self._connection.send(request, deadline)
        except Cut:
            pass  # it may have answered before it had read all
        part = self._next_part(deadline)
        if not isinstance(part, Head):
            raise self._broken("the answer has no head")
        return part

    def read(self, deadline: float | None) -> bytes:
        """Return the next piece of the answer's body, b"" at its end. Raises as `ask`."""
        part = self._next_part(deadline)
        return part if isinstance(part, bytes) else b""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _next_part(self, deadline: float | None) -> Head | bytes | Mark:
        try:
            while (part := self._reader.next_part()) is Mark.NEED_DATA:
                came = self._connection.next_part(deadline)
                self._reader.feed(came if isinstance(came, bytes) else b"")
        except Cut as cut:
            raise self._broken(str(cut)) from cut
        return part

    def _broken(self, why: str) -> SandcellError:
        problem = self._transport.missed(why, admitted=True)
        if problem.code is ErrorCode.SANDBOX_GONE:
            return problem
        what = f"what listens there ended the connection, or speaks no HTTP: {why}"
        return error(ErrorCode.PORT_NOT_LISTENING, what, hint="its own output may say why")
