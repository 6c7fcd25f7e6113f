"""A file itself for a client on this machine: its descriptor, instead of its bytes through a connection.

What the worker has opened with the user's rights is passed on beside a head of an answer, which only a unix socket does; the
client copies, as `cp` would. A file that is written is the client's draft, and gets its name here.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from sandcell.guest.conditions import condition_of
from sandcell.guest.connections import stream_of
from sandcell.guest.files import path_in_query, permissions_of
from sandcell.guest.upload import DraftIntake, UploadHandler
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell.guest.connections import GuestStream
    from sandcell.guest.upload import Intake

__all__ = ["DescriptorHandler", "LentIntake"]

# News of an answer that is yet to come: whoever waits for that alone passes over it. Source: RFC 9110, section 15.2.
_HERE_IT_IS = b"HTTP/1.1 100 Continue\r\n\r\n"


class DescriptorHandler(UploadHandler):
    """GET, PUT /v1/files/descriptor?path="""

    hears_out = False  # its client sends nothing before it has what it asks for

    def intake(self) -> Intake:
        made = self.guest.files.replacing(
            path_in_query(self), mode=permissions_of(self), condition=condition_of(self.request.headers)
        )
        return LentIntake(self.guest.group, made)

    async def get(self) -> None:
        file = await self.guest.files.read(path_in_query(self))
        try:
            _lend(stream_of(self.request.connection), file.fd)
        finally:
            await file.aclose()
        self.reply(file.info)

    async def put(self) -> None:
        self.reply(await self.uploaded(), status=201)


class LentIntake(DraftIntake):
    """A draft that its client writes to. The body of the request says no more than that it still does, and then that all is there."""

    async def begin(self, stream: GuestStream | None, length: int) -> None:
        await self.made.open()
        _lend(stream, self.made.fd)

    async def take(self, piece: bytes) -> None:
        """The client goes on."""


def _lend(stream: GuestStream | None, fd: int) -> None:
    """Pass on a descriptor. A client that has gone meanwhile needs none.

    Raises:
        InvalidRequest (UNSUPPORTED): the connection carries none.
    """
    connection = None if stream is None else stream.socket
    if connection is None or connection.family != socket.AF_UNIX:
        raise error(
            ErrorCode.UNSUPPORTED,
            "an open file is given only over a unix socket",
            hint="GET and PUT /v1/files carry its bytes",
        )
    try:
        socket.send_fds(connection, [_HERE_IT_IS], [fd])
    except (BrokenPipeError, ConnectionResetError):
        pass  # which its handler is told as well
