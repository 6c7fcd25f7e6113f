"""Where code in the sandbox calls host tools: one socket for all runs that have some, opened by the first of them.

It is abstract, so that it has no file which user code could move away and any user of the sandbox reaches it; it is in the
sandbox's network, so nobody outside does. A request is a line of JSON, `{"secret", "verb", "name", "size"}`, and `size`
bytes of arguments; the answer a line `{"ok", "size"}` and as many bytes of JSON. Then the connection ends, and one that
ends earlier gives its call up. Source: docs/protocol.md, "Host tools".
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from sandcell.api import ToolFailure
from sandcell.tool_calls import ToolCalls, unavailable
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from types import TracebackType
    from typing import Self

    from sandcell.api import OfferTools
    from sandcell.config import Config

__all__ = ["ToolRoom"]

log = logging.getLogger(__name__)

_HEAD = 4096  # bytes of the line that a request begins with
_PATIENCE_S = (
    10.0  # for it and the arguments behind it; for a caller to take its answer; for a host to come again
)
_RETRY_S = 0.1
_MOST = 128  # connections at once that have not said all, each may hold arguments in memory: the next ends the oldest
_BACKLOG = 256
_MOST_TOOLS = 128


class _Asked(msgspec.Struct):
    secret: str
    verb: str
    name: str = ""
    size: int = 0


class _Asking(NamedTuple):
    """A call that is to be made."""

    calls: ToolCalls
    name: str
    arguments: bytes


class ToolRoom:
    """See the module. An async context manager; leaving it ends every call. `grace`: see `ToolCalls`."""

    def __init__(self, config: Config, *, grace: float = 0.0) -> None:
        self._config = config
        self._grace = min(grace, _PATIENCE_S)
        self._live: dict[str, ToolCalls] = {}
        self._clients: Counter[str] = Counter()  # the open leases of each
        self._listener: socket.socket | None = None
        self._tasks: asyncio.TaskGroup
        self._address = ""

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for calls in list(self._live.values()):
            calls.close()
        if self._listener is not None:
            self._accepting.cancel()
            self._listener.close()
        await self._tasks.__aexit__(kind, exc, trace)

    def open(self, offer: OfferTools) -> ToolCalls:
        """Take the calls of one run, from now on and until they are closed.

        Raises:
            InvalidRequest: INVALID_ARGUMENT: too many tools; TOO_LARGE: too much is said of them.
        """
        self._check(offer)
        if self._listener is None:
            self._listen()
        calls = ToolCalls(
            offer,
            self._address,
            self._config,
            grace=self._grace,
            is_present=self._clients.__contains__,
            on_close=self._forget,
        )
        self._live[calls.secret] = calls
        return calls

    @contextmanager
    def present(self, client: str) -> Generator[None]:
        """A program is there inside the block: calls to its tools may wait until it follows their run."""
        self._clients[client] += 1
        try:
            yield
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
                for calls in list(self._live.values()):
                    calls.look_for_host()

    def _forget(self, secret: str) -> None:
        self._live.pop(secret, None)

    def _check(self, offer: OfferTools) -> None:
        if len(offer.tools) > _MOST_TOOLS:
            said = f"{len(offer.tools)} tools are more than {_MOST_TOOLS}"
            raise error(ErrorCode.INVALID_ARGUMENT, said, details={"field": "tools"})
        size, most = len(msgspec.json.encode(offer)), self._config.max_tool_size
        if size > most:
            said = f"the tools and their schemas have {size} bytes, at most {most} are taken"
            raise error(ErrorCode.TOO_LARGE, said, details={"field": "tools", "limit": most})

    # --- connections

    def _listen(self) -> None:
        self._address = f"sandcell-tools-{secrets.token_hex(8)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self._address}")
        self._listener.listen(_BACKLOG)
        self._listener.settimeout(0)
        self._accepting = self._tasks.create_task(self._accept(self._listener))

    async def _accept(self, listener: socket.socket) -> None:
        """Serve whoever connects, until cancelled. Who connects and says nothing makes nobody wait who has something to say:
        over the bound the oldest of them is dropped."""
        loop, silent = asyncio.get_running_loop(), dict[asyncio.Task[None], None]()
        async with asyncio.TaskGroup() as serving:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as problem:  # no descriptor is free, which no event tells the end of
                    log.warning("a caller of tools was not taken: %s", problem)
                    await asyncio.sleep(_RETRY_S)
                    continue
                task = serving.create_task(self._serve(connection, silent))
                silent[task] = None
                task.add_done_callback(lambda done: silent.pop(done, None))
                if len(silent) > _MOST:
                    oldest = next(iter(silent))
                    del silent[oldest]
                    oldest.cancel()
                # `sock_accept` does not wait where somebody is there: now those are heard.
                await asyncio.sleep(0)

    async def _serve(self, connection: socket.socket, silent: dict[asyncio.Task[None], None]) -> None:
        """Serve one caller, which is in `silent` until what it asks has been read."""
        try:
            async with _streams(connection) as (reader, writer):
                asked = await self._read(reader)
                silent.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
                answer = await _call(asked, reader) if isinstance(asked, _Asking) else asked
                async with asyncio.timeout(_PATIENCE_S):
                    await _send(writer, answer)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as problem:
            log.debug("dropped a caller of tools: %r", problem)  # it is user code: anything may come of it
        except Exception:  # the outermost place: the caller sees its connection end
            log.exception("failed a caller of tools")

    async def _read(self, reader: asyncio.StreamReader) -> _Asking | msgspec.Raw | ToolFailure:
        """Return the call that is asked for, or the answer where it is none.

        Raises:
            OSError, TimeoutError, ValueError, IncompleteReadError: nobody waits for an answer, or not in our words.
        """
        async with asyncio.timeout(_PATIENCE_S):
            asked = msgspec.json.decode(await reader.readline(), type=_Asked)
            calls = self._live.get(asked.secret)
            if calls is None:
                return unavailable("these tools belong to a run that has ended")
            if asked.verb == "list":
                return calls.shown
            if not 0 <= asked.size <= self._config.max_tool_size:
                return self._too_large(asked)
            return _Asking(calls, asked.name, await reader.readexactly(asked.size))

    def _too_large(self, asked: _Asked) -> ToolFailure:
        most = self._config.max_tool_size
        said = f"the arguments have {asked.size} bytes of JSON, at most {most} travel"
        return ToolFailure(name="InvalidArguments", message=said, kind="arguments")


@asynccontextmanager
async def _streams(
    connection: socket.socket,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield both ways of a connection, which ends with the block: what was not sent by then is dropped."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=_HEAD)
    writer.transport.set_write_buffer_limits(0)  # `drain` waits until all is sent
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _call(asked: _Asking, reader: asyncio.StreamReader) -> msgspec.Raw | ToolFailure:
    """Make the call, and give it up when its caller closes the connection."""
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(asked.calls.call(asked.name, asked.arguments))
        leaving = tasks.create_task(_await_leaving(reader))
        await asyncio.wait((calling, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        calling.cancel()
    return unavailable("the caller left") if calling.cancelled() else calling.result()


async def _await_leaving(reader: asyncio.StreamReader) -> None:
    """Return at the end of the connection, or when more is said on it, which is no caller of ours."""
    try:
        await reader.read(1)
    except OSError:
        pass  # an end of another kind


async def _send(writer: asyncio.StreamWriter, answer: msgspec.Raw | ToolFailure) -> None:
    if isinstance(answer, ToolFailure):  # whole: a body of the interface leaves out what is as usual
        ok, body = False, msgspec.json.encode(msgspec.structs.asdict(answer))
    else:
        ok, body = True, bytes(answer)
    head: dict[str, Any] = {"ok": ok, "size": len(body)}
    writer.write(msgspec.json.encode(head) + b"\n" + body)
    await writer.drain()
