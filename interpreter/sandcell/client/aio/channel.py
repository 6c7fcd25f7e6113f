"""The rim of the asyncio client: sockets with deadlines, callbacks, local files. Its twin is `blocking/channel.py`.

Bare sockets on the running loop and not streams: a connection then belongs to no loop, so one sandbox serves a
program that runs a loop, ends it, and runs another.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandcell.client.local_file import Replacement
from sandcell.client.refusals import no_websockets, refused_websocket
from sandcell.client.sockets import (
    connect_now,
    connect_unix_blocking,
    is_stale,
    new_socket,
    receive_with_file,
)
from sandcell.client.task_ends import end_tasks
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    import socket
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Mapping,
        Sequence,
    )

    from websockets.asyncio.client import ClientConnection

    WebSocket = ClientConnection

    from sandcell.client.protocol import Address
    from sandcell.client.stdin import StdinFile
    from sandcell_container.file_info import TransferReport
    from sandcell_container.pour import Pour

__all__ = [
    "Beside",
    "Channel",
    "Errands",
    "call",
    "call_tool",
    "in_thread",
    "is_of_tool",
    "open_websocket",
    "pack_chunks",
    "read_chunks",
    "to_its_end",
    "unpack_chunks",
    "write_chunks",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_CHUNK = 256 * 2**10


class Channel:
    """One connection. Deadlines are by `time.monotonic()`, None waits for ever; past one is TimeoutError."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @classmethod
    async def open(cls, address: Address, deadline: float) -> Channel:
        """Connect. OSError where nobody listens."""
        if address.path:
            made = connect_now(address)
            if made is None:
                left = deadline - time.monotonic()
                made = await asyncio.to_thread(connect_unix_blocking, address, left)
                made.settimeout(0.0)
            return cls(made)
        made = new_socket(address)
        try:
            made.settimeout(0.0)
            async with _until(deadline):
                await asyncio.get_running_loop().sock_connect(made, (address.host, address.port))
        except BaseException:
            made.close()
            raise
        return cls(made)

    async def send(self, data: bytes, deadline: float | None) -> None:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            async with _until(deadline):
                await asyncio.get_running_loop().sock_sendall(self._socket, memoryview(data)[sent:])

    async def receive(self, deadline: float | None) -> bytes:
        """Return what came, b"" at the end of the connection."""
        if deadline is None:
            return await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)
        async with _until(deadline):
            return await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)

    async def is_heard(self, deadline: float) -> bool:
        """Wait until there is something to receive, were it the end of the connection; False where there is nothing by then."""
        try:
            async with _until(deadline):
                await _readable(self._socket.fileno())
        except TimeoutError:
            return False
        return True

    async def receive_with_file(self, deadline: float | None) -> tuple[bytes, int | None]:
        """Return what came, and the descriptor that came with it: the caller's from now on, None where there is none."""
        while True:
            try:
                return receive_with_file(self._socket, _CHUNK)
            except BlockingIOError:
                async with _until(deadline):
                    await _readable(self._socket.fileno())

    async def send_file(self, fd: int, at: int, count: int, deadline: float | None) -> int:
        """Send at most `count` bytes of a file from `at` on, and return how many, 0 at its end."""
        while True:
            try:
                return os.sendfile(self._socket.fileno(), fd, at, count)
            except BlockingIOError:
                async with _until(deadline):
                    await _writable(self._socket.fileno())

    async def receive_into(self, pour: Pour, most: int, deadline: float | None) -> int:
        """Move at most `most` bytes that come to where `pour` does, and return how many, 0 at the end of the connection."""
        while True:
            try:
                count = pour.fill(self._socket.fileno(), most)
            except BlockingIOError:
                async with _until(deadline):
                    await _readable(self._socket.fileno())
                continue
            await to_its_end(pour.drain)
            return count

    @asynccontextmanager
    async def sending(self, stdin: StdinFile, encode: Callable[[bytes], bytes]) -> AsyncGenerator[None]:
        """Inside the block also send what `stdin` gives, each piece by `encode`, whose b"" is the end. Where the other
        side takes no more the rest is dropped. What `stdin` raises ends the block."""
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send_all(stdin, encode))
                yield
                sending.cancel()
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None

    async def _send_all(self, stdin: StdinFile, encode: Callable[[bytes], bytes]) -> None:
        piece = None
        with _watch(stdin.fd) as readable:
            while piece != b"":
                await readable()
                piece = await asyncio.to_thread(stdin.read) if stdin.may_block else stdin.read()
                try:
                    await asyncio.get_running_loop().sock_sendall(self._socket, encode(piece))
                except OSError:
                    return  # it takes no more; its answer says why

    def detach(self) -> socket.socket:
        """Return the socket, which is the caller's from now on."""
        return self._socket

    def is_stale(self) -> bool:
        return is_stale(self._socket)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def _watch(fd: int | None) -> Generator[Callable[[], Awaitable[None]]]:
    """Yield what waits until there is something to read at `fd`: a copy of it, as the program may wait for it as well."""
    if fd is None:
        yield _at_once
        return
    copy = os.dup(fd)
    try:
        yield partial(_readable, copy)
    finally:
        os.close(copy)


async def _at_once() -> None:
    """There is nothing to wait for."""


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(fd, _wake, ready)
    except PermissionError:
        return  # a device that is always ready
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _until(deadline: float | None) -> asyncio.Timeout:
    return asyncio.timeout(None if deadline is None else deadline - time.monotonic())


class Beside:
    """Work of a handle's that goes on beside its caller: a task that this owns. `work` takes a deadline, here none.

    Where it has been broken off, because it raised or its loop has ended, `join` has it go on.
    """

    def __init__(self, work: Callable[[float | None], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = self._begin()

    async def join(self, deadline: float | None) -> None:
        """Return when the work is done, or was stopped. Raises what it raised; TimeoutError past `deadline`, and it
        goes on."""
        if self._is_stopped:
            return
        task = self._task
        if task is None or task.cancelled():
            task = self._task = self._begin()
        if not task.done():
            async with _until(deadline):
                await asyncio.wait({task})
        if not self._is_stopped:
            self._task = None
            task.result()

    async def stop(self) -> None:
        """End it, and log what it raised where nobody has asked. Twice is fine."""
        self._is_stopped = True
        task, self._task = self._task, None
        if task is None:
            return
        if task.cancel():
            await asyncio.wait({task})
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, SandcellError):  # that is: the sandbox has ended
            _log.error("a callback raised", exc_info=problem)

    def _begin(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._work(None))


class Errands:
    """Work of one follower's that goes on beside it: tasks that this owns, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin with `work`. Raises nothing of it: `close` does."""
        self._tasks[name] = asyncio.get_running_loop().create_task(work())

    def drop(self, name: str) -> None:
        """Cancel what was begun by this name, if it still goes on."""
        if name in self._tasks:
            self._tasks[name].cancel()

    async def close(self) -> None:
        """Cancel all that still goes on, and raise what any of it raised. What being cancelled does not end is left."""
        await end_tasks(self._tasks.values())
        for task in self._tasks.values():
            if task.done() and not task.cancelled():
                task.result()


async def call_tool(function: Callable[..., Any], arguments: dict[str, Any], timeout_s: float) -> Any:
    """Call a host tool: a coroutine function here, any other in a thread, where it may block.

    Raises what the tool does; TimeoutError when a coroutine was cancelled, as the time of the call is over.
    """
    try:
        async with asyncio.timeout(timeout_s):
            if inspect.iscoroutinefunction(function):
                return await function(**arguments)
            result = await asyncio.to_thread(_call_in_thread, function, arguments)
            return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("it cancelled itself") from None


def _call_in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as problem:  # which no future takes: whoever waits would wait for ever
        raise RuntimeError("it raised StopIteration") from problem


def is_of_tool(problem: BaseException) -> bool:
    """Whether what a tool raised is its own failure, as `sys.exit()` in it is, and not meant for this program: ^C is, and
    that its task is cancelled."""
    return not isinstance(problem, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit)


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a callback of the caller's, which may be a coroutine function."""
    result = function(*args)
    return await result if inspect.isawaitable(result) else result


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks. Cancelling does not stop it."""
    return await asyncio.to_thread(function, *args)


async def to_its_end(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks for a moment and uses what the caller closes then. Cancelling waits for it."""
    work = asyncio.get_running_loop().run_in_executor(None, partial(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        work.exception()  # nobody else asks for it
        raise


async def open_websocket(
    channel: Channel, url: str, headers: Mapping[str, str], subprotocols: Sequence[str], timeout: float
) -> WebSocket:
    """Speak WebSocket on a connection. Raises: see `refused_websocket` and `no_websockets`."""
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake
        from websockets.typing import Subprotocol
    except ImportError as problem:
        raise no_websockets() from problem
    try:
        return await connect(
            url,
            sock=channel.detach(),
            additional_headers=headers,
            subprotocols=[*map(Subprotocol, subprotocols)] or None,
            open_timeout=timeout,
            proxy=None,
        )
    except (InvalidHandshake, EOFError, TimeoutError) as problem:
        raise refused_websocket(url, problem) from problem


async def read_chunks(path: str) -> AsyncIterator[bytes]:
    """Yield a local file in pieces."""
    with await asyncio.to_thread(Path(path).open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


async def write_chunks(path: str, chunks: AsyncIterator[bytes]) -> None:
    """Write a local file from pieces; what was there stays until the last of them is written."""
    made = await asyncio.to_thread(Replacement, path)
    try:
        async for chunk in chunks:
            await asyncio.to_thread(made.write, chunk)
        await asyncio.to_thread(made.keep)
    finally:
        made.drop()


async def pack_chunks(path: str) -> AsyncIterator[bytes]:
    """Yield a local folder as a stream of tar."""
    from sandcell.client.local_folder import pack_folder  # tarfile is a tenth of what the client costs

    packed = pack_folder(path)
    try:
        while chunk := await asyncio.to_thread(next, packed, b""):
            yield chunk
    finally:
        packed.close()


async def unpack_chunks(path: str, chunks: AsyncIterator[bytes]) -> TransferReport:
    """Make in a local folder what a stream of tar holds."""
    from sandcell.client.local_folder import FolderReceiver

    with await asyncio.to_thread(FolderReceiver, path) as made:
        async for chunk in chunks:
            await asyncio.to_thread(made.write, chunk)
        return await asyncio.to_thread(made.finish)
