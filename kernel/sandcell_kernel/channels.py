"""The client side of one kernel: its sockets on an asyncio loop, without zmq.asyncio.

ZMQ's descriptor is edge-triggered: it tells only that something may have changed. So each wake-up reads until
nothing is left, and each send looks again, because sending can swallow the edge.
Source: http://api.zeromq.org/4-3:zmq-getsockopt (ZMQ_FD).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import zmq

from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.wire import BadMessage, Signer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sandcell_kernel.wire import Channel, Message

__all__ = ["Connection", "KernelChannels", "Sockets", "new_connection"]

_SOCKETS: dict[Channel, int] = {
    "shell": zmq.DEALER,
    "control": zmq.DEALER,
    "stdin": zmq.DEALER,
    "iopub": zmq.SUB,
}
# Plain numbers: the enum arithmetic of pyzmq costs more than the calls that it is for.
_NOBLOCK, _POLLIN = int(zmq.NOBLOCK), int(zmq.POLLIN)
_BATCH, _BATCH_BYTES = 64, 2**20  # messages, and about how much, in one go: then the loop gets its turn
_RECONNECT_MS = 5  # the default of 100 is what a kernel that is a little late would cost


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
        port = getattr(self, f"{channel}_port")
        return f"{self.transport}://{self.ip}{':' if self.transport == 'tcp' else '-'}{port}"

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


class Sockets:
    """ZMQ's side of all channels of a process: its thread and its sockets. Not to be made before a fork."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def make(self, kind: int) -> zmq.Socket[bytes]:
        """Return a new socket. Raises zmq.ZMQError when there are no more."""
        return self._context.socket(kind)

    def close(self) -> None:
        """Close every socket and end the thread; what was not sent is dropped."""
        self._context.destroy(linger=0)


class KernelChannels:
    """The four sockets to one kernel: `open` begins to connect, `close` gives all back.

    `on_message` gets each message whose signature is right, in the order of its channel. `on_disconnect` gets the
    name of a channel when its connection ended: the kernel died, or sent a frame of more than `max_message` bytes
    and was cut off by ZMQ. Both are called from the loop and must not block. `receive_queue` bounds how many messages
    wait unread for each channel; a kernel that drops for slow readers (stock iopub does) needs 0, no bound.
    """

    def __init__(
        self,
        sockets: Sockets,
        connection: Connection,
        *,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[Channel, Message], None],
        on_disconnect: Callable[[Channel], None],
        max_message: int,
        receive_queue: int = 0,
    ) -> None:
        self._make = sockets.make
        self._connection = connection
        self._loop = loop
        self.on_message = on_message
        self._on_disconnect = on_disconnect
        self._options = {zmq.MAXMSGSIZE: max_message, zmq.RCVHWM: receive_queue}
        self._signer = Signer(connection.key.encode())
        self._sockets: dict[Channel, zmq.Socket[bytes]] = {}
        self._monitors: dict[Channel, zmq.Socket[bytes]] = {}
        self.refused = 0  # messages whose signature or shape was wrong

    def open(self) -> None:
        """Begin to connect; what is sent before the kernel answers waits for it.

        Raises:
            zmq.ZMQError: there are no more sockets or descriptors; nothing is left open.
        """
        try:
            for channel in _SOCKETS:
                self._open(channel)
        except zmq.ZMQError:
            self.close()
            raise

    def send(self, channel: Channel, message: Message) -> None:
        """Sign and send. A kernel that is not reading yet gets it when it does.

        Raises:
            Conflict (BUSY): a thousand messages wait for this kernel already.
        """
        socket = self._sockets[channel]
        try:
            socket.send_multipart(self._signer.pack(message), _NOBLOCK)
        except zmq.Again:
            raise error(ErrorCode.BUSY, f"the kernel does not read its {channel} channel") from None
        if int(socket.getsockopt(zmq.EVENTS)) & _POLLIN:
            self._loop.call_soon(self._drain, channel)

    def drain(self) -> None:
        """Hand over everything that has arrived, now. For after a kernel's death, when no new edge will come."""
        for channel in self._sockets:
            while self._drain_batch(channel):
                pass

    def close(self) -> None:
        """Give back every socket; what was not sent is dropped. Closing twice is fine."""
        for channel, monitor in self._monitors.items():
            self._loop.remove_reader(monitor.fileno())
            self._sockets[channel].disable_monitor()
            monitor.close(linger=0)
        for socket in self._sockets.values():
            self._loop.remove_reader(socket.fileno())
            socket.close(linger=0)
        self._monitors, self._sockets = {}, {}

    def _open(self, channel: Channel) -> None:
        socket = self._make(_SOCKETS[channel])
        self._sockets[channel] = socket
        socket.linger = 0
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        for option, value in self._options.items():
            socket.setsockopt(option, value)
        if channel == "iopub":
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        else:
            # One identity for all three: the kernel answers input on stdin to whoever asked on shell.
            socket.setsockopt(zmq.IDENTITY, self._connection.ip.encode()[-32:])
        self._watch_disconnect(channel, socket)
        self._loop.add_reader(socket.fileno(), self._drain, channel)
        socket.connect(self._connection.address(channel))
        self._loop.call_soon(self._drain, channel)  # arms the descriptor: unread, it may never make an edge

    def _watch_disconnect(self, channel: Channel, socket: zmq.Socket[bytes]) -> None:
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._monitors[channel] = monitor
        self._loop.add_reader(monitor.fileno(), self._drain_monitor, channel)
        self._loop.call_soon(self._drain_monitor, channel)

    def _drain(self, channel: Channel) -> None:
        more = True
        try:
            more = self._drain_batch(channel)
        finally:
            # Only an empty queue makes a new edge: after a full batch, and after a fault, nothing else would tell.
            if more:
                self._loop.call_soon(self._drain, channel)

    def _drain_batch(self, channel: Channel) -> bool:
        size = 0
        for _ in range(_BATCH):
            socket = self._sockets.get(channel)
            if socket is None:  # closed by what a message led to
                return False
            try:
                frames = socket.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return False
            try:
                _, message = self._signer.unpack(frames)
            except BadMessage:
                self.refused += 1
                continue
            self.on_message(channel, message)
            size += len(message.content)
            if size > _BATCH_BYTES:
                break
        return True

    def _drain_monitor(self, channel: Channel) -> None:
        while (monitor := self._monitors.get(channel)) is not None:
            try:
                monitor.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return
            self._on_disconnect(channel)
