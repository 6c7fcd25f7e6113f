"""One connection to a ZMQ socket as a machine of bytes: handshake, frames, messages. No socket is known here.

Written by hand and not left to libzmq, because the other end is run by code that nobody trusts: libzmq bounds the
frames of a message, but not how many frames one message has, and so reads a message without end into its memory.
Here a whole message has a bound, and what is not read waits in the sender's process.

Source: https://rfc.zeromq.org/spec/23/ (ZMTP 3.0, mechanism NULL), which every libzmq since 4.0 speaks.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FRAME_COST", "BadPeer", "MessageTooLarge", "Peer", "SocketType", "pack_message"]

SocketType = Literal["DEALER", "SUB"]

FRAME_COST = 64  # bytes that count for each frame beside its data: a message of empty frames is not free
_MORE, _LONG, _COMMAND = 1, 2, 4
_SIGNATURE = b"\xff\0\0\0\0\0\0\0\1\x7f"
_GREETING = _SIGNATURE + b"\3\0" + b"NULL".ljust(20, b"\0") + b"\0" * 32
_SUBSCRIBE_ALL = b"\1"
_PING, _PONG, _ERROR, _READY = b"\4PING", b"\4PONG", b"\5ERROR", b"\5READY"
_PING_TTL = 2  # bytes between the name of a PING and what its PONG repeats
_LEAST = 2  # bytes of the shortest frame
_READ = 64 * 2**10
_READ_LONG = 2**20


class BadPeer(Exception):
    """The other end does not speak as a ZMQ socket does; nothing more is read from it."""


class MessageTooLarge(BadPeer):
    """A message has more bytes than are taken."""


class _Stage(Enum):
    GREETING = "greeting"
    HANDSHAKE = "handshake"
    OPEN = "open"


class Peer:
    """See the module: the connecting end of one connection. A message is a list of frames.

    `max_message` bounds a message with all its frames, each of which counts FRAME_COST bytes more. What `feed` and
    the constructor want to be sent is taken by `take_answer`, in time before anything else. `problem` says why nothing
    more can be read, where that is so.
    """

    def __init__(self, socket_type: SocketType, *, identity: bytes = b"", max_message: int) -> None:
        self._max_message = max_message
        self._stage = _Stage.GREETING
        self._buffer = bytearray()
        self._need = len(_GREETING)
        self._frames: list[bytes] = []
        self._size = 0
        self._is_subscriber = socket_type == "SUB"
        self.problem: BadPeer | None = None
        ready = _READY + _property(b"Socket-Type", socket_type.encode()) + _property(b"Identity", identity)
        self._answer = _GREETING + _pack_frame(ready, _COMMAND)

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done, so that messages may be sent."""
        return self._stage is _Stage.OPEN

    @property
    def wants(self) -> int:
        """How many bytes to read next: not many at once, so that a flood of small messages is taken in turns."""
        return min(max(self._need - len(self._buffer), _READ), _READ_LONG)

    def take_answer(self) -> bytes:
        answer, self._answer = self._answer, b""
        return answer

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Take what came and return the messages that are whole now. After a `problem` nothing is taken any more."""
        messages: list[list[bytes]] = []
        if self.problem is not None:
            return messages
        self._buffer += data
        if len(self._buffer) < self._need:
            return messages
        try:
            if self._stage is _Stage.GREETING:
                self._take_greeting()
            self._take_frames(messages)
        except BadPeer as problem:
            self.problem = problem
            self._buffer.clear()
            self._frames.clear()
        return messages

    def _take_frames(self, messages: list[list[bytes]]) -> None:
        end = 0
        with memoryview(self._buffer) as view:
            while (head := self._read_head(view, end)) is not None:
                flags, start, size = head
                end = start + size
                self._take_frame(flags, view[start:end].tobytes(), messages)
        del self._buffer[:end]

    def _take_greeting(self) -> None:
        greeting = bytes(self._buffer[: len(_GREETING)])
        del self._buffer[: len(_GREETING)]
        if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3:
            raise BadPeer("what listens there is no ZMQ socket of version 4 or newer")
        if greeting[12:32].rstrip(b"\0") != b"NULL":
            raise BadPeer("it asks for a security mechanism")
        self._stage = _Stage.HANDSHAKE

    def _read_head(self, view: memoryview, at: int) -> tuple[int, int, int] | None:
        """Return flags, start and size of the frame at `at`; None where it is not whole, and `_need` then says."""
        have = len(view) - at
        head = 9 if have and view[at] & _LONG else _LEAST
        if have < head:
            self._need = head
            return None
        size = int.from_bytes(view[at + 1 : at + head], "big")
        if self._size + size + FRAME_COST > self._max_message:
            raise MessageTooLarge(f"a message has more than {self._max_message} bytes")
        if have < head + size:
            self._need = head + size
            return None
        return view[at], at + head, size

    def _take_frame(self, flags: int, body: bytes, messages: list[list[bytes]]) -> None:
        if flags & _COMMAND:
            self._take_command(body)
        elif self._stage is not _Stage.OPEN:
            raise BadPeer("it sent a message before it was ready")
        else:
            self._frames.append(body)
            self._size += len(body) + FRAME_COST
            if not flags & _MORE:
                messages.append(self._frames)
                self._frames, self._size = [], 0

    def _take_command(self, body: bytes) -> None:
        if body.startswith(_ERROR):
            raise BadPeer(f"it refused the connection: {body[len(_ERROR) + 1 :][:200]!r}")
        if body.startswith(_PING):
            self._answer += _pack_frame(_PONG + body[len(_PING) + _PING_TTL :][:16], _COMMAND)
        elif body.startswith(_READY) and self._stage is _Stage.HANDSHAKE:
            self._stage = _Stage.OPEN
            if self._is_subscriber:
                self._answer += _pack_frame(_SUBSCRIBE_ALL, 0)


def pack_message(frames: Iterable[bytes]) -> bytes:
    """Return the bytes of a message of these frames, of which there is at least one."""
    *first, last = frames
    return b"".join([*(_pack_frame(frame, _MORE) for frame in first), _pack_frame(last, 0)])


def _pack_frame(body: bytes, flags: int) -> bytes:
    size = len(body)
    if size < 256:
        return bytes((flags, size)) + body
    return bytes((flags | _LONG,)) + size.to_bytes(8, "big") + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
