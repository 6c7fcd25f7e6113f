"""The client side of a kernel's sockets, against sockets of a kernel without a kernel."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_kernel.channels import Connection, KernelChannels, new_connection
from sandcell_kernel.wire import Channel, Message, Signer, new_message
from sandcell_kernel.zmtp import BadPeer, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

BOUND = 2**20
KINDS: dict[Channel, int] = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.XPUB,
}


class FakeKernel:
    """The sockets that a kernel binds, used by the test in the kernel's place. Blocking, with a deadline."""

    def __init__(self, connection: Connection) -> None:
        self.signer = Signer(connection.key.encode())
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._context.setsockopt(zmq.RCVTIMEO, 5000)
        self._context.setsockopt(zmq.SNDTIMEO, 5000)
        self.sockets: dict[Channel, zmq.Socket[bytes]] = {}
        for channel, kind in KINDS.items():
            made = self.sockets[channel] = self._context.socket(kind)
            if channel == "iopub":
                made.setsockopt(zmq.XPUB_NODROP, 1)
                made.setsockopt(zmq.SNDHWM, 10)
            else:
                made.setsockopt(zmq.ROUTER_HANDOVER, 1)
            made.bind(connection.address(channel))

    async def wait_subscribed(self) -> None:
        assert await asyncio.to_thread(self.sockets["iopub"].recv) == b"\x01"

    def publish(self, message: Message) -> None:
        self.sockets["iopub"].send_multipart(self.signer.pack(message, [b"topic"]))

    async def receive(self, channel: Channel) -> tuple[bytes, Message]:
        frames = await asyncio.to_thread(self.sockets[channel].recv_multipart)
        identities, message = self.signer.unpack(frames)
        return identities[0], message

    def send(self, channel: Channel, to: bytes, message: Message) -> None:
        self.sockets[channel].send_multipart(self.signer.pack(message, [to]))

    def close(self) -> None:
        self._context.destroy(linger=0)


class Client:
    """Channels, and what came through them."""

    def __init__(self, connection: Connection, **options: Any) -> None:
        self.messages: list[tuple[Channel, Message]] = []
        self.disconnected: list[Channel] = []
        self.problems: list[BadPeer | None] = []
        self._news = asyncio.Event()
        self.channels = KernelChannels(
            connection,
            loop=asyncio.get_running_loop(),
            on_message=self.take,
            on_disconnect=self._note_disconnect,
            **{"max_message": BOUND, **options},
        )
        self.channels.open()

    def take(self, channel: Channel, message: Message) -> None:
        self.messages.append((channel, message))
        self._news.set()

    def _note_disconnect(self, channel: Channel, problem: BadPeer | None) -> None:
        self.disconnected.append(channel)
        self.problems.append(problem)
        self._news.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()


def numbered(number: int, text: str = "") -> Message:
    return new_message("stream", {"number": number, "text": text}, session="kernel")


def numbers(client: Client) -> list[int]:
    return [message.body()["number"] for _, message in client.messages]


@contextmanager
def a_kernel(connection: Connection) -> Generator[FakeKernel]:
    kernel = FakeKernel(connection)
    try:
        yield kernel
    finally:
        kernel.close()


@contextmanager
def a_client(connection: Connection, **options: Any) -> Generator[Client]:
    client = Client(connection, **options)
    try:
        yield client
    finally:
        client.channels.close()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[FakeKernel, Client]]:
    connection = new_connection()
    with a_kernel(connection) as kernel, a_client(connection) as client:
        await kernel.wait_subscribed()
        yield kernel, client


async def test_a_request_is_answered_on_its_channel(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair
    channels: tuple[Channel, ...] = ("shell", "control", "stdin")
    for channel in channels:
        client.channels.send(channel, new_message(f"{channel}_request", {}, session="c"))
        identity, request = await kernel.receive(channel)
        kernel.send(channel, identity, new_message("reply", {}, session="k", parent=request.header))
    await client.until(lambda: len(client.messages) == 3)
    assert [(channel, message.msg_type) for channel, message in client.messages] == [
        (channel, "reply") for channel in channels
    ]


async def test_one_identity_serves_shell_control_and_stdin(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair
    client.channels.send("shell", new_message("execute_request", {}, session="c"))
    identity, _ = await kernel.receive("shell")
    kernel.sockets["stdin"].setsockopt(zmq.ROUTER_MANDATORY, 1)
    kernel.send("stdin", identity, new_message("input_request", {}, session="k"))
    await client.until(lambda: client.messages)
    assert client.messages[0][0] == "stdin"


async def test_a_question_is_heard_after_what_was_said_before_it(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair
    client.channels.send("shell", new_message("execute_request", {}, session="c"))
    identity, _ = await kernel.receive("shell")
    for number in range(200):
        kernel.publish(numbered(number))
        kernel.send("stdin", identity, numbered(number))
        await client.until(lambda: len(client.messages) == 2 * (number + 1))  # noqa: B023
        assert [channel for channel, _ in client.messages[-2:]] == ["iopub", "stdin"]


async def test_what_is_sent_before_the_kernel_is_there_arrives() -> None:
    connection = new_connection()
    with a_client(connection) as client:
        client.channels.send("shell", numbered(1))
        with a_kernel(connection) as kernel:
            assert (await kernel.receive("shell"))[1].body()["number"] == 1


async def test_a_flood_arrives_whole_and_in_order() -> None:
    connection = new_connection()
    with a_kernel(connection) as kernel, a_client(connection) as client:
        await kernel.wait_subscribed()

        def flood() -> None:
            for number in range(3000):
                kernel.publish(numbered(number))

        await asyncio.to_thread(flood)
        await client.until(lambda: len(client.messages) == 3000)
        assert numbers(client) == list(range(3000))


async def test_a_wrong_signature_is_dropped_and_counted(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair
    kernel.sockets["iopub"].send_multipart(Signer(b"other").pack(numbered(1)))
    kernel.publish(numbered(2))
    await client.until(lambda: client.messages)
    assert numbers(client) == [2]
    assert client.channels.refused == 1


async def test_a_message_over_the_bound_ends_the_connection(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair
    kernel.publish(numbered(1, "x" * (BOUND - 1000)))
    kernel.publish(numbered(2, "x" * (BOUND + 1)))
    await client.until(lambda: client.disconnected)
    assert client.disconnected == ["iopub"]
    assert [type(problem) for problem in client.problems] == [MessageTooLarge]
    assert numbers(client) == [1]


async def test_a_message_of_too_many_frames_ends_the_connection(pair: tuple[FakeKernel, Client]) -> None:
    """Each frame is short: libzmq on this side would take them all."""
    kernel, client = pair
    kernel.sockets["iopub"].send_multipart([b"x" * 1000] * 2000)
    await client.until(lambda: client.disconnected)
    assert [type(problem) for problem in client.problems] == [MessageTooLarge]


async def test_what_is_not_read_waits_in_the_kernel(pair: tuple[FakeKernel, Client]) -> None:
    """A loop that is busy elsewhere reads nothing: the sender notices after what it and the system hold for it."""
    kernel, client = pair
    kernel.sockets["iopub"].setsockopt(zmq.SNDTIMEO, 100)
    sent = 0
    with pytest.raises(zmq.Again):
        while sent < 1000:
            kernel.publish(numbered(sent, "x" * 100_000))
            sent += 1
    assert sent < 100
    await client.until(lambda: len(client.messages) == sent)


async def test_a_connection_over_tcp_once_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ports = {
        f"{name}_port": port + at for at, name in enumerate(("shell", "iopub", "stdin", "control", "hb"))
    }
    connection = Connection(transport="tcp", ip="127.0.0.1", key="key", **ports)
    with a_client(connection) as client:
        client.channels.send("shell", numbered(1))
        await asyncio.sleep(0)
        with a_kernel(connection) as kernel:
            await kernel.wait_subscribed()
            assert (await kernel.receive("shell"))[1].body()["number"] == 1


async def test_the_end_of_a_kernel_is_told_and_its_last_words_are_kept() -> None:
    connection = new_connection()
    with a_client(connection) as client:
        with a_kernel(connection) as kernel:
            await kernel.wait_subscribed()
            for number in range(100):
                kernel.publish(numbered(number))
            await client.until(lambda: len(client.messages) == 100)
        await client.until(lambda: "iopub" in client.disconnected)
        client.channels.drain()
        assert numbers(client) == list(range(100))


async def test_a_kernel_that_reads_nothing_is_busy() -> None:
    with a_client(new_connection()) as client, pytest.raises(SandcellError) as raised:
        for number in range(2000):
            client.channels.send("shell", numbered(number))
    assert raised.value.code is ErrorCode.BUSY


async def test_a_fault_in_one_message_does_not_lose_the_next(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    taken = client.take

    def take(channel: Channel, message: Message) -> None:
        if message.body()["number"] == 0:
            raise ZeroDivisionError
        taken(channel, message)

    client.channels.on_message = take
    for number in range(3):
        kernel.publish(numbered(number))
    await client.until(lambda: len(client.messages) == 2)
    assert numbers(client) == [1, 2]
    assert [type(fault["exception"]) for fault in faults] == [ZeroDivisionError]


async def test_channels_may_be_closed_by_what_a_message_leads_to(pair: tuple[FakeKernel, Client]) -> None:
    kernel, client = pair

    def take(channel: Channel, message: Message) -> None:
        client.take(channel, message)
        client.channels.close()

    client.channels.on_message = take
    kernel.publish(numbered(1))
    await client.until(lambda: client.messages)
    client.channels.close()


async def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    connection = new_connection()
    with a_kernel(connection) as kernel:
        for _ in range(5):
            with a_client(connection) as client:
                client.channels.send("shell", numbered(1))
                await kernel.receive("shell")
    assert len(os.listdir("/proc/self/fd")) == before


def test_connections_are_no_two_the_same_and_told_as_a_connection_file() -> None:
    one, other = new_connection(), new_connection()
    assert one.ip != other.ip
    assert one.key != other.key
    told = one.to_dict()
    assert told["signature_scheme"] == "hmac-sha256"
    assert Connection(**{name: told[name] for name in told if name != "signature_scheme"}) == one


def test_addresses_of_both_transports() -> None:
    ports = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}
    tcp = Connection(transport="tcp", ip="127.0.0.1", key="", **ports)
    ipc = Connection(transport="ipc", ip="@name", key="", **ports)
    assert tcp.address("iopub") == "tcp://127.0.0.1:2"
    assert ipc.address("control") == "ipc://@name-4"
