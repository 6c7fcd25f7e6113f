"""A part of a file straight into a connection, by the kernel: no byte of it comes into this process."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandcell.guest.conditions import Span
    from sandcell.guest.request import ApiHandler

__all__ = ["LARGE", "send_file"]

LARGE = 2**20
"""Bytes from which on it is worth a connection, which ends with it."""

_PIECE = 2**20


async def send_file(handler: ApiHandler, fd: int, span: Span) -> None:
    """Send the head of the answer and these bytes, and end the connection: also where the file has become shorter meanwhile,
    so that who was told a length sees that it did not come. A client that goes away ends it."""
    handler.set_header("Connection", "close")
    await handler.flush()
    stream = handler.detach()
    try:
        if stream.socket is None:
            return  # it went away just now
        sock, at = stream.socket.fileno(), span.start
        while at < span.end:
            try:
                sent = os.sendfile(sock, fd, at, min(_PIECE, span.end - at))
            except BlockingIOError:
                await _writable(sock)
                continue
            except (BrokenPipeError, ConnectionResetError):
                return
            if not sent:
                return
            at += sent
            await asyncio.sleep(0)  # the disk never blocks the loop for longer than one piece
    finally:
        stream.close()


async def _writable(sock: int) -> None:
    # Beside tornado, which watches this descriptor for reading only: it has nothing left to write.
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(sock)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
