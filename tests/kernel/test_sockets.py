from __future__ import annotations

import asyncio
import json
import secrets
import socket as sockets
import threading
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import zmq
import zmq.asyncio

from sandcell_container.errors import SandcellError
from sandcell_kernel.channels import Connection, new_connection
from sandcell_kernel.sockets import OuterSockets, read_connection_file
from sandcell_kernel.wire import Signer, new_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from sandcell_kernel.wire import Channel, Message


CHANNELS: tuple[Channel, ...] = ("shell", "control", "stdin", "iopub")


class Got(NamedTuple):
    channel: Channel
    message: Message


class Client:
    """A front end with an identity of its own."""

    def __init__(self, connection: Connection, key: str | None, stack: ExitStack) -> None:
        self._signer = Signer((connection.key if key is None else key).encode())
        self._identity = secrets.token_bytes(8)
        self._sockets: dict[Channel, zmq.asyncio.Socket] = {}
        context = stack.enter_context(zmq.asyncio.Context())
        for channel in CHANNELS:
            kind = zmq.SUB if channel == "iopub" else zmq.DEALER
            socket = stack.enter_context(context.socket(kind))
            # What was sent before the connection is there would else be waited for at the end, when nobody listens any more.
            socket.setsockopt(zmq.LINGER, 0)
            if channel == "iopub":
                socket.setsockopt(zmq.RCVHWM, 0)
                socket.setsockopt(zmq.SUBSCRIBE, b"")
            else:
                socket.setsockopt(zmq.IDENTITY, self._identity)
            socket.connect(connection.address(channel))
            self._sockets[channel] = socket

    async def ask(
        self, channel: Channel, kind: str, buffers: Sequence[bytes] = (), **content: Any
    ) -> Message:
        message = new_message(kind, content, session="client", buffers=buffers)
        await self._sockets[channel].send_multipart(self._signer.pack(message))
        return message

    async def next(self, channel: Channel) -> Message:
        async with asyncio.timeout(20):
            _, message = self._signer.unpack(await self._sockets[channel].recv_multipart())
        return message

    async def next_published(self, kind: str) -> Message:
        """The next one of a kind on iopub, where everyone is told of every welcome."""
        while True:
            message = await self.next("iopub")
            if message.msg_type == kind:
                return message


class Outer:
    """Sockets under test, and what came in on them."""

    def __init__(self, connection: Connection, stack: AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        self.connection = connection
        self.got: asyncio.Queue[Got] = asyncio.Queue()
        self.sockets = OuterSockets(connection, session="outer", loop=loop, on_message=self._take)
        self._clients = stack.enter_context(ExitStack())

    def _take(self, channel: Channel, message: Message) -> None:
        self.got.put_nowait(Got(channel, message))

    async def next(self) -> Got:
        async with asyncio.timeout(20):
            return await self.got.get()

    async def client(self, key: str | None = None) -> Client:
        """Connect a front end; returns when it is welcome, so nothing published later is missed."""
        client = Client(self.connection, key, self._clients)
        if key is None:
            await client.next_published("iopub_welcome")
        return client


def tcp_connection() -> Connection:
    with ExitStack() as stack:
        made = [stack.enter_context(sockets.socket()) for _ in range(5)]
        for each in made:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in made]
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    return Connection(transport="tcp", ip="127.0.0.1", key="secret", **dict(zip(names, ports, strict=True)))


@pytest.fixture(params=["ipc", "tcp"])
async def outer(request: pytest.FixtureRequest) -> AsyncIterator[Outer]:
    connection = new_connection() if request.param == "ipc" else tcp_connection()
    async with AsyncExitStack() as stack:
        made = Outer(connection, stack)
        await stack.enter_async_context(made.sockets)
        yield made


def answer(asked: Message, kind: str, **content: Any) -> Message:
    return new_message(kind, content, session="outer", parent=asked.header)


async def test_requests_arrive_whole_and_replies_go_back_to_whoever_asked(outer: Outer) -> None:
    clients = [await outer.client(), await outer.client()]
    sent = [await client.ask("shell", "x_request", buffers=[b"\xff\x00", b""]) for client in clients]
    taken = [await outer.next(), await outer.next()]
    assert {got.channel for got in taken} == {"shell"}
    assert {got.message.msg_id: got.message.parts() for got in taken} == {
        message.msg_id: message.parts() for message in sent
    }
    for got in taken:
        outer.sockets.send("shell", answer(got.message, "x_reply"))
    for client, asked in zip(clients, sent, strict=True):
        assert (await client.next("shell")).parent_header == asked.header


async def test_control_is_a_channel_of_its_own(outer: Outer) -> None:
    client = await outer.client()
    await client.ask("control", "interrupt_request")
    channel, message = await outer.next()
    assert channel == "control"
    outer.sockets.send("control", answer(message, "interrupt_reply"))
    assert (await client.next("control")).parent_id == message.msg_id


async def test_everyone_gets_what_is_published_and_nothing_is_dropped(outer: Outer) -> None:
    clients = [await outer.client(), await outer.client()]
    count = 3000  # libzmq's own bound is 1000
    for number in range(count):
        outer.sockets.send("iopub", new_message("stream", {"n": number}, session="outer"))
    for client in clients:
        told = [(await client.next_published("stream")).body()["n"] for _ in range(count)]
        assert told == list(range(count))


async def test_input_is_asked_of_whoever_runs_the_cell(outer: Outer) -> None:
    await outer.client()
    client = await outer.client()
    await client.ask("shell", "execute_request", code="input()")
    cell = (await outer.next()).message
    outer.sockets.send("stdin", answer(cell, "input_request", prompt="?"))
    assert (await client.next("stdin")).body() == {"prompt": "?"}
    await client.ask("stdin", "input_reply", value="yes")
    assert (await outer.next()).message.body() == {"value": "yes"}
    outer.sockets.send("shell", answer(cell, "execute_reply", status="ok"))
    assert (await client.next("shell")).msg_type == "execute_reply"


async def test_a_second_reply_and_a_reply_to_nobody_are_dropped(outer: Outer) -> None:
    client = await outer.client()
    await client.ask("shell", "x_request")
    asked = (await outer.next()).message
    outer.sockets.send("shell", answer(asked, "x_reply", n=1))
    outer.sockets.send("shell", answer(asked, "x_reply", n=2))
    outer.sockets.send("shell", new_message("x_reply", {"n": 3}, session="outer"))
    await client.ask("shell", "y_request")
    outer.sockets.send("shell", answer((await outer.next()).message, "y_reply"))
    assert (await client.next("shell")).body() == {"n": 1}
    assert (await client.next("shell")).msg_type == "y_reply"


async def test_a_wrong_signature_is_dropped(outer: Outer) -> None:
    stranger = await outer.client(key="wrong")
    client = await outer.client()
    await stranger.ask("shell", "execute_request", code="1")
    await client.ask("shell", "kernel_info_request")
    assert (await outer.next()).message.msg_type == "kernel_info_request"
    assert outer.got.empty()


async def test_a_subscriber_of_a_topic_is_welcomed_by_it(outer: Outer) -> None:
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.setsockopt(zmq.SUBSCRIBE, b"kernel.outer.status")
        subscriber.connect(outer.connection.address("iopub"))
        frames = await asyncio.to_thread(subscriber.recv_multipart)
    assert frames[0] == b"kernel.outer.status"
    _, message = Signer(outer.connection.key.encode()).unpack(frames)
    assert (message.msg_type, message.parent) == ("iopub_welcome", None)
    assert message.body() == {"subscription": "kernel.outer.status"}


async def test_the_heartbeat_answers_while_the_loop_is_busy(outer: Outer) -> None:
    connection = outer.connection
    address = connection.address("shell").removesuffix(str(connection.shell_port))
    echoed: list[bytes] = []

    def beat() -> None:
        with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.REQ) as heart:
            heart.rcvtimeo = 20_000
            heart.connect(f"{address}{connection.hb_port}")
            heart.send(b"ping")
            echoed.append(heart.recv())

    beating = threading.Thread(target=beat)
    beating.start()
    beating.join()  # the loop stands still here
    assert echoed == [b"ping"]


async def test_a_client_that_comes_again_with_its_identity_is_answered(outer: Outer) -> None:
    signer = Signer(outer.connection.key.encode())
    with zmq.Context[zmq.Socket[bytes]]() as context, ExitStack() as closing:
        for number in range(2):
            # The first one is still connected when the second one takes its identity; leaving closes both.
            dealer = closing.enter_context(context.socket(zmq.DEALER))
            dealer.setsockopt(zmq.IDENTITY, b"same")
            dealer.rcvtimeo, dealer.linger = 5000, 0
            dealer.connect(outer.connection.address("shell"))
            dealer.send_multipart(signer.pack(new_message("x_request", {"n": number}, session="c")))
            asked = (await outer.next()).message
            assert asked.body() == {"n": number}
            outer.sockets.send("shell", new_message("x_reply", {}, session="o", parent=asked.header))
            _, reply = signer.unpack(await asyncio.to_thread(dealer.recv_multipart))
            assert reply.parent_id == asked.msg_id


async def test_an_address_that_is_taken_is_told(outer: Outer) -> None:
    def ignore(channel: Channel, message: Message) -> None: ...

    loop = asyncio.get_running_loop()
    again = OuterSockets(outer.connection, session="2", loop=loop, on_message=ignore)
    with pytest.raises(SandcellError, match="START_FAILED"):
        async with again:
            pass


def test_a_connection_file_is_read(tmp_path: Path) -> None:
    connection = new_connection()
    path = tmp_path / "kernel.json"
    path.write_text(json.dumps(connection.to_dict() | {"kernel_name": "x", "jupyter_session": "y"}))
    assert read_connection_file(path) == connection


@pytest.mark.parametrize(
    "changed",
    [
        {"signature_scheme": "hmac-sha512"},
        {"curve_publickey": "k"},
        {"transport": "udp"},
        {"shell_port": "one"},
        {"hb_port": None},
    ],
)
def test_a_connection_file_that_cannot_be_met_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "kernel.json"
    path.write_text(json.dumps(new_connection().to_dict() | changed))
    with pytest.raises(SandcellError, match="INVALID_ARGUMENT"):
        read_connection_file(path)


def test_what_is_no_connection_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SandcellError, match="is no connection file"):
        read_connection_file(path)
