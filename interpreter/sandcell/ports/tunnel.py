"""A host program's way to a port of a sandbox: one connection to its guest, which then is one to the port."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandcell.client.protocol import (
    Address,
    Conversation,
    Cut,
    Head,
    Mark,
    Request,
    error_of,
    gone,
    path_of,
    unreachable,
)
from sandcell.client.sockets import connect_now, connect_unix_blocking, new_socket
from sandcell.ports.wire import Wire

if TYPE_CHECKING:
    import socket


__all__ = ["EXPOSURE", "Guest", "connect_request", "open_tunnel"]

EXPOSURE = "Sandcell-Exposure"
"""The header with the token of the exposure that a connection to a port is made for."""

_CHUNK = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """Where a guest listens, its token, and seconds until it is missed."""

    address: Address
    token: str = field(repr=False)
    patience: float


def connect_request(port: int, exposure: str = "", *, wakes: bool = False) -> Request:
    """Return the request for a connection to `port`; with the token of an exposure, as long as that is in force. `wakes`: see
    `Request`."""
    headers = {"Connection": "Upgrade", "Upgrade": "tcp"}
    if exposure:
        headers[EXPOSURE] = exposure
    return Request(
        method="POST",
        path=path_of("ports", str(port), "connect"),
        headers=headers,
        repeatable=False,
        wakes=wakes,
    )


async def open_tunnel(guest: Guest, port: int, exposure: str) -> Wire:
    """Return a connection to `port` in the sandbox, on the running loop. A sandbox that is stopped stays so.

    Raises:
        SandcellError: PORT_NOT_LISTENING; FORBIDDEN: `exposure` is not its token any more; SANDBOX_GONE, UNREACHABLE.
    """
    try:
        async with asyncio.timeout(guest.patience):
            connected = await _connect(guest)
            try:
                return await _ask(connected, guest, connect_request(port, exposure))
            except BaseException:
                connected.close()
                raise
    except TimeoutError as problem:
        raise unreachable(guest.address, "it does not answer", admitted=False) from problem
    except (OSError, Cut) as problem:
        if guest.address.path:
            raise gone(guest.address, admitted=False) from problem
        raise unreachable(guest.address, str(problem), admitted=False) from problem


async def _connect(guest: Guest) -> socket.socket:
    if guest.address.path:
        made = connect_now(guest.address)
        if made is None:
            made = await asyncio.to_thread(connect_unix_blocking, guest.address, guest.patience)
        made.settimeout(0.0)
        return made
    made = new_socket(guest.address)
    try:
        made.settimeout(0.0)
        await asyncio.get_running_loop().sock_connect(made, (guest.address.host, guest.address.port))
    except BaseException:
        made.close()
        raise
    return made


async def _ask(connected: socket.socket, guest: Guest, request: Request) -> Wire:
    talk, loop = Conversation(guest.address, guest.token), asyncio.get_running_loop()
    await loop.sock_sendall(connected, talk.begin(request))
    head, said = None, b""
    while (part := talk.next_part()) is not Mark.END:
        if part is Mark.NEED_DATA:
            if head is not None and head.status == 101:
                break
            talk.feed(await loop.sock_recv(connected, _CHUNK))
        elif isinstance(part, Head):
            head = part
        else:
            said += part
    if head is None or head.status != 101:
        raise error_of(head.status if head else 0, said)
    return Wire(connected, said)
