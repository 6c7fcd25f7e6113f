"""The ports of the sandbox: which are exposed, what listens, and connections to them.

The guest is inside the network of its sandbox, on every engine: so it reaches what listens there, whatever the network
of the sandbox is.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from sandcell.api import ExposedPort, ExposePort
from sandcell.ports.rules import check_port, new_token
from sandcell.ports.wire import Wire
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.listening import listening_ports
from sandcell_container.ids import check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandcell_container.memo import Memo

__all__ = ["Ports"]

_MOST_EXPOSED = 100
_CONNECT_S = 5.0  # to the loopback: it takes longer only where a backlog is full
_HOSTS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class Ports:
    """An async context manager; leaving it ends the connections. `most` is how many there may be at once."""

    def __init__(self, memo: Memo, *, most: int) -> None:
        self._memo = memo
        self._most = most
        self._group = asyncio.TaskGroup()
        self._open = set[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._open:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    # --- exposures

    def expose(self, asked: ExposePort) -> ExposedPort:
        """Return the exposure of a port, made where there is none.

        Raises:
            InvalidRequest: INVALID_ARGUMENT: the port, see `check_port`; INVALID_NAME.
            Limited (QUOTA_EXCEEDED): 100 are exposed.
        """
        port = check_port(asked.port)
        token, name = self._memo.exposures.get(port, ("", None))
        if asked.name is not None:
            name = check_id(asked.name, what="name of a port")
        if not token and len(self._memo.exposures) >= _MOST_EXPOSED:
            raise error(
                ErrorCode.QUOTA_EXCEEDED, f"{_MOST_EXPOSED} ports are exposed", hint="close some of them"
            )
        if not token or asked.rotate:
            token = new_token()
        self._memo.note_exposure(port, token, name)
        return ExposedPort(port=port, token=token, name=name, listening=port in listening_ports())

    def list(self) -> list[ExposedPort]:
        """Return the exposures by port. Nothing is connected to."""
        listening = listening_ports()
        return [
            ExposedPort(port=port, token=token, name=name, listening=port in listening)
            for port, (token, name) in sorted(self._memo.exposures.items())
        ]

    def close(self, port: int) -> None:
        """End an exposure: its token opens nothing any more. Raises NotFound (NOT_FOUND)."""
        if port not in self._memo.exposures:
            raise error(
                ErrorCode.NOT_FOUND, f"port {port} is not exposed", hint="GET /v1/ports lists those that are"
            )
        self._memo.note_exposure(port, None, None)

    def check_exposure(self, port: int, token: str) -> None:
        """Return when `token` is that of the exposure of `port`. Raises Refused (FORBIDDEN)."""
        known, _ = self._memo.exposures.get(port, ("", None))
        if not known or not hmac.compare_digest(known.encode(), token.encode()):
            raise error(
                ErrorCode.FORBIDDEN,
                f"this is not the token of port {port}",
                hint="the exposure was closed or rotated: ask its owner for the new URL",
            )

    # --- connections

    async def connect(self, port: int) -> Wire:
        """Return a connection to what listens on `port` of the loopback.

        Raises:
            Unavailable (PORT_NOT_LISTENING): nothing does.
            InvalidRequest (INVALID_ARGUMENT): see `check_port`.
            Limited (RATE_LIMITED): there are too many connections.
        """
        check_port(port)
        if len(self._open) >= self._most:
            raise error(
                ErrorCode.RATE_LIMITED,
                f"the ports of the sandbox have {self._most} connections",
                hint="close some, or ask again when they have ended",
            )
        for family, host in _HOSTS:
            with suppress(OSError, TimeoutError):  # nobody there
                return Wire(await _connect(family, host, port))
        raise error(
            ErrorCode.PORT_NOT_LISTENING,
            f"nothing listens on port {port} of the sandbox",
            hint=f"start a server there, on 127.0.0.1:{port}, 0.0.0.0 or ::",
            details={"port": port},
        )

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have `work`, which raises nothing, go on beside, as one of the connections."""

        async def run() -> None:
            await work()

        task = self._group.create_task(run())
        self._open.add(task)
        task.add_done_callback(self._open.discard)


async def _connect(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(0.0)
        async with asyncio.timeout(_CONNECT_S):
            await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made
