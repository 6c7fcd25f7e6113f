"""The rim of the blocking client: sockets with deadlines, callbacks, local files. Its twin is `aio/channel.py`.

No event loop and no thread: it works inside a running notebook, and callbacks run where the caller stands.
"""

from __future__ import annotations

import inspect
import os
import select
import time
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandcell.client.local_file import Replacement
from sandcell.client.refusals import no_websockets, refused_websocket
from sandcell.client.sockets import connect_now, connect_unix_blocking, new_socket, receive_with_file

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence

    from websockets.sync.client import ClientConnection

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

_CHUNK = 256 * 2**10
_TOO_LATE = "the deadline has passed"


class Channel:
    """One connection. Deadlines are by `time.monotonic()`, None waits for ever; past one is TimeoutError.

    The socket never blocks: what is there is sent and read without asking first, and only what is not is waited for.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0.0)
        self._socket = connected
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._outgoing: _Outgoing | None = None

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
        rest = memoryview(data)
        while True:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            if not rest:
                return

    def receive(self, deadline: float | None) -> bytes:
        """Return what came, b"" at the end of the connection."""
        while True:
            if self._outgoing is not None:
                self._outgoing.send_until_answered(self._socket, deadline)
            elif not self._poll.poll(_left_ms(deadline)):
                raise TimeoutError(_TOO_LATE)
            try:
                return self._socket.recv(_CHUNK)
            except BlockingIOError:
                continue

    def is_heard(self, deadline: float) -> bool:
        """Wait until there is something to receive, were it the end of the connection; False where there is nothing by then."""
        return bool(self._poll.poll(_left_ms(deadline)))

    def receive_with_file(self, deadline: float | None) -> tuple[bytes, int | None]:
        """Return what came, and the descriptor that came with it: the caller's from now on, None where there is none."""
        while True:
            try:
                return receive_with_file(self._socket, _CHUNK)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)

    def send_file(self, fd: int, at: int, count: int, deadline: float | None) -> int:
        """Send at most `count` bytes of a file from `at` on, and return how many, 0 at its end."""
        while True:
            try:
                return os.sendfile(self._socket.fileno(), fd, at, count)
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)

    def receive_into(self, pour: Pour, most: int, deadline: float | None) -> int:
        """Move at most `most` bytes that come to where `pour` does, and return how many, 0 at the end of the connection."""
        while True:
            try:
                count = pour.fill(self._socket.fileno(), most)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            pour.drain()
            return count

    @contextmanager
    def sending(self, stdin: StdinFile, encode: Callable[[bytes], bytes]) -> Generator[None]:
        """Inside the block also send what `stdin` gives, each piece by `encode`, whose b"" is the end: while `receive`
        waits. Where the other side takes no more the rest is dropped. Raises there what `stdin` raises."""
        self._outgoing = _Outgoing(stdin, encode)
        try:
            yield
        except _StdinBroke as broken:
            raise broken.problem from None
        finally:
            self._outgoing = None

    def detach(self) -> socket.socket:
        """Return the socket, which is the caller's from now on, and blocks."""
        self._socket.settimeout(None)
        return self._socket

    def is_stale(self) -> bool:
        """Tell whether an idle connection was closed, here or there, or says what nobody asked for."""
        return self._socket.fileno() < 0 or bool(self._poll.poll(0))

    def close(self) -> None:
        self._socket.close()

    def _wait(self, events: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._socket, events)
        if not poll.poll(_left_ms(deadline)):
            raise TimeoutError(_TOO_LATE)


class _StdinBroke(Exception):
    """What the caller's file raised, on its way past all that would take it for a trouble of the connection."""

    def __init__(self, problem: Exception) -> None:
        super().__init__(str(problem))
        self.problem = problem


class _Outgoing:
    """What is sent while an answer is waited for."""

    def __init__(self, stdin: StdinFile, encode: Callable[[bytes], bytes]) -> None:
        self._stdin = stdin
        self._encode = encode
        self._rest = memoryview(b"")
        self._has_ended = False

    def send_until_answered(self, sock: socket.socket, deadline: float | None) -> None:
        """Send as much as is taken; return once there is something to read on `sock`."""
        while True:
            if self._stdin.fd is None and self._wants_more():
                self._read()
            ready = self._poll(sock).poll(_left_ms(deadline))
            if not ready:
                raise TimeoutError(_TOO_LATE)
            for fd, events in ready:
                if fd != sock.fileno():
                    self._read()
                elif events & select.POLLOUT:
                    self._send(sock)
            if any(fd == sock.fileno() and events & ~select.POLLOUT for fd, events in ready):
                return

    def _wants_more(self) -> bool:
        return not self._rest and not self._has_ended

    def _poll(self, sock: socket.socket) -> select.poll:
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if self._rest else 0))
        if self._stdin.fd is not None and self._wants_more():
            poll.register(self._stdin.fd, select.POLLIN)
        return poll

    def _read(self) -> None:
        try:
            piece = self._stdin.read()
        except Exception as problem:
            raise _StdinBroke(problem) from problem
        self._has_ended = not piece
        self._rest = memoryview(self._encode(piece))

    def _send(self, sock: socket.socket) -> None:
        try:
            self._rest = self._rest[sock.send(self._rest) :]
        except BlockingIOError:
            return
        except OSError:
            self._rest, self._has_ended = memoryview(b""), True  # it takes no more; its answer says why


def _left_ms(deadline: float | None) -> float | None:
    return None if deadline is None else max(_left(deadline), 0.0) * 1000


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(_TOO_LATE)
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


class Errands:
    """Work of one follower's that the asyncio client does beside it. Here it is done where the follower stands."""

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Do it."""
        work()

    def drop(self, name: str) -> None:
        """There is nothing to cancel."""

    def close(self) -> None:
        """There is nothing to end."""


def call_tool(function: Callable[..., Any], arguments: dict[str, Any], timeout_s: float) -> Any:
    """Call a host tool. A coroutine runs on a loop of its own, in a thread where one runs here already; its time is that
    of the call. Raises what the tool does; TimeoutError when a coroutine was cancelled, as its time is over."""
    result = function(**arguments)
    return _run_to_end(result, timeout_s) if inspect.isawaitable(result) else result


def is_of_tool(problem: BaseException) -> bool:
    """Whether what a tool raised is its own failure, as `sys.exit()` in it is, and not meant for this program: ^C is."""
    return not isinstance(problem, KeyboardInterrupt)


def _run_to_end(work: Awaitable[Any], timeout_s: float) -> Any:
    import asyncio  # who blocks and has no such tools needs none of it

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_on_loop(work, timeout_s)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, _run_on_loop, work, timeout_s).result()


def _run_on_loop(work: Awaitable[Any], timeout_s: float) -> Any:
    """Run to its end on a new loop; what goes on after that is cancelled, and left behind where that does not end it."""
    import asyncio

    from sandcell.client.task_ends import end_tasks

    async def run() -> Any:
        task = asyncio.ensure_future(work)
        if not (await asyncio.wait((task,), timeout=timeout_s))[0]:
            raise TimeoutError(_TOO_LATE)
        if task.cancelled():
            raise RuntimeError("it cancelled itself")
        return task.result()

    async def end() -> None:
        await end_tasks(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
        await loop.shutdown_asyncgens()

    loop = asyncio.new_event_loop()
    runner = asyncio.Runner(
        loop_factory=lambda: loop
    )  # of whose `close` there is too much: it waits for ever
    try:
        return runner.run(run())
    finally:
        runner.run(end())
        loop.close()


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a callback of the caller's."""
    return function(*args)


def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks."""
    return function(*args)


def to_its_end(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks for a moment and uses what the caller closes then."""
    return function(*args)


def open_websocket(
    channel: Channel, url: str, headers: Mapping[str, str], subprotocols: Sequence[str], timeout: float
) -> WebSocket:
    """Speak WebSocket on a connection. Raises: see `refused_websocket` and `no_websockets`."""
    try:
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import connect
        from websockets.typing import Subprotocol
    except ImportError as problem:
        raise no_websockets() from problem
    try:
        return connect(
            url,
            sock=channel.detach(),
            additional_headers=headers,
            subprotocols=[*map(Subprotocol, subprotocols)] or None,
            open_timeout=timeout,
            proxy=None,
        )
    except (InvalidHandshake, EOFError, TimeoutError) as problem:
        raise refused_websocket(url, problem) from problem


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


def pack_chunks(path: str) -> Iterator[bytes]:
    """Yield a local folder as a stream of tar."""
    from sandcell.client.local_folder import pack_folder  # tarfile is a tenth of what the client costs

    return pack_folder(path)


def unpack_chunks(path: str, chunks: Iterator[bytes]) -> TransferReport:
    """Make in a local folder what a stream of tar holds."""
    from sandcell.client.local_folder import FolderReceiver

    with FolderReceiver(path) as made:
        for chunk in chunks:
            made.write(chunk)
        return made.finish()
