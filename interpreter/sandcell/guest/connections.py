"""The guest's connections: how many there may be, how long one may take to say what it wants, and how it is refused
before there is a handler that could do so.

Tornado closes what it cannot read without a word or with an empty 400, and waits for the rest of a request for ever, or
else by a timer for each request, which costs a tenth of a short one. Here one timer looks after all, and rests while no
request is half there.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import sys
import time
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError

from sandcell.names import encode_names
from sandcell_container.errors import CODES, ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Self

    from tornado.httpserver import HTTPServer

    from sandcell_container.errors import SandcellError
    from sandcell_container.pour import Pour

__all__ = ["Connections", "GuestStream", "Moved", "Phase", "Shortcut", "refusal_of", "stream_of"]

log = logging.getLogger(__name__)

_BURST = 128  # connections that are accepted in one turn of the loop
_LOOKS = 4  # times that a half request is looked at before it has taken too long
_LINGER_S = 1.0
_CHUNK = 2**16
_SEND_BUFFER = 2**20  # as much of that as the system grants: long answers then take fewer turns
_MOST_HELD = 2**16  # bytes that may come behind a request before it is answered
_PAUSE_S = 1.0  # until the next try to accept, when no descriptor is left and no connection idle
_TORNADOS_400 = b"HTTP/1.1 400 Bad Request\r\n\r\n"

# A peer on another machine can vanish without a word: after half a minute it has. One on this machine cannot.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class Shortcut(Protocol):
    """A way to answer some requests without tornado."""

    def take(self, request: bytes, stream: GuestStream) -> asyncio.Task[None] | None:
        """Return what answers a request that has come in one piece, and then calls `stream.resume`; None leaves it."""
        ...


class Phase(Enum):
    """What a connection owes us."""

    IDLE = "nothing: it may ask, or not"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"
    SERVED = "nothing: it is being answered, or is no HTTP any more"
    SHORT = "nothing: it is being answered by a short cut"


class Moved(bytes):
    """A piece of a body that went straight into a file: it has a length, and no bytes. `problem`: it has come, and could not
    be written."""

    problem: OSError | None
    _count: int

    @classmethod
    def of(cls, count: int, problem: OSError | None = None) -> Moved:
        made = cls()
        made._count, made.problem = count, problem
        return made

    def __len__(self) -> int:
        return self._count


class GuestStream(IOStream):
    """One connection. `phase` is set where a head was read, too: nothing here knows what follows it."""

    def __init__(self, connection: socket.socket, connections: Connections) -> None:
        super().__init__(connection)
        self.phase = Phase.IDLE
        self.since = time.monotonic()
        self._connections = connections
        self._has_answered = False
        self._held = bytearray()  # what has come and is not for tornado yet
        self._task: asyncio.Task[None] | None = None
        self._pour: Pour | None = None
        self._moving: tuple[asyncio.Future[bytes], int] | None = None

    @property
    def is_owing(self) -> bool:
        """Whether a request is half there, and its rest is waited for."""
        return self.phase in {Phase.HEAD, Phase.BODY} and self.reading()

    def divert(self, pour: Pour | None) -> None:
        """What comes of a body from now on goes there, and `read_bytes` returns only how much it was."""
        self._pour = pour

    def reading(self) -> bool:
        return self._moving is not None or super().reading()

    def has_unread(self) -> bool:
        """Whether something has come that was not read yet, or the connection has gone."""
        if self.socket is None:
            return True
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def refuse(self, problem: SandcellError) -> None:
        """Say why, where no answer has begun, and close."""
        log.info("refused a connection code=%s: %s", problem.code, problem.message)
        if not self._has_answered and self.socket is not None:
            copy = self.socket.dup()
            super().write(refusal_of(problem))
            self._connections.linger(copy)
        super().close()

    def resume(self, rest: bytes) -> None:
        """The short cut is over; tornado takes `rest`, and what has come since."""
        self._task = None
        if self.closed():
            return
        self.phase, self.since, self._has_answered = Phase.IDLE, time.monotonic(), False
        self._held[:0] = rest
        if self._held:
            self._handle_read()  # it waits for a head, and nothing else would tell it that there are bytes again

    def take_over(self) -> tuple[socket.socket, bytes]:
        """Return a socket of this connection and what has come on it and was not read yet. This stream is closed, the
        connection is not: it is the caller's. Nothing may have been answered that is not sent yet."""
        assert self.socket is not None, "who takes it over is answering a request on it"
        unread = bytes(self._read_buffer[: self._read_buffer_size]) + bytes(self._held)
        taken = self.socket.dup()
        super().close()
        self._connections.forget(self)
        return taken, unread

    # what tornado calls

    def read_until_regex(self, regex: bytes, max_bytes: int | None = None) -> Awaitable[bytes]:
        """Read a head: the connection has been answered, and may ask again."""
        self.phase = Phase.HEAD if self._read_buffer_size else Phase.IDLE
        self.since = time.monotonic()
        self._has_answered = False
        return super().read_until_regex(regex, max_bytes)

    def read_bytes(self, num_bytes: int, partial: bool = False) -> Awaitable[bytes]:  # noqa: FBT001, FBT002 -- tornado's
        if self.phase is Phase.BODY:
            self._note()
        if self._pour is None or self._read_buffer_size:
            return super().read_bytes(num_bytes, partial)
        moved: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._moving = moved, num_bytes
        self._move(self._pour)
        if not moved.done():
            self._add_io_state(self.io_loop.READ)
        return moved

    def _move(self, pour: Pour) -> None:
        """Move what has come of the body, where somebody asks for it."""
        if self._moving is None or self.socket is None:
            return
        moved, most = self._moving
        try:
            count = pour.fill(self.socket.fileno(), most)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        problem = None
        try:
            pour.drain()
        except OSError as failure:
            problem = failure
        self._moving = None
        moved.set_result(Moved.of(count, problem))

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        if self._pour is not None:
            self._move(self._pour)
            return None
        if self._held and self.phase is not Phase.SHORT:
            count: int | None = min(len(self._held), len(buf))
            buf[:count] = self._held[:count]
            del self._held[:count]
        else:
            count = super().read_from_fd(buf)
            if count and self._is_short_cut(buf, count):
                return None
        if count and self.phase is not Phase.SERVED:
            if self.phase is Phase.IDLE:
                self.phase = Phase.HEAD
            elif self.phase is Phase.HEAD:
                return count  # a head has one deadline, however it trickles in
            self._note()
        return count

    def _is_short_cut(self, buf: bytearray | memoryview, count: int) -> bool:
        """Take what came away from tornado: a request for the short cut, or what comes behind one that is not answered yet."""
        if self.phase is Phase.SHORT:
            self._held += buf[:count]
            if len(self._held) > _MOST_HELD:
                self.close()
            return True
        if self.phase is not Phase.IDLE or self._connections.shortcut is None:
            return False
        self._task = self._connections.shortcut.take(bytes(buf[:count]), self)
        if self._task is not None:
            self.phase = Phase.SHORT
        return self._task is not None

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        if data == _TORNADOS_400:
            self.refuse(_malformed(sys.exception()))
            return _done()
        self._has_answered = True
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:  # noqa: FBT002 -- tornado's
        self._connections.forget(self)
        if self._moving is not None:
            moving, self._moving = self._moving[0], None
            moving.set_exception(StreamClosedError())
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if isinstance(exc_info, UnsatisfiableReadError) and not self.closed():
            self.refuse(_head_too_long())
        super().close(exc_info)

    def _note(self) -> None:
        self.since = time.monotonic()
        self._connections.wake()


def stream_of(connection: Any) -> GuestStream | None:
    """Return the stream of a request's connection; None where there is none of ours."""
    stream: object = getattr(connection, "stream", None)
    return stream if isinstance(stream, GuestStream) else None


class Connections:
    """Accepts on `listener` and hands to `server`. A context manager over the running loop; leaving it stops accepting.

    At most `most` at once: for one more the one that has been idle longest is closed, and where none is idle it is
    RATE_LIMITED. One that is silent in the middle of a request for `patience` seconds is WAIT_TIMEOUT. `shortcut`
    answers what it takes.
    """

    def __init__(
        self,
        listener: socket.socket,
        server: HTTPServer,
        *,
        most: int,
        patience: float,
        shortcut: Shortcut | None = None,
    ) -> None:
        self.shortcut = shortcut
        self._listener = listener
        self._server = server
        self._most = most
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._streams = set[GuestStream]()
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._lingering: dict[socket.socket, asyncio.TimerHandle] = {}

    def __enter__(self) -> Self:
        self._listener.settimeout(0.0)
        self._begin_to_accept()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._listener.fileno())
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        for each in list(self._lingering):
            self._hang_up(each)

    # for GuestStream

    def wake(self) -> None:
        """A request is half there: look after it."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience / _LOOKS, self._look)

    def forget(self, stream: GuestStream) -> None:
        self._streams.discard(stream)

    def linger(self, refused: socket.socket) -> None:
        """Hear out, and drop, what the other side still sends for a moment: one that is cut off while it sends may never
        read what it was told."""
        refused.settimeout(0.0)
        try:
            refused.shutdown(socket.SHUT_WR)
        except OSError:
            refused.close()  # it has gone
            return
        self._lingering[refused] = self._loop.call_later(_LINGER_S, self._hang_up, refused)
        self._loop.add_reader(refused.fileno(), self._hear_out, refused)

    def _hear_out(self, refused: socket.socket) -> None:
        try:
            if refused.recv(_CHUNK):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # it has gone, without its last words
        self._hang_up(refused)

    def _hang_up(self, refused: socket.socket) -> None:
        self._lingering.pop(refused).cancel()
        self._loop.remove_reader(refused.fileno())
        refused.close()

    # deadlines

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        owing = [each for each in self._streams if each.is_owing]
        for each in owing:
            if now - each.since >= self._patience:
                each.refuse(_too_slow(each.phase, self._patience))
        if owing:
            self.wake()

    # accepting

    def _begin_to_accept(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_BURST):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as problem:
                self._run_short(problem)
                return
            self._take(connection, address)

    def _take(self, connection: socket.socket, address: Any) -> None:
        if len(self._streams) >= self._most and not self._make_room():
            self._send_away(connection, _too_many(self._most))
            return
        if connection.family != socket.AF_UNIX:
            for option in _KEEPALIVE:
                connection.setsockopt(*option)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        stream = GuestStream(connection, self)
        self._streams.add(stream)
        self._server.handle_stream(stream, address)

    def _send_away(self, connection: socket.socket, problem: SandcellError) -> None:
        connection.settimeout(0.0)
        try:
            connection.send(refusal_of(problem))
        except OSError:
            connection.close()  # it has gone
        else:
            self.linger(connection)

    def _make_room(self) -> bool:
        """Close the one that has been idle longest; False where none is. One whose request is on its way is not idle."""
        idle = [each for each in self._streams if each.phase is Phase.IDLE]
        for each in sorted(idle, key=lambda each: each.since):
            if not each.has_unread():
                each.close()
                return True
        return False

    def _run_short(self, problem: OSError) -> None:
        """No descriptor is left for one more: the listener would wake the loop for ever."""
        if self._make_room():
            return
        log.warning("cannot accept a connection: %s", problem)
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(_PAUSE_S, self._begin_to_accept)


def refusal_of(problem: SandcellError) -> bytes:
    """Return the answer that tells of `problem`, for who has no handler to say it."""
    status = CODES[problem.code].status
    body = encode_names(problem.to_dict())
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _done() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


# --- what is refused here


def _malformed(problem: BaseException | None) -> SandcellError:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"the request is no HTTP/1.1: {problem}"[:200],
        hint="a line, headers, an empty line, a body of the length that a header tells",
    )


def _head_too_long() -> SandcellError:
    return error(
        ErrorCode.TOO_LARGE, "the head of the request has more than 64 KiB", hint="put it into the body"
    )


def _too_slow(phase: Phase, patience: float) -> SandcellError:
    what = "head of the request" if phase is Phase.HEAD else "body"
    return error(
        ErrorCode.WAIT_TIMEOUT,
        f"the rest of the {what} did not come within {patience:g} s",
        hint="send a request at once",
    )


def _too_many(most: int) -> SandcellError:
    return error(
        ErrorCode.RATE_LIMITED,
        f"the sandbox has {most} connections, and all are in use",
        hint="close some, or ask again when they have been answered",
    )
