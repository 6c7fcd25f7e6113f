"""Sockets of this process and of no other: opened here, closed in a forked child.

A child that kept a copy of its parent's lease would hold the parent's sandboxes in use after the parent is
gone, and two processes on one connection would read each other's answers. So the open sockets of the process
are known in one place, and a fork closes them in the child. That place has to be one for each process, because
`os.register_at_fork` is.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import weakref
from typing import TYPE_CHECKING

from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from sandcell.client.protocol import Address

__all__ = ["connect_now", "connect_unix_blocking", "is_stale", "new_socket", "own", "receive_with_file"]

_open = weakref.WeakSet[socket.socket]()


def _close_in_child() -> None:
    for each in list(_open):
        each.close()  # the connection itself stays: the parent holds it
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)


def new_socket(address: Address) -> socket.socket:
    """Return a socket for `address` that a forked child will not hold."""
    family = socket.AF_UNIX if address.path else socket.AF_INET
    return own(socket.socket(family, socket.SOCK_STREAM))


def own(made: socket.socket) -> socket.socket:
    """Return `made`, which a forked child will not hold from now on."""
    _open.add(made)
    return made


def connect_now(address: Address) -> socket.socket | None:
    """Connect to a unix socket without waiting; None where its backlog is full, and one has to wait."""
    made = new_socket(address)
    made.settimeout(0.0)
    try:
        with connect_address(address.path) as place:
            made.connect(place)
    except BlockingIOError:
        made.close()
        return None
    except BaseException:
        made.close()
        raise
    return made


def connect_unix_blocking(address: Address, timeout: float) -> socket.socket:
    """Connect to a unix socket whose backlog may be full, within `timeout` seconds.

    A unix socket that would block says EAGAIN and is not connecting, unlike TCP; only a blocking connect
    waits for room, and SO_SNDTIMEO bounds it. Source: unix(7), `unix_stream_connect` in net/unix/af_unix.c.
    """
    made = new_socket(address)
    try:
        made.settimeout(None)
        seconds = max(timeout, 0.001)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        with connect_address(address.path) as place:
            made.connect(place)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
    except BlockingIOError as problem:
        made.close()
        raise TimeoutError("its backlog is full") from problem
    except BaseException:
        made.close()
        raise
    return made


def is_stale(connection: socket.socket) -> bool:
    """Tell whether an idle connection was closed, here or there, or says what nobody asked for."""
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def receive_with_file(connection: socket.socket, most: int) -> tuple[bytes, int | None]:
    """Return what has come, b"" at the end of the connection, and the descriptor beside it, None where there is none.

    Raises:
        BlockingIOError: nothing is there; the socket does not block.
    """
    data, fds, _, _ = socket.recv_fds(connection, most, 1, socket.MSG_CMSG_CLOEXEC)
    return data, fds[0] if fds else None
