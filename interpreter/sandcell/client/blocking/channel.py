"""The rim of the blocking client: sockets with deadlines, callbacks, local files. Its twin is `aio/channel.py`.

No event loop and no thread: it works inside a running notebook, and callbacks run where the caller stands.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandcell.client.local_file import Replacement
from sandcell.client.sockets import connect_now, connect_unix_blocking, is_stale, new_socket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from sandcell.client.protocol import Address

__all__ = ["Beside", "Channel", "call", "in_thread", "read_chunks", "write_chunks"]

T = TypeVar("T")

_CHUNK = 256 * 2**10


class Channel:
    """One connection. Deadlines are by `time.monotonic()`, None waits for ever; past one is TimeoutError."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @classmethod
    def open(cls, address: Address, deadline: float) -> Channel:
        """Connect. OSError where nobody listens."""
        if address.path:
            made = connect_now(address)
            return cls(made or connect_unix_blocking(address, deadline - time.monotonic()))
        made = new_socket(address)
        try:
            made.settimeout(_left(deadline))
            made.connect((address.host, address.port))
        except BaseException:
            made.close()
            raise
        return cls(made)

    def send(self, data: bytes, deadline: float | None) -> None:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)

    def receive(self, deadline: float | None) -> bytes:
        """Return what came, b"" at the end of the connection."""
        self._socket.settimeout(_left(deadline))
        return self._socket.recv(_CHUNK)

    def is_stale(self) -> bool:
        return is_stale(self._socket)

    def close(self) -> None:
        self._socket.close()


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


class Beside:
    """Work of a handle's that the asyncio client does beside its caller. Here `join` does it, where the caller stands."""

    def __init__(self, work: Callable[[float | None], None]) -> None:
        self._work = work

    def join(self, deadline: float | None) -> None:
        """Do it. Raises what it raises; TimeoutError past `deadline`, and it may go on later."""
        self._work(deadline)

    def stop(self) -> None:
        """There is nothing to end."""


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a callback of the caller's."""
    return function(*args)


def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks."""
    return function(*args)


def read_chunks(path: str) -> Iterator[bytes]:
    """Yield a local file in pieces."""
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def write_chunks(path: str, chunks: Iterator[bytes]) -> None:
    """Write a local file from pieces; what was there stays until the last of them is written."""
    made = Replacement(path)
    try:
        for chunk in chunks:
            made.write(chunk)
        made.keep()
    finally:
        made.drop()
