"""What listens in a sandbox, as its caller reaches it: at a URL of its own, by a request, by a WebSocket."""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING

from sandcell.api import ExposedPort, ExposePort
from sandcell.client.aio.channel import in_thread, open_websocket
from sandcell.client.protocol import Request, path_of
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, error
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandcell.client.aio.channel import WebSocket
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.aio.tunnel import AsyncTunnel
    from sandcell.ports.keeper import Keeper
    from sandcell.ports.reply import Port, PortReply, PortStatus

__all__ = ["AsyncPorts"]

_TIMEOUT_S = 30.0


class AsyncPorts:
    """The ports of one sandbox. Those below 1024 and some that docs/ports.md lists are INVALID_ARGUMENT everywhere."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._keeper: Keeper | None = None

    async def expose(self, port: int, name: str | None = None, *, rotate: bool = False) -> Port:
        """Serve `port` of the sandbox at a URL on this machine's loopback, and return it. Its origin is its own, and only who
        has its token is let in. Nothing needs to listen yet.

        A port that is exposed keeps its token and its URL; with `rotate` it gets another token, and the old one is
        worth nothing. A stop of the sandbox changes nothing; served it is as long as this handle is open.

        Raises:
            InvalidRequest: INVALID_ARGUMENT: the port; INVALID_NAME.
            Limited (QUOTA_EXCEEDED): 100 are exposed.
        """
        from sandcell.ports.reply import Port  # who exposes nothing pays for none of it

        body = encode_names(ExposePort(port=_whole(port), name=name, rotate=rotate))
        request = Request(method="POST", path=path_of("ports"), body=body, repeatable=not rotate)
        made = await self._transport.call(request, ExposedPort)
        url = await in_thread((await in_thread(self._serving)).open, made.port, made.token)
        return Port(url=url, port=made.port, token=made.token, name=made.name)

    async def list(self) -> list[PortStatus]:
        """Return the exposed ports, whoever exposed them, in order, and whether something listens on each now."""
        from sandcell.ports.reply import PortStatus

        found = await self._transport.call(Request(method="GET", path=path_of("ports")), list[ExposedPort])
        keeper = self._own_keeper()
        return [
            PortStatus(
                port=each.port,
                name=each.name,
                url=None if keeper is None else keeper.url(each.port, each.token),
                listening=each.listening,
            )
            for each in found
        ]

    async def close(self, port: int) -> None:
        """Expose `port` no more: its token is worth nothing from now on, whoever serves it. NOT_FOUND where it is not exposed."""
        path = path_of("ports", str(_whole(port)))
        await self._transport.fetch(Request(method="DELETE", path=path, repeatable=False))
        keeper = self._own_keeper()
        if keeper is not None:
            await in_thread(keeper.close, port)

    async def request(
        self,
        port: int,
        method: str = "GET",
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        timeout: float | None = _TIMEOUT_S,
        max_body: str | int = "64MiB",
    ) -> PortReply:
        """Ask what listens on `port` of the sandbox, which needs not be exposed, and return the whole answer, whatever its status.

        `path` with its query, percent-encoded. `timeout` in seconds to the end of the answer, None is no limit; `max_body` of
        the answer.

        Raises:
            Unavailable (PORT_NOT_LISTENING): nothing listens, or what does ended the connection before the answer was whole.
            WaitTimeout (WAIT_TIMEOUT): the answer was not whole within `timeout`.
            InvalidRequest: INVALID_ARGUMENT; TOO_LARGE: the answer has more than `max_body`.
        """
        from sandcell.ports.reply import encode_request

        asked = encode_request(_whole(port), method, path, headers=headers, body=body)
        limit = parse_size(max_body, what="max_body")
        tunnel = await self._connect(port)
        try:
            return await _converse(tunnel, asked, method, deadline=_by(timeout), limit=limit)
        except TimeoutError as problem:
            raise error(
                ErrorCode.WAIT_TIMEOUT,
                f"{method} {path[:80]} on port {port} was not answered within {timeout:g} s",
                hint="it may still be worked on; ask with a longer timeout",
            ) from problem
        finally:
            tunnel.close()

    async def connect_ws(
        self,
        port: int,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] = (),
        timeout: float = _TIMEOUT_S,
    ) -> WebSocket:
        """Open a WebSocket to what listens on `port` of the sandbox, which needs not be exposed. Returns a connection of the
        package `websockets`: `send`, `recv`, `close`, a context manager and an iterator of messages.

        Raises:
            InvalidRequest: UNSUPPORTED: `websockets` is not installed: `pip install "sandcell[websockets]"`;
                INVALID_ARGUMENT: what listens refuses, or speaks no WebSocket.
            Unavailable (PORT_NOT_LISTENING): nothing listens.
        """
        from sandcell.ports.reply import encode_target

        url = f"ws://localhost:{_whole(port)}{encode_target(path)}"
        tunnel = await self._connect(port)
        try:
            return await open_websocket(tunnel.channel, url, headers or {}, subprotocols, timeout)
        except BaseException:
            tunnel.close()
            raise

    def stop_serving(self) -> None:
        """Serve nothing more. The exposures stay, for who serves them next."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()

    async def _connect(self, port: int) -> AsyncTunnel:
        from sandcell.ports.tunnel import connect_request

        return await self._transport.tunnel(connect_request(port, wakes=True))

    def _own_keeper(self) -> Keeper | None:
        """Return what serves for this process, None where nothing does: a forked child serves nothing of its parent's."""
        keeper = self._keeper
        return keeper if keeper is not None and keeper.pid == os.getpid() else None

    def _serving(self) -> Keeper:
        """Return what serves, made at first use and once for each process."""
        from sandcell.client.host import the_host
        from sandcell.ports.keeper import Keeper

        keeper = self._own_keeper()
        if keeper is None:
            keeper = self._keeper = Keeper(self._transport.guest, the_host().config.public_host)
            weakref.finalize(self, keeper.stop)  # a handle that nobody closes, and the end of the program
        return keeper


async def _converse(
    tunnel: AsyncTunnel, asked: bytes, method: str, *, deadline: float | None, limit: int
) -> PortReply:
    from sandcell.ports.reply import PortReply

    head, parts = await tunnel.ask(asked, method, deadline), list[bytes]()
    size = 0
    while part := await tunnel.read(deadline):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise error(
                ErrorCode.TOO_LARGE,
                f"the answer has more than {limit} bytes",
                hint="max_body= takes more",
                details={"limit": limit},
            )
    return PortReply(status=head.status, headers=head.headers, body=b"".join(parts))


def _by(timeout: float | None) -> float | None:
    if timeout is not None and timeout <= 0:
        raise error(ErrorCode.INVALID_ARGUMENT, f"timeout={timeout} is no time", hint="seconds, or None")
    return None if timeout is None else time.monotonic() + timeout


def _whole(port: object) -> int:
    from sandcell.ports.rules import check_port

    return check_port(port)
