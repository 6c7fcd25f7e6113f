"""A listener for browsers of this machine, with an origin of its own.

An address below 127.0.0.0/8, not a port of 127.0.0.1 alone: browsers send cookies of a host to all its ports, so what is
served would get those of every other server of the person's, JupyterLab's among them, and could set some for these.
"""

from __future__ import annotations

import errno
import secrets
import socket

from sandcell.client.sockets import own

__all__ = ["listen_on_loopback"]

_BACKLOG = 128


def listen_on_loopback(*, is_shared: bool = False) -> socket.socket:
    """Listen at an address of the loopback that nobody else has; at 127.0.0.1 where the system has no other, and where it
    `is_shared`, as by names of hosts that lead there. The socket does not block."""
    own_address = f"127.{_byte()}.{_byte()}.{_byte()}"
    try:
        return _bind("127.0.0.1" if is_shared else own_address)
    except OSError as problem:
        if problem.errno != errno.EADDRNOTAVAIL:
            raise
    return _bind("127.0.0.1")


def _bind(host: str) -> socket.socket:
    made = own(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        made.settimeout(0.0)
        made.bind((host, 0))
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _byte() -> int:
    return 2 + secrets.randbelow(253)
