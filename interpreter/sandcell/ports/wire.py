"""One connected socket on the running loop, as both ends of what is passed on see it."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from sandcell.ports.heads import LONGEST_HEAD, BadHead

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Wire"]

_CHUNK = 2**17
_END_OF_HEAD = b"\r\n\r\n"


class Wire:
    """A context manager: leaving it closes the socket. `left`: what has come already. What breaks it is OSError.

    Nothing is read before somebody asks, so that who reads slowly slows down who writes.
    """

    def __init__(self, connected: socket.socket, left: bytes = b"") -> None:
        connected.settimeout(0.0)
        self._socket = connected
        self._left = left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def receive(self) -> bytes:
        """Return what came, b"" when the other side has said that nothing more will."""
        if self._left:
            left, self._left = self._left, b""
            return left
        return await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)

    async def receive_head(self) -> bytes:
        """Return a head with the empty line behind it; b"" when the other side ends before its first byte.

        Raises:
            BadHead: it is longer than 64 KiB, or ends in the middle.
        """
        came = b""
        while (end := came.find(_END_OF_HEAD)) < 0:
            if len(came) > LONGEST_HEAD:
                raise BadHead("the head is longer than 64 KiB")
            more = await self.receive()
            if not more:
                if came:
                    raise BadHead("it ends in the middle of a head")
                return b""
            came += more
        end += len(_END_OF_HEAD)
        self._left = came[end:] + self._left
        return came[:end]

    async def send(self, data: bytes) -> None:
        """Send all of it, as fast as it is taken."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def end(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has gone, and needs not be told

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Have the other side see that what it got is not all: a reset in the place of an end."""
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
