"""The five sockets of a Jupyter kernel as its front ends see it, bound to what a connection file says.

ZMQ's descriptor is edge-triggered: it tells only that something may have changed. So each wake-up reads until
nothing is left, and each send looks again, because sending can swallow the edge.
Source: http://api.zeromq.org/4-3:zmq-getsockopt (ZMQ_FD).
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import OrderedDict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

import msgspec
import zmq

from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.answers import Answers
from sandcell_kernel.channels import Connection
from sandcell_kernel.wire import BadMessage, Signer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    from sandcell_kernel.wire import Channel, Message, RequestKey

__all__ = ["OuterSockets", "read_connection_file"]

log = logging.getLogger(__name__)

_SOCKETS: dict[Channel, int] = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.XPUB,
}
# arithmetic with the enums costs more than to send
_AT_ONCE = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE) | _AT_ONCE
_READABLE = int(zmq.POLLIN)
_LINGER_MS = 1000  # what was sent last, a shutdown_reply, still has to leave
_BATCH = 64  # messages in one go, before the loop gets its turn
_MAX_ASKED = 8192  # requests whose senders are remembered


class _ConnectionFile(msgspec.Struct):
    transport: Literal["ipc", "tcp"]
    ip: str
    shell_port: int
    iopub_port: int
    stdin_port: int
    control_port: int
    hb_port: int
    key: str = ""
    signature_scheme: str = "hmac-sha256"
    curve_publickey: str | None = None


def read_connection_file(path: Path) -> Connection:
    """Read where a kernel has to listen.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is no connection file, or asks for what this kernel cannot do.
        OSError: it cannot be read.
    """
    try:
        asked = msgspec.json.decode(path.read_bytes(), type=_ConnectionFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise error(ErrorCode.INVALID_ARGUMENT, f"{path} is no connection file: {problem}") from problem
    if asked.signature_scheme != "hmac-sha256" or asked.curve_publickey:
        wanted = "CurveZMQ" if asked.curve_publickey else asked.signature_scheme
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{path} asks for {wanted}, which this kernel does not have",
            hint="use signature_scheme hmac-sha256 and no transport encryption",
        )
    fields = {name: getattr(asked, name) for name in Connection.__slots__}
    return Connection(**fields)


class OuterSockets:
    """See the module. An async context manager: entered = bound, and the heartbeat answers.

    `on_message` gets each message of a front end whose signature is right, in the order of its channel, from the
    loop; it must not block.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        session: str,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[Channel, Message], None],
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._on_message = on_message
        self._session = session
        self._answers = Answers(session)
        self._signer = Signer(connection.key.encode())
        self._sockets: dict[Channel, zmq.Socket[bytes]] = {}
        self._held = ExitStack()
        # By the request: who gets what answers it.
        self._asked: OrderedDict[RequestKey, list[bytes]] = OrderedDict()

    async def __aenter__(self) -> Self:
        """Bind. Raises Unavailable (START_FAILED) where an address is taken or cannot be."""
        with ExitStack() as held:
            held.enter_context(_Heartbeat(_heartbeat_address(self._connection)))
            context = zmq.Context[zmq.Socket[bytes]]()
            held.callback(context.term)
            for channel in _SOCKETS:
                self._open(held, context, channel)
            self._held = held.pop_all()
        self.send(*self._answers.starting())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give every socket back; what was sent has a second to leave."""
        self._held.close()

    def send(self, channel: Channel, message: Message) -> None:
        """Sign and send: on iopub to everyone, else to whoever sent the request that this answers.

        An answer to nobody's request is dropped, and so is a second reply to the same one.
        """
        if channel == "iopub":
            self._write(channel, [f"kernel.{self._session}.{message.msg_type}".encode()], message)
            return
        # Asking for input is no reply: the request that it belongs to stays open.
        take = self._asked.get if channel == "stdin" else self._asked.pop
        parent = message.parent_key
        identities = take(parent, None) if parent is not None else None
        if identities is None:
            log.debug("nobody waits for a %s on %s", message.msg_type, channel)
            return
        self._write(channel, identities, message)

    def _open(self, held: ExitStack, context: zmq.Context[zmq.Socket[bytes]], channel: Channel) -> None:
        socket = context.socket(_SOCKETS[channel])
        held.callback(socket.close, linger=_LINGER_MS)
        # Without a bound: at libzmq's, 1000, an XPUB drops silently what a slow subscriber has not read.
        socket.setsockopt(zmq.SNDHWM, 0)
        if channel == "iopub":
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # every subscriber is welcomed, not the first of a topic
        else:
            # A client that comes again with its identity would else be ignored until the old one is noticed gone.
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        _bind(socket, self._connection.address(channel))
        self._sockets[channel] = socket
        self._loop.add_reader(socket.fileno(), self._drain, channel)
        held.callback(self._loop.remove_reader, socket.fileno())  # before it is closed

    def _write(self, channel: Channel, identities: list[bytes], message: Message) -> None:
        socket = self._sockets[channel]
        *parts, last = self._signer.pack(message, identities)
        for part in parts:
            socket.send(part, _MORE)
        socket.send(last, _AT_ONCE)
        if int(socket.getsockopt(zmq.EVENTS)) & _READABLE:
            self._loop.call_soon(self._drain, channel)

    def _drain(self, channel: Channel) -> None:
        for _ in range(_BATCH):
            socket = self._sockets[channel]
            if socket.closed:  # by what a message led to
                return
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return  # the next edge will tell
            if channel == "iopub":
                self._welcome(frames[0])
            else:
                self._receive(channel, frames)
        self._loop.call_soon(self._drain, channel)

    def _welcome(self, subscription: bytes) -> None:
        topic = subscription[1:]
        if subscription[:1] == b"\x01":
            self._write("iopub", [topic], self._answers.welcome(topic.decode("utf-8", "replace")).message)

    def _receive(self, channel: Channel, frames: list[bytes]) -> None:
        try:
            identities, message = self._signer.unpack(frames)
            key = message.key
        except BadMessage as problem:
            log.warning("dropped a message on %s: %s", channel, problem)
            return
        if channel != "stdin":
            self._asked[key] = identities
            if len(self._asked) > _MAX_ASKED:
                self._asked.popitem(last=False)
        self._on_message(channel, message)


class _Heartbeat:
    """Echoes whatever comes. In a thread with a ZMQ context of its own, so that a front end does not give up a
    kernel whose loop is busy for a while; the proxy runs outside of the interpreter's lock."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._context = zmq.Context[zmq.Socket[bytes]]()
        self._socket = self._context.socket(zmq.ROUTER)
        self._thread = threading.Thread(target=self._echo, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        try:
            _bind(self._socket, self._address)
        except BaseException:
            self._socket.close(linger=0)
            self._context.term()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._context.term()  # ends the proxy, whose thread closes the socket
        self._thread.join()

    def _echo(self) -> None:
        while not self._socket.closed:
            try:
                zmq.proxy(self._socket, self._socket)
            except zmq.ContextTerminated:
                self._socket.close(linger=0)
            except zmq.ZMQError as problem:
                if problem.errno != errno.EINTR:  # a signal to the process may arrive in this thread
                    raise


def _heartbeat_address(connection: Connection) -> str:
    separator = ":" if connection.transport == "tcp" else "-"
    return f"{connection.transport}://{connection.ip}{separator}{connection.hb_port}"


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    try:
        socket.bind(address)
    except zmq.ZMQError as problem:
        raise error(
            ErrorCode.START_FAILED,
            f"cannot listen on {address}: {problem}",
            hint="another process may have taken the address; start the kernel again",
        ) from problem
