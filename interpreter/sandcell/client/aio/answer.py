"""An answer whose head is there, and a body that is on its way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sandcell.client.aio.channel import to_its_end
from sandcell.client.protocol import Cut, Head
from sandcell_container.holes import write_all
from sandcell_container.pour import Pour

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandcell.client.aio.connection import Connection
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.protocol import Request

__all__ = ["AsyncAnswer", "AsyncUpload"]


class AsyncAnswer:
    """An answer whose head is there; its body is read in pieces or at once. Close it."""

    def __init__(self, transport: AsyncTransport, connection: Connection, head: Head) -> None:
        self.head = head
        self._transport = transport
        self._connection: Connection | None = connection

    async def read(self, deadline: float | None) -> bytes:
        """Return the next piece of the body, b"" at its end.

        Raises:
            Cut: the connection broke before the end.
            TimeoutError: nothing came until `deadline` (`time.monotonic()`); the answer is of no use then.
        """
        connection = self._connection
        if connection is None:
            return b""
        try:
            part = await connection.next_part(deadline)
        except BaseException:
            self.close()
            raise
        if isinstance(part, bytes):
            return part
        self._connection = None
        self._transport.give_back(connection)
        return b""

    async def read_all(self) -> bytes:
        """Return the whole body."""
        deadline = time.monotonic() + self._transport.reply_timeout
        parts = list[bytes]()
        try:
            while part := await self.read(deadline):
                parts.append(part)
        except TimeoutError as problem:
            raise await self._transport.silent(str(problem), admitted=True) from problem
        return b"".join(parts)

    @property
    def total(self) -> int | None:
        """How many bytes the body has, None where nobody knows yet."""
        length = self.head.headers.get("content-length")
        return None if length is None else int(length)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece; UNREACHABLE where it breaks off or stalls."""
        while part := await self._read_piece():
            yield part

    async def pour(self, fd: int) -> AsyncIterator[int]:
        """Write the body to a descriptor, and yield how many bytes, piece by piece; UNREACHABLE where it breaks off or stalls."""
        with Pour(fd) as pour:
            while (connection := self._connection) is not None:
                if connection.conversation.direct:
                    yield await self._pour_piece(connection, pour)
                    continue
                data = await self._read_piece()
                if data:
                    await to_its_end(write_all, fd, data)
                    yield len(data)

    async def _pour_piece(self, connection: Connection, pour: Pour) -> int:
        deadline = time.monotonic() + self._transport.reply_timeout
        try:
            return await connection.pour(pour, deadline)
        except TimeoutError as problem:
            raise await self._transport.silent(str(problem), admitted=True) from problem
        except Cut as cut:
            raise await self._transport.missed(str(cut), admitted=True) from cut

    async def _read_piece(self) -> bytes:
        """Return the next piece, b"" at the end; UNREACHABLE where it breaks off or stalls."""
        patience = self._transport.reply_timeout
        try:
            return await self.read(time.monotonic() + patience)
        except TimeoutError as problem:
            raise await self._transport.silent(str(problem), admitted=True) from problem
        except Cut as cut:
            raise await self._transport.missed(str(cut), admitted=True) from cut

    def close(self) -> None:
        """Give it up; a connection in the middle of a body is closed, which the guest notices."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class AsyncUpload:
    """The body of a request on its way: `send` pieces, then `finish`; close it."""

    def __init__(self, transport: AsyncTransport, connection: Connection, request: Request) -> None:
        self._transport = transport
        self._connection = connection
        self._request = request
        self._is_answered = False

    async def send(self, data: bytes) -> None:
        """Send a piece. Raises what the guest answers where it takes no more."""
        try:
            await self._connection.send(self._connection.conversation.chunk(data), self._deadline())
        except (Cut, TimeoutError):
            await self.hear()
            raise

    async def finish(self) -> bytes:
        """Say that this was all, and return the body of the answer."""
        try:
            await self._connection.send(self._connection.conversation.end(), self._deadline())
        except (Cut, TimeoutError):
            pass  # the answer says why, where there is one
        return await self.hear()

    def close(self) -> None:
        """Give it up, where it has not finished."""
        if not self._is_answered:
            self._connection.close()

    async def hear(self) -> bytes:
        """Return the body of the answer."""
        async with self._transport.told():
            head = await self._connection.head(self._deadline())
        self._is_answered = True
        answer = await self._transport.accept(AsyncAnswer(self._transport, self._connection, head))
        return await answer.read_all()

    def _deadline(self) -> float:
        return time.monotonic() + (self._request.patience or self._transport.reply_timeout)
