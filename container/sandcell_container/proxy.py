"""The filtering proxy that is a sandbox's only way out: HTTP, and anything else by CONNECT.

It runs outside of the sandbox. It asks the resolver once and connects to an address that it has checked, so what a name
stands for a moment later does not matter. The rules are in `network`, the words in `proxy_head`; here is the rim.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode
from sandcell_container.network import address_of, is_public
from sandcell_container.proxy_head import (
    CONNECTED,
    LONGEST_HEAD,
    Refusal,
    not_allowed,
    not_public,
    read_wish,
)

if TYPE_CHECKING:
    from sandcell_container.network import Allowed
    from sandcell_container.proxy_head import Wish

__all__ = ["Proxy", "ProxyLimits", "Refused", "Resolve", "resolve"]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, the best first. Raises OSError: it has none."""

_CHUNK = 64 * 2**10
_MOST_TOLD = 200  # different refusals: user code may try as many hosts as it likes
_MOST_ADDRESSES = 8
_DISCARD = 9  # a port
_LINGER = 2.0  # seconds, for the other side to take what was said last


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """Durations in seconds. `idle`: a connection over which nothing comes for so long is ended."""

    connections: int = 256
    head: float = 20.0
    resolve: float = 10.0
    connect: float = 20.0
    idle: float = 600.0


class Refused(NamedTuple):
    """A host that was refused, for the sandbox's events."""

    host: str
    message: str


class _Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Proxy:
    """Serves clients. `allowed` is asked anew for each connection and chunk, so it is to be
    cheap while nothing has changed; `tell` hears of each host that is refused, once. `is_own` tells whether an address
    is this machine's: what listens there was often meant for the machine alone."""

    def __init__(
        self,
        allowed: Callable[[], Allowed],
        *,
        resolve: Resolve,
        tell: Callable[[Refused], None],
        is_own: Callable[[str], bool] | None = None,
        limits: ProxyLimits = ProxyLimits(),
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._tell = tell
        self._is_own = is_own or _is_own
        self._limits = limits
        self._open = 0
        self._told = set[Refused]()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Serve who connects to `listener`, which the server has from now on. The caller closes that."""
        return await asyncio.start_server(self._serve, sock=listener, limit=LONGEST_HEAD)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            await self._answer(_Streams(reader, writer))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # one of both has gone, or has said nothing for too long: the other sees its connection end
        finally:
            self._open -= 1
            await _close(writer)

    async def _answer(self, client: _Streams) -> None:
        try:
            wish = await self._read(client)
            server = await self._reach(wish)
        except Refusal as refusal:
            if refusal.host:
                self._note(Refused(refusal.host, refusal.message))
            await _refuse(client, refusal)
            return
        try:
            await self._relay(client, server, wish)
        finally:
            await _close(server.writer)

    async def _read(self, client: _Streams) -> Wish:
        if self._open > self._limits.connections:
            most = self._limits.connections
            raise Refusal(
                503, ErrorCode.RATE_LIMITED, f"the sandbox has {most} connections, which is all it may have"
            )
        try:
            async with asyncio.timeout(self._limits.head):
                return read_wish(await client.reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise Refusal(400, ErrorCode.TOO_LARGE, f"the head has more than {LONGEST_HEAD} bytes") from None

    async def _reach(self, wish: Wish) -> _Streams:
        """Connect to an address that was checked. Raises Refusal."""
        allowed = self._allowed()
        if not allowed.host(wish.host, wish.port):
            raise not_allowed(wish.host, wish.port)
        found = await self._addresses(wish)
        checked = [each for each in found if self._may_be(allowed, each, wish.port)]
        if not checked:
            raise not_public(wish.host, wish.port, found[0])
        try:
            async with asyncio.timeout(self._limits.connect):
                return await _connect(checked[:_MOST_ADDRESSES], wish.port)
        except (OSError, TimeoutError) as failed:
            words = str(failed) or "no answer in time"
            raise _unreachable(wish, words) from failed

    async def _addresses(self, wish: Wish) -> Sequence[str]:
        if address_of(wish.host) is not None:
            return [wish.host]
        try:
            async with asyncio.timeout(self._limits.resolve):
                found = await self._resolve(wish.host, wish.port)
        except (OSError, TimeoutError) as failed:
            raise _unreachable(wish, f"the name does not resolve: {failed}") from failed
        if not found:
            raise _unreachable(wish, "the name has no address")
        return found

    async def _relay(self, client: _Streams, server: _Streams, wish: Wish) -> None:
        """Pass on what comes, until the server has said all, nothing comes any more, or the list has that host no more."""
        client.writer.write(b"" if wish.head else CONNECTED)
        server.writer.write(wish.head)
        idle, now = self._limits.idle, asyncio.get_running_loop().time
        is_allowed = self._guard(wish, server)
        async with asyncio.timeout(idle) as patience:

            def goes_on() -> bool:
                if not patience.expired():
                    patience.reschedule(now() + idle)
                return is_allowed()

            async with asyncio.TaskGroup() as group:
                upward = group.create_task(_copy(client.reader, server.writer, goes_on))
                await _copy(server.reader, client.writer, goes_on)
                upward.cancel()

    def _guard(self, wish: Wish, server: _Streams) -> Callable[[], bool]:
        """Return what tells whether the list still has where a connection leads. It is asked for each chunk."""
        address = str(server.writer.get_extra_info("peername")[0])
        seen: Allowed | None = None

        def is_allowed() -> bool:
            nonlocal seen
            found = self._allowed()
            if found is not seen:
                may = found.host(wish.host, wish.port) and self._may_be(found, address, wish.port)
                seen = found if may else None
            return found is seen

        return is_allowed

    def _may_be(self, allowed: Allowed, text: str, port: int) -> bool:
        """Tell whether an allowed host may stand for the address `text`: a listed one, or a public one of elsewhere."""
        address = address_of(text)
        if address is None:
            return False
        return allowed.address(address, port) or (is_public(address) and not self._is_own(text))

    def _note(self, refused: Refused) -> None:
        if refused not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(refused)
            self._tell(refused)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask this machine's resolver. Raises OSError: it has no address for `host`."""
    loop = asyncio.get_running_loop()
    # As bytes: text would have it import a codec, where nothing may be imported any more.
    found = await loop.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _is_own(address: str) -> bool:
    """Tell whether `address` is one of this machine's: what is sent there would come from there. Nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, _DISCARD))
        except OSError:
            return False  # no way leads there, as who connects is about to hear
        return address_of(probe.getsockname()[0]) == address_of(address)


async def _connect(addresses: Sequence[str], port: int) -> _Streams:
    """Connect to the first address that takes it. Raises OSError: of the last that did not."""
    *others, last = addresses
    for address in others:
        with contextlib.suppress(OSError):  # there is another one
            return _Streams(*await asyncio.open_connection(address, port))
    return _Streams(*await asyncio.open_connection(last, port))


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, goes_on: Callable[[], bool]
) -> None:
    """Copy to the end, or as long as `goes_on`, and pass that on. A connection that breaks is an end as well: the other direction may have more."""
    with contextlib.suppress(OSError):
        await writer.drain()
        while (chunk := await reader.read(_CHUNK)) and goes_on():
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


async def _refuse(client: _Streams, refusal: Refusal) -> None:
    """Answer, and read on for a moment: closed with something unread, a connection loses what was written to it."""
    async with asyncio.timeout(_LINGER):
        client.writer.write(refusal.answer())
        await client.writer.drain()
        client.writer.write_eof()
        while await client.reader.read(_CHUNK):
            pass


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):  # it is over, whatever the other side has to say to that
        async with asyncio.timeout(_LINGER):
            await writer.wait_closed()


def _unreachable(wish: Wish, words: str) -> Refusal:
    return Refusal(502, ErrorCode.UNREACHABLE, f"{wish.host}:{wish.port} cannot be reached: {words}")
