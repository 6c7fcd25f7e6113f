"""The client side of one kernel: its sockets on an asyncio loop, spoken to without libzmq; `zmtp` says why."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.wire import BadMessage, Signer, fence_of
from sandcell_kernel.zmtp import BadPeer, Peer, pack_message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sandcell_kernel.wire import Channel, Message
    from sandcell_kernel.zmtp import SocketType

__all__ = ["Connection", "KernelChannels", "new_connection"]

_SOCKETS: dict[Channel, SocketType] = {
    "shell": "DEALER",
    "control": "DEALER",
    "stdin": "DEALER",
    "iopub": "SUB",
}
_AGAIN_S = 0.005  # between attempts to connect to a kernel that does not listen yet
_MAX_WAITING = 1000  # messages that a kernel has not read, and the bytes of them
_MAX_WAITING_BYTES = 64 * 2**20
_MAX_DRAIN = 64  # reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a kernel listens: the content of a Jupyter connection file."""

    transport: Literal["ipc", "tcp"]
    ip: str
    key: str
    shell_port: int
    iopub_port: int
    stdin_port: int
    control_port: int
    hb_port: int

    def address(self, channel: Channel) -> str:
        """Return the address as ZMQ writes it."""
        port = getattr(self, f"{channel}_port")
        return f"{self.transport}://{self.ip}{':' if self.transport == 'tcp' else '-'}{port}"

    @property
    def output_address(self) -> str:
        """The abstract unix socket where our runtime takes the pipes of its runs; others have none."""
        return f"\0{self.ip.removeprefix('@')}-output"

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "signature_scheme": "hmac-sha256"}


def new_connection() -> Connection:
    """Return a connection over abstract unix sockets, whose names and key nobody can guess.

    Each start of a kernel needs a new one: when a kernel dies its names are free for an impostor.
    """
    return Connection(
        transport="ipc",
        ip=f"@sandcell-{secrets.token_hex(16)}",
        key=secrets.token_hex(32),
        shell_port=1,
        iopub_port=2,
        stdin_port=3,
        control_port=4,
        hb_port=5,
    )


class KernelChannels:
    """The four sockets to one kernel: `open` begins to connect, `close` gives all back.

    `on_message` gets each message whose signature is right, in the order of its channel. `on_disconnect` gets the
    name of a channel when its connection ended, and why this side ended it: None where the kernel did (it died), else
    a BadPeer, such as MessageTooLarge for a message of more than `max_message` bytes. Both are called from the loop and
    must not block. What is not read waits in the kernel's process: nothing here grows with what a kernel sends.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[Channel, Message], None],
        on_disconnect: Callable[[Channel, BadPeer | None], None],
        max_message: int,
    ) -> None:
        self._connection = connection
        self._loop = loop
        self.on_message = on_message
        self._on_disconnect = on_disconnect
        self._max_message = max_message
        self._signer = Signer(connection.key.encode())
        self._lines: dict[Channel, _Line] = {}
        self.refused = 0  # messages whose signature or shape was wrong

    def open(self) -> None:
        """Begin to connect; what is sent before the kernel answers waits for it.

        Raises:
            OSError: there are no more descriptors; nothing is left open.
        """
        try:
            for channel, kind in _SOCKETS.items():
                # One identity for all three: the kernel answers input on stdin to whoever asked on shell.
                identity = b"" if kind == "SUB" else self._connection.ip.encode()[-32:]
                peer = Peer(kind, identity=identity, max_message=self._max_message)
                self._lines[channel] = _Line(self, channel, peer, self._loop)
                self._lines[channel].connect(self._connection.address(channel))
        except OSError:
            self.close()
            raise

    def send(self, channel: Channel, message: Message) -> None:
        """Sign and send. A kernel that is not reading yet gets it when it does.

        Raises:
            Conflict (BUSY): a thousand messages wait for this kernel already, or 64 MiB.
        """
        line = self._lines.get(channel)
        if line is not None and not line.send(pack_message(self._signer.pack(message))):
            raise error(ErrorCode.BUSY, f"the kernel does not read its {channel} channel")

    def drain(self) -> None:
        """Hand over everything that has arrived, now. For after a kernel's death."""
        for channel in list(self._lines):
            self._read_all(channel)

    def close(self) -> None:
        """Give back every socket; what was not sent is dropped. Closing twice is fine."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()

    # --- for the lines

    def catch_up(self, channel: Channel) -> None:
        """Before a question is heard, hear what was said before it: the two come by different sockets."""
        if channel == "stdin":
            self._read_all("iopub")

    def _read_all(self, channel: Channel) -> None:
        """Take what has arrived. A dead kernel left no more than a socket holds; one that goes on must not hold us up."""
        for _ in range(_MAX_DRAIN):
            line = self._lines.get(channel)
            if line is None or not line.read():
                return

    def take(self, channel: Channel, frames: list[bytes]) -> None:
        if channel not in self._lines:  # closed by what a message before this one led to
            return
        try:
            identities, message = self._signer.unpack(frames)
        except BadMessage:
            self.refused += 1
            return
        message.fence = fence_of(identities)
        self.on_message(channel, message)

    def note_end(self, channel: Channel, problem: BadPeer | None) -> None:
        if channel in self._lines:
            self._on_disconnect(channel, problem)


class _Line:
    """One socket to one of a kernel's, from the first attempt to connect until either side ends it."""

    def __init__(
        self, owner: KernelChannels, channel: Channel, peer: Peer, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._owner = owner
        self._channel: Channel = channel
        self._peer = peer
        self._loop = loop
        self._socket: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None
        self._waiting: deque[bytes] = deque()  # messages that nobody has begun to send
        self._waiting_size = 0
        self._sending = memoryview(b"")
        self._blocked = True  # until it is connected, and while the kernel does not read

    def connect(self, address: str) -> None:
        """Begin to connect, again and again until somebody listens there. OSError: there are no more descriptors."""
        family, place = _place_of(address)
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        number = made.connect_ex(place)
        if number == errno.EINPROGRESS:
            self._socket = made
            self._loop.add_writer(made, self._finish_connecting, address)
        elif number:
            made.close()
            self._again = self._loop.call_later(_AGAIN_S, self._connect_again, address)
        else:
            self._socket = made
            self._begin()

    def send(self, data: bytes) -> bool:
        """Send, or keep to be sent; False where too much is kept already."""
        full = len(self._waiting) >= _MAX_WAITING or self._waiting_size + len(data) > _MAX_WAITING_BYTES
        if self._waiting and full:
            return False
        self._waiting.append(data)
        self._waiting_size += len(data)
        if not self._blocked:
            self._flush()
        return True

    def read(self) -> bool:
        """Take one piece of what has arrived; False where nothing has, or it has ended."""
        connected = self._socket
        if connected is None:
            return False
        try:
            data = connected.recv(self._peer.wants)
        except BlockingIOError:
            return False
        except OSError:  # reset, which is an end
            data = b""
        if not data:
            self._end(None)
            return False
        return self._take(data)

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _connect_again(self, address: str) -> None:
        try:
            self.connect(address)
        except OSError:  # no descriptor is free at this moment
            self._again = self._loop.call_later(_AGAIN_S, self._connect_again, address)

    def _finish_connecting(self, address: str) -> None:
        assert self._socket is not None
        self._loop.remove_writer(self._socket)
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._socket.close()
            self._socket = None
            self._again = self._loop.call_later(_AGAIN_S, self._connect_again, address)
        else:
            self._begin()

    def _begin(self) -> None:
        assert self._socket is not None
        self._loop.add_reader(self._socket, self._on_readable)
        self._blocked = False
        self._flush()

    def _on_readable(self) -> None:
        self._owner.catch_up(self._channel)
        self.read()

    def _take(self, data: bytes) -> bool:
        for frames in self._peer.feed(data):
            self._hand_over(frames)
        if not self._blocked:
            self._flush()  # what the protocol answers, and what waited for the end of the handshake
        if self._peer.problem is not None:
            self._end(self._peer.problem)
        return self._socket is not None

    def _hand_over(self, frames: list[bytes]) -> None:
        try:
            self._owner.take(self._channel, frames)
        except Exception as problem:  # noqa: BLE001 -- a fault in one message must not lose those that came with it
            told = {"message": f"a message on {self._channel} was not taken", "exception": problem}
            self._loop.call_exception_handler(told)

    def _flush(self) -> None:
        """Send as much as the kernel takes: what the protocol says first, and messages once it is ready for them."""
        while self._socket is not None and (data := self._next_piece()):
            try:
                self._sending = data[self._socket.send(data) :]
            except BlockingIOError:
                self._sending = data
                self._block()
                return
            except OSError:  # it is gone, which the reader is told
                self._sending = memoryview(b"")
                return
        if self._blocked and self._socket is not None:
            self._blocked = False
            self._loop.remove_writer(self._socket)

    def _next_piece(self) -> memoryview:
        if self._sending:
            return self._sending
        if answer := self._peer.take_answer():
            return memoryview(answer)
        if self._waiting and self._peer.is_open:
            self._waiting_size -= len(self._waiting[0])
            return memoryview(self._waiting.popleft())
        return memoryview(b"")

    def _block(self) -> None:
        if not self._blocked and self._socket is not None:
            self._blocked = True
            self._loop.add_writer(self._socket, self._flush)

    def _end(self, problem: BadPeer | None) -> None:
        self.close()
        self._owner.note_end(self._channel, problem)


def _place_of(address: str) -> tuple[int, str | tuple[str, int]]:
    """Return the family of sockets and the place in it; an ipc name that begins with @ is an abstract one."""
    transport, _, rest = address.partition("://")
    if transport == "tcp":
        host, _, port = rest.rpartition(":")
        return socket.AF_INET, (host, int(port))
    return socket.AF_UNIX, f"\0{rest[1:]}" if rest.startswith("@") else os.fspath(rest)
