"""Calls of one run: taken, answered, given up; and the socket that code makes them by."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sandcell.api import AnswerTool, OfferTools, ToolFailure, ToolSpec
from sandcell.config import Config
from sandcell.tool_room import ToolRoom
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandcell.events import ToolCalled
    from sandcell.tool_calls import ToolCalls

KEY = "key-of-the-client"
CONFIG = Config(max_tool_calls=3, max_tool_size=1000, tool_timeout=20)
DEADLINE_S = 20


class Caller:
    """A run, as its calls know it."""

    def __init__(self) -> None:
        self.told: list[ToolCalled] = []
        self.held = 0
        self._news = asyncio.Event()

    def record_call(self, event: ToolCalled) -> None:
        self.told.append(event)
        self._news.set()

    def hold_clock(self) -> None:
        self.held += 1

    def release_clock(self) -> None:
        self.held -= 1

    async def call(self, number: int) -> str:
        """Return the id of a call once it was told."""
        await self.until(number + 1, "called")
        return [event for event in self.told if event.state == "called"][number].id

    async def until(self, count: int, *states: str) -> None:
        """Return once so much was told, of these states alone where some are named."""
        async with asyncio.timeout(DEADLINE_S):
            while len([each for each in self.states if each in (states or (each,))]) < count:
                self._news.clear()
                await self._news.wait()

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.told]


class House:
    """A run with the tools `add` and `quick`, whose calls have 50 ms."""

    def __init__(self, room: ToolRoom, *, followed: bool = True, client: str = "") -> None:
        self.caller = Caller()
        tools = (ToolSpec(name="add"), ToolSpec(name="quick", timeout=0.05))
        self.calls: ToolCalls = room.open(OfferTools(key=KEY, tools=tools, client=client))
        self.calls.attach(self.caller)
        if followed:
            self.calls.enter_host()

    def answer(self, call: str, *, key: str = KEY, **answer: Any) -> str:
        if "result" in answer:
            answer["result"] = msgspec.Raw(answer["result"])
        return self.calls.answer(call, AnswerTool(key=key, **answer)).state

    async def ask(self, head: dict[str, Any] | bytes, body: bytes = b"") -> tuple[bool, Any]:
        """Be code of the sandbox: send this, return what comes."""
        reader, writer = await self.connect()
        if isinstance(head, dict):
            head = json.dumps({"secret": self.calls.secret, "size": len(body), **head}).encode()
        writer.write(head + b"\n" + body)
        try:
            async with asyncio.timeout(DEADLINE_S):
                said = json.loads(await reader.readline())
                return said["ok"], json.loads(await reader.readexactly(said["size"]))
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(f"\0{self.calls.address}")

    async def call(self, name: str = "add", arguments: str = '{"a": 1}') -> tuple[bool, Any]:
        return await self.ask({"verb": "call", "name": name}, arguments.encode())


@asynccontextmanager
async def a_house(*, followed: bool = True, grace: float = 0.0) -> AsyncGenerator[House]:
    async with ToolRoom(CONFIG, grace=grace) as room:
        yield House(room, followed=followed)


async def test_a_call_is_told_answered_and_told_again() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        made = await house.caller.call(0)
        assert house.caller.held == 1
        assert house.answer(made) == "called"  # it begins
        assert house.answer(made, result=b'{"b":[1]}') == "done"
        assert await asked == (True, {"b": [1]})
        assert house.caller.held == 0
        first, second = house.caller.told
        assert (first.name, json.loads(bytes(first.arguments))) == ("add", {"a": 1})
        assert (second.state, bytes(second.result), second.arguments) == ("done", b'{"b":[1]}', None)


async def test_a_failure_is_an_answer_too() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        failure = ToolFailure(name="ValueError", message="no")
        assert house.answer(await house.caller.call(0), error=failure) == "failed"
        assert await asked == (False, {"name": "ValueError", "message": "no", "kind": "raised"})
        assert house.caller.told[1].error == {"name": "ValueError", "message": "no"}


async def test_nobody_answers_but_who_has_the_key_and_once() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        made = await house.caller.call(0)

        def refused(call: str, **answer: Any) -> ErrorCode:
            with pytest.raises(SandcellError) as caught:
                house.answer(call, **answer)
            return caught.value.code

        assert refused(made, key=house.calls.secret, result=b"1") is ErrorCode.FORBIDDEN
        assert refused(made, key="\ud800", result=b"1") is ErrorCode.FORBIDDEN
        assert refused("cal_other", result=b"1") is ErrorCode.NOT_FOUND
        house.answer(made)
        assert refused(made) is ErrorCode.BUSY
        house.answer(made, result=b"1")
        assert refused(made, result=b"2") is ErrorCode.LOST
        assert await asked == (True, 1)


async def test_there_are_as_many_calls_as_there_may_be() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        for number in range(3):
            asked = tasks.create_task(house.call())
            house.answer(await house.caller.call(number), result=b"0")
            await asked
        ok, said = await house.call()
        assert (ok, said["kind"]) == (False, "unavailable")
        assert "3 calls" in said["message"]
        assert len(house.caller.told) == 6


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "[1]",
        "{",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": ' + "[" * 70 + "]" * 70 + "}",
        "[" * 900,
        '{"a": "\xff"}',
    ],
)
async def test_arguments_that_not_every_reader_reads_are_refused(arguments: str) -> None:
    async with a_house() as house:
        ok, said = await house.ask({"verb": "call", "name": "add"}, arguments.encode("latin1"))
        assert (ok, said["name"]) == (False, "InvalidArguments")
        assert not house.caller.told


async def test_sizes_are_bounded_both_ways() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        ok, said = await house.call(arguments='{"a": "' + "x" * 1000 + '"}')
        assert (ok, "at most 1000 travel" in said["message"]) == (False, True)
        asked = tasks.create_task(house.call())
        assert house.answer(await house.caller.call(0), result=b'"' + b"x" * 1000 + b'"') == "failed"
        assert "returned has 1002 bytes" in (await asked)[1]["message"]


async def test_a_call_has_its_time() -> None:
    async with a_house() as house:
        ok, said = await house.call("quick")
        assert (ok, said["message"]) == (False, "the host gave quick no answer within 0.05 s")
        assert house.caller.states == ["called", "abandoned"]


async def test_a_caller_that_leaves_gives_its_call_up() -> None:
    async with a_house() as house:
        _, writer = await house.connect()
        head = {"secret": house.calls.secret, "verb": "call", "name": "add", "size": 2}
        writer.write(json.dumps(head).encode() + b"\n{}")
        made = await house.caller.call(0)
        writer.close()
        await house.caller.until(2)
        assert house.caller.states == ["called", "abandoned"]
        with pytest.raises(SandcellError, match="is over: abandoned"):
            house.answer(made, result=b"1")


async def test_a_caller_that_says_more_than_its_call_has_left() -> None:
    async with a_house() as house:
        ok, said = await house.ask({"verb": "call", "name": "add", "size": 2}, b"{} and more")
        assert (ok, said["message"]) == (False, "the caller left")
        assert house.caller.states == ["called", "abandoned"]


async def test_the_end_of_a_run_ends_its_calls_and_refuses_others() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        await house.caller.call(0)
        house.calls.close()
        assert (await asked)[1]["message"] == "the run has ended"
        assert (await house.call())[1]["message"] == "these tools belong to a run that has ended"
        assert house.caller.states == ["called", "abandoned"]


async def test_a_host_that_leaves_is_missed_and_may_come_again() -> None:
    async with a_house() as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        await house.caller.call(0)
        house.calls.leave_host()
        assert "is gone" in (await asked)[1]["message"]
        assert "is gone" in (await house.call())[1]["message"]
        house.calls.enter_host()
        asked = tasks.create_task(house.call())
        house.answer(await house.caller.call(1), result=b"1")
        assert await asked == (True, 1)


async def test_a_host_that_connects_again_in_time_is_not_missed() -> None:
    async with a_house(grace=9) as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        made = await house.caller.call(0)
        house.calls.leave_host()
        house.calls.enter_host()
        house.answer(made, result=b"1")
        assert await asked == (True, 1)


async def test_calls_wait_for_a_program_that_is_there_and_fail_when_it_goes() -> None:
    async with ToolRoom(CONFIG) as room, asyncio.TaskGroup() as tasks:
        house = House(room, client="cli_1")
        with room.present("cli_1"):
            asked = tasks.create_task(house.call())
            made = await house.caller.call(0)
            house.calls.leave_host()
            house.calls.enter_host()
            house.answer(made, result=b"1")
            assert await asked == (True, 1)
            house.calls.leave_host()
            asked = tasks.create_task(house.call())
            await house.caller.call(1)
        assert "is gone" in (await asked)[1]["message"]


async def test_a_run_that_nobody_follows_yet_waits_for_who_will() -> None:
    async with a_house(followed=False) as house, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(house.call())
        made = await house.caller.call(0)
        house.calls.enter_host()
        house.answer(made, result=b"1")
        assert await asked == (True, 1)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1",
        b"{}",
        b"x" * 10000,
        b'{"secret": 1, "verb": "call"}',
        b"\xff\xfe",
        b'{"verb": "list"}',
    ],
)
async def test_who_says_no_secret_hears_nothing(said: bytes) -> None:
    async with a_house() as house:
        reader, writer = await house.connect()
        writer.write(said + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            assert await _all_of(reader) == b""
        writer.close()
        assert (await house.ask({"verb": "list"}))[0]


async def test_a_secret_of_another_run_is_no_secret_of_this() -> None:
    async with a_house() as house:
        ok, said = await house.ask({"verb": "call", "name": "add", "secret": KEY}, b"{}")
        assert (ok, said["kind"]) == (False, "unavailable")


async def test_a_flood_of_silent_callers_keeps_nobody_waiting() -> None:
    async with a_house() as house, AsyncExitStack() as held:
        for _ in range(400):
            silent = held.enter_context(socket.socket(socket.AF_UNIX))
            await asyncio.to_thread(silent.connect, f"\0{house.calls.address}")
        async with asyncio.timeout(5):  # half of what a silent one has
            assert (await house.ask({"verb": "list"}))[0]


async def test_too_much_is_not_offered() -> None:
    async with ToolRoom(CONFIG) as room:
        with pytest.raises(SandcellError, match="INVALID_ARGUMENT: 129 tools"):
            room.open(OfferTools(key=KEY, tools=tuple(ToolSpec(name=f"t{n}") for n in range(129))))
        with pytest.raises(SandcellError, match="TOO_LARGE"):
            room.open(OfferTools(key=KEY, tools=(ToolSpec(name="t", description="x" * 1000),)))


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
