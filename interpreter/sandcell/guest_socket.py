"""WebSockets of a guest, opened from the host: over its unix socket or TCP, its refusals as our errors."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.netutil import Resolver
from tornado.websocket import WebSocketError, websocket_connect

from sandcell.client.protocol import error_of
from sandcell_container.errors import ErrorCode, error
from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tornado.websocket import WebSocketClientConnection

    from sandcell.guest_address import GuestAddress
    from sandcell_container.engine import Address

__all__ = ["open_socket"]


async def open_socket(
    guest: GuestAddress,
    path: str,
    query: Mapping[str, str],
    *,
    max_message: int,
    hint: str,
    subprotocols: Sequence[str] = (),
    on_message: Callable[[str | bytes | None], None] | None = None,
) -> WebSocketClientConnection:
    """Return an open connection to `path`, one of the guest's routes. `max_message` in bytes.

    `on_message` is called with each frame, and with None at the end; without it frames are read one by one, and the
    guest waits meanwhile.

    Raises:
        SandcellError: what the guest answered instead; UNREACHABLE; SANDBOX_GONE with `hint`.
    """
    host = "sandbox" if guest.address.path else str(guest.address)
    target = f"{path}?{urlencode(query)}" if query else path
    try:
        with _resolver(guest.address) as resolver:
            return await websocket_connect(
                HTTPRequest(
                    f"ws://{host}{target}",
                    headers={"Authorization": f"Bearer {guest.token}"},
                    connect_timeout=guest.connect_timeout,
                    request_timeout=guest.connect_timeout,
                ),
                on_message_callback=on_message,
                max_message_size=max_message,
                subprotocols=list(subprotocols) or None,
                resolver=resolver,
            )
    except HTTPClientError as problem:
        if problem.response is None:  # a time-out of tornado's
            raise error(ErrorCode.UNREACHABLE, f"the sandbox does not answer: {problem}") from problem
        raise error_of(problem.code, problem.response.body) from problem
    except (OSError, StreamClosedError, WebSocketError) as problem:
        raise error(ErrorCode.SANDBOX_GONE, "the sandbox has ended", hint=hint) from problem


@contextmanager
def _resolver(address: Address) -> Generator[Resolver | None]:
    """Yield what finds the guest while it is connected to: None is that of every host."""
    if not address.path:
        yield None
        return
    with connect_address(address.path) as path:
        yield _UnixResolver(path=path)


class _UnixResolver(Resolver):
    """Finds every host at one unix socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._path)]
