"""Pipes of runs, with this process as the kernel at their other end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
from typing import TYPE_CHECKING

import pytest

from sandcell_kernel.channels import new_connection
from sandcell_kernel.output import KernelOutput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandcell_kernel.output import RunOutput, StreamName

PIPE = 64 * 2**10


class KernelEnd:
    """What a kernel of our runtime does with what it is sent."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen()
        self._guest: socket.socket | None = None
        self.mark = b""

    def take(self) -> tuple[str, int, int]:
        """Return the run whose pipes come next, and their write ends."""
        if self._guest is None:
            self._guest, _ = self._listener.accept()
            self.hello = json.loads(self._guest.recv(1000))
            self.mark = bytes.fromhex(self.hello["mark"])
        said, (stdout, stderr), _, _ = socket.recv_fds(self._guest, 1000, 2)
        return said.decode(), stdout, stderr

    def mark_of(self, number: int) -> bytes:
        return self.mark + number.to_bytes(8, "big")

    def close(self) -> None:
        self._listener.close()
        if self._guest is not None:
            self._guest.close()


class Heard:
    """What was handed over, in order."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str]] = []
        self._news = asyncio.Event()

    def __call__(self, name: StreamName, text: str) -> None:
        self.parts.append((name, text))
        self._news.set()

    def text(self, name: StreamName = "stdout") -> str:
        return "".join(text for stream, text in self.parts if stream == name)

    async def until(self, text: str, name: StreamName = "stdout") -> None:
        async with asyncio.timeout(10):
            while self.text(name) != text:
                self._news.clear()
                await self._news.wait()


class Pair:
    """Both ends, connected."""

    def __init__(self) -> None:
        connection = new_connection()
        self.kernel = KernelEnd(connection.output_address)
        self.output = KernelOutput(connection, asyncio.get_running_loop())
        self.output.connect()
        self.key = connection.key
        self.heard = Heard()

    def begin(self, msg_id: str = "run") -> tuple[RunOutput, int, int]:
        run = self.output.open(msg_id, self.heard)
        assert run is not None
        named, stdout, stderr = self.kernel.take()
        assert named == msg_id
        return run, stdout, stderr

    def close(self) -> None:
        self.output.close()
        self.kernel.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


async def test_the_kernel_is_told_who_we_are(pair: Pair) -> None:
    _, stdout, stderr = pair.begin()
    os.close(stdout)
    os.close(stderr)
    assert pair.kernel.hello == {"key": pair.key, "mark": pair.output.mark.hex()}


async def test_nothing_comes_before_the_run_is_said_to_begin(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    os.write(stdout, b"early")
    run.catch_up(0)
    run.go_on(0)
    assert pair.heard.parts == []
    run.start()
    await pair.heard.until("early")
    os.close(stdout)
    os.close(stderr)


async def test_output_comes_live(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    for number in range(5):
        os.write(stdout, b"%d" % number)
        await pair.heard.until("01234"[: number + 1])
    os.write(stderr, b"oh")
    await pair.heard.until("oh", "stderr")
    os.close(stdout)
    os.close(stderr)


async def test_what_was_written_before_a_message_comes_before_it(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    os.write(stdout, b"out")
    os.write(stderr, b"err")
    run.catch_up(1)
    assert pair.heard.parts == [("stdout", "out"), ("stderr", "err")]
    os.close(stdout)
    os.close(stderr)


async def test_what_is_marked_as_later_waits_for_its_message(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    os.write(stdout, b"a" + pair.kernel.mark_of(1) + b"b" + pair.kernel.mark_of(2) + b"c")
    await pair.heard.until("a")
    run.catch_up(1)
    assert pair.heard.text() == "a"
    run.go_on(1)
    assert pair.heard.text() == "ab"
    run.catch_up(2)
    assert pair.heard.text() == "ab"
    run.go_on(2)
    assert pair.heard.text() == "abc"
    os.write(stdout, b"d")
    await pair.heard.until("abcd")
    os.close(stdout)
    os.close(stderr)


async def test_a_message_that_is_lost_holds_up_nobody_behind_the_next(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    os.write(stdout, pair.kernel.mark_of(1) + b"a")
    run.catch_up(2)
    assert pair.heard.text() == "a"
    os.close(stdout)
    os.close(stderr)


async def test_text_does_not_wait_for_ever_for_a_message_that_nobody_gets_to_send(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandcell_kernel.output._PATIENCE_S", 0.02)
    run, stdout, stderr = pair.begin()
    run.start()
    mark = pair.kernel.mark_of
    os.write(stdout, b"a" + mark(1) + b"b" + mark(2) + b"c")
    os.write(stderr, mark(2) + b"oh")
    await pair.heard.until("abc")
    await pair.heard.until("oh", "stderr")
    os.write(stdout, b"d")
    await pair.heard.until("abcd")
    run.catch_up(1)
    run.go_on(1)
    os.write(stdout, mark(3) + b"e")
    await pair.heard.until("abcde")
    os.close(stdout)
    os.close(stderr)


async def test_a_run_that_is_over_waits_for_no_message(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    os.write(stdout, pair.kernel.mark_of(9) + b"a")
    run.catch_up(0)
    assert pair.heard.text() == ""
    run.release()
    assert pair.heard.text() == "a"
    os.write(stdout, pair.kernel.mark_of(10) + b"late")
    await pair.heard.until("alate")
    os.close(stdout)
    os.close(stderr)


async def test_runs_are_told_apart(pair: Pair) -> None:
    first, first_stdout, first_stderr = pair.begin("1")
    first.start()
    first.release()
    heard, pair.heard = pair.heard, Heard()
    second, stdout, stderr = pair.begin("2")
    second.start()
    os.write(stdout, b"mine")
    os.write(first_stdout, b"late")
    await heard.until("late")
    await pair.heard.until("mine")
    for descriptor in (stdout, stderr, first_stdout, first_stderr):
        os.close(descriptor)


async def test_a_pipe_made_larger_is_read_whole(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, 2**20)
    os.write(stdout, b"x" * 2**20)
    run.catch_up(1)
    assert len(pair.heard.text()) == 2**20
    os.close(stdout)
    os.close(stderr)


async def test_what_a_dead_kernel_has_written_is_handed_over(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()
    os.write(stdout, b"a" + pair.kernel.mark_of(5) + b"b\xf0\x9f")
    os.close(stdout)
    os.close(stderr)
    pair.output.drain()
    assert pair.heard.text() == "ab�"


async def test_nothing_is_kept_for_runs_that_nobody_writes_for(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        run, stdout, stderr = pair.begin(str(number))
        run.start()
        os.write(stdout, b"x")
        run.catch_up(1)
        run.release()
        os.close(stdout)
        os.close(stderr)
    pair.output.drain()
    assert len(pair.heard.text()) == 300
    assert (
        len(os.listdir("/proc/self/fd")) <= before + 1
    )  # the guest's connection, which was accepted meanwhile


async def test_runs_that_are_held_open_have_a_bound(pair: Pair) -> None:
    held = list[int]()
    while (run := pair.output.open("run", pair.heard)) is not None:
        run.start()
        run.release()
        held += pair.kernel.take()[1:]
    assert len(held) == 130
    for descriptor in held:
        os.close(descriptor)
    assert pair.output.open("run", pair.heard) is not None


async def test_a_kernel_that_takes_no_pipes_gets_none() -> None:
    output = KernelOutput(new_connection(), asyncio.get_running_loop())
    output.connect()
    assert output.open("run", Heard()) is None
    output.close()
    output.close()


async def test_a_kernel_that_is_gone_gets_none(pair: Pair) -> None:
    pair.begin()
    pair.kernel.close()
    assert pair.output.open("run", pair.heard) is None


async def test_a_flood_is_whole(pair: Pair) -> None:
    run, stdout, stderr = pair.begin()
    run.start()

    def flood() -> None:
        for _ in range(200):
            os.write(stdout, b"\xc3\xa9" * (PIPE // 2))

    await asyncio.to_thread(flood)
    run.catch_up(1)
    assert len(pair.heard.text()) == 200 * PIPE // 2
    os.close(stdout)
    os.close(stderr)
