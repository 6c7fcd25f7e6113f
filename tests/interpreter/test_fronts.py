from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from sandcell.api import CreateFront
from sandcell.config import Config
from sandcell.guest.cell_work import CellWork
from sandcell.guest.former import RESTARTED
from sandcell.guest.fronts import Fronts, Rooms
from sandcell.languages import LANGUAGES
from sandcell_container.end import CommandEnd, End
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.frames import Kind
from sandcell_container.journal import Journal
from sandcell_kernel.websocket import unpack_v1
from sandcell_kernel.wire import Message, new_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandcell.guest.front import Front
    from sandcell.runs import RunListener
    from sandcell_container.guest.session_command import CommandOrder
    from sandcell_kernel.wire import Channel


class FakeExecution:
    """A run that notes who interrupted it."""

    def __init__(self, request: Any) -> None:
        self.id = "run_1"
        self.request = request
        self.interrupted_by: list[str] = []
        self.journal = Journal("e")

    async def interrupt(self, *, who: str) -> None:
        self.interrupted_by.append(who)


class FakeContext:
    """A context that answers when the test says so. Stands in for `sandcell.context.Context`."""

    id = "python"
    language = "python"
    speaks = LANGUAGES[0]

    def __init__(self) -> None:
        self.submitted: list[tuple[Message, FakeExecution, RunListener]] = []
        self.sent: list[tuple[Channel, Message]] = []
        self.calls: list[str] = []
        self.problem: SandcellError | None = None
        self.ticket = 7

    def submit(self, message: Message, execution: FakeExecution, *, listener: RunListener) -> None:
        if self.problem is not None:
            raise self.problem
        self.submitted.append((message, execution, listener))

    def send(self, channel: Channel, message: Message, listener: RunListener) -> None:
        if self.problem is not None:
            raise self.problem
        self.sent.append((channel, message))

    async def kernel_info(self) -> dict[str, Any]:
        if self.problem is not None:
            raise self.problem
        return {"language_info": {"name": "python", "version": "3.11.2"}}

    async def take_ticket(self, origin: str) -> int:
        self.calls.append(f"ticket {origin}")
        return self.ticket

    async def interrupt(self, *, who: str) -> None:
        self.calls.append(f"interrupt {who}")

    async def restart(self, *, who: str) -> None:
        self.calls.append(f"restart {who}")


class FakeSession:
    """A shell session of one command, whose journal the test writes."""

    id = "shell"

    def __init__(self) -> None:
        self.journal = Journal("e")
        self.commands: list[str] = []
        self.interrupts = 0
        self.ran = asyncio.Event()

    def run(self, order: CommandOrder) -> SimpleNamespace:
        self.commands.append(order.text)
        self.ran.set()
        return SimpleNamespace(id="exe_1", journal=self.journal, refusal=None, interrupt=self.interrupt)

    def interrupt(self) -> None:
        self.interrupts += 1

    def end(self, code: int) -> None:
        end = CommandEnd(end=End(cause="exited", code=code), exit_code=code, signal=None, duration=0.1)
        self.journal.append(Kind.ENDED, json.dumps(_plain(end)).encode())
        self.journal.end()


def _plain(end: CommandEnd) -> dict[str, Any]:
    return {
        "end": {"cause": end.end.cause, "code": end.end.code},
        "exit_code": end.exit_code,
        "signal": end.signal,
        "duration": end.duration,
    }


def _note_nothing(*_: object) -> None:
    """Nobody watches."""


class World:
    """Fronts over fakes."""

    def __init__(self) -> None:
        self.context = FakeContext()
        self.session = FakeSession()
        self.asked_sessions: list[str] = []
        contexts = SimpleNamespace(default=self._default, get=self._get)
        executions = SimpleNamespace(create=FakeExecution)
        shells = SimpleNamespace(get_or_create=self._get_session)
        desk = SimpleNamespace(shells=shells, note_command=_note_nothing)
        self.rooms = Rooms(
            contexts=cast(Any, contexts),
            executions=cast(Any, executions),
            worker=CellWork(cast(Any, desk), cast(Any, None)),
        )

    async def _default(self, language: str) -> FakeContext:
        return self.context

    def _get(self, context_id: str) -> FakeContext:
        if context_id != "python":
            raise error(ErrorCode.NOT_FOUND, "no such context")
        return self.context

    async def _get_session(self, session_id: str) -> FakeSession:
        self.asked_sessions.append(session_id)
        return self.session

    def fronts(self, config: Config | None = None) -> Fronts:
        return Fronts(self.rooms, epoch="e", version="1.2.3", config=config or Config())


class Reader:
    """What the front end of a front gets, word by word."""

    def __init__(self, front: Front) -> None:
        self._batches = front.journal.follow()
        self._words: list[str] = []

    async def until(self, last: str) -> list[str]:
        """Return what came, up to and with `last`."""
        async with asyncio.timeout(5):
            while last not in self._words:
                self._words += [_word(entry.data) for entry in await anext(self._batches)]
        at = self._words.index(last) + 1
        found, self._words = self._words[:at], self._words[at:]
        return found


def _word(data: bytes) -> str:
    channel, message = unpack_v1(data)
    body = message.body()
    detail = body.get("execution_state") or body.get("status") or body.get("ename") or body.get("text")
    return ":".join(filter(None, [channel, message.msg_type, detail]))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def front(world: World) -> AsyncIterator[Front]:
    async with world.fronts() as fronts:
        yield await fronts.create(CreateFront(id="front"))


def request(kind: str, **content: Any) -> Message:
    return new_message(kind, content, session="client")


def kernel_says(world: World, asked: Message, channel: Channel, kind: str, **content: Any) -> None:
    listener = world.context.submitted[-1][2]
    listener.on_message(channel, new_message(kind, content, session="inner", parent=asked.header))


def kernel_ends(world: World, asked: Message, **changes: Any) -> None:
    ended: dict[str, Any] = {"end": End(cause="exited"), "reason": ""}
    world.context.submitted[-1][2].on_run_end(
        asked.msg_id, cast(Any, SimpleNamespace(**{**ended, **changes}))
    )


async def test_a_cell_is_an_execution_with_the_front_as_its_origin(world: World, front: Front) -> None:
    asked = request("execute_request", code="1+1", allow_stdin=True, store_history=False)
    front.receive("shell", asked)
    message, execution, _ = world.context.submitted[0]
    assert message is asked
    given = execution.request
    assert (given.code, given.origin, given.context) == ("1+1", "notebook:front", "python")
    assert (given.timeout, given.allow_stdin, given.store_history, given.want) == (None, True, False, ())
    kernel_says(world, asked, "iopub", "status", execution_state="busy")
    kernel_says(world, asked, "iopub", "status", execution_state="idle")
    kernel_says(world, asked, "shell", "execute_reply", status="ok")
    kernel_ends(world, asked)
    assert await Reader(front).until("iopub:status:idle") == [
        "iopub:status:busy",
        "shell:execute_reply:ok",
        "iopub:status:idle",
    ]


async def test_a_kernel_that_died_is_told(world: World, front: Front) -> None:
    asked = request("execute_request", code="1")
    front.receive("shell", asked)
    kernel_ends(world, asked, end=End(cause="oom", state="lost"), reason="out of memory")
    told = await Reader(front).until("iopub:status:idle")
    assert "iopub:error:ContextDied" in told


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("notebook:front interrupted it", "you interrupted it"),
        ("notebook:frt_2 restarted the context", "another notebook restarted the context"),
        ("sdk restarted the context", "sdk restarted the context"),
    ],
)
async def test_a_person_is_told_who_it_was_in_words(
    world: World, front: Front, reason: str, told: str
) -> None:
    asked = request("execute_request", code="1")
    front.receive("shell", asked)
    kernel_ends(world, asked, end=End(cause="killed", state="lost"), reason=reason)
    assert f"iopub:stream:[sandcell] {told}\n" in await Reader(front).until("iopub:status:idle")


async def test_a_cell_that_found_no_earlier_state_says_why(world: World, front: Front) -> None:
    asked = request("execute_request", code="x")
    front.receive("shell", asked)
    started = {"execution_count": 1, "context_id": "python", "fresh_state": "it was started anew"}
    world.context.submitted[0][1].journal.append(Kind.STARTED, json.dumps(started).encode())
    kernel_says(world, asked, "shell", "execute_reply", status="ok")
    kernel_ends(world, asked)
    told = await Reader(front).until("shell:execute_reply:ok")
    assert "iopub:stream:[sandcell] it was started anew\n" in told


@pytest.mark.parametrize(
    ("knows", "has_host", "is_told"), [(True, True, False), (True, False, True), (False, True, True)]
)
async def test_a_start_that_the_kernel_process_has_told_of_is_not_told_again(
    world: World, *, knows: bool, has_host: bool, is_told: bool
) -> None:

    def is_lost(kind: str, name: str) -> bool:
        return knows and (kind, name) == ("front", "front")

    world.rooms = replace(world.rooms, is_lost=is_lost)
    async with world.fronts() as fronts:
        front = await fronts.create(CreateFront(id="front"))
        with front.connected(does_errands=has_host):
            asked = request("execute_request", code="x")
            front.receive("shell", asked)
            started = {"execution_count": 1, "context_id": "python", "fresh_state": RESTARTED}
            world.context.submitted[0][1].journal.append(Kind.STARTED, json.dumps(started).encode())
            kernel_says(world, asked, "shell", "execute_reply", status="ok")
            kernel_ends(world, asked)
            told = await Reader(front).until("shell:execute_reply:ok")
        assert (f"iopub:stream:[sandcell] {RESTARTED}\n" in told) == is_told


async def test_a_run_that_cannot_be_submitted_is_an_error_of_its_cell(world: World, front: Front) -> None:
    world.context.problem = error(ErrorCode.BUSY, "the queue is full")
    front.receive("shell", request("execute_request", code="1"))
    assert "iopub:error:BUSY" in await Reader(front).until("iopub:status:idle")


async def test_a_kernel_that_sends_nonsense_is_survived(world: World, front: Front) -> None:
    asked = request("execute_request", code="1")
    front.receive("shell", asked)
    front.hear("iopub", Message(b"nonsense", asked.header), None)
    kernel_ends(world, asked)
    assert await Reader(front).until("iopub:status:idle")


async def test_a_cell_that_we_fail_over_is_told_so(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_code: str) -> NoReturn:
        raise LookupError

    with monkeypatch.context() as broken:
        broken.setattr("sandcell_kernel.requests.read_cell", fail)
        front.receive("shell", request("execute_request", code="1"))
    told = await Reader(front).until("iopub:status:idle")
    assert told == [
        "iopub:status:busy",
        "iopub:error:INTERNAL",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]


async def test_a_shell_cell_runs_in_its_session(world: World, front: Front) -> None:
    front.receive("shell", request("execute_request", code="%%shell build\nmake"))
    await world.session.ran.wait()
    assert (world.asked_sessions, world.session.commands) == (["build"], ["make"])
    world.session.journal.append(Kind.STDOUT, b"out")
    world.session.journal.append(Kind.GAP, b'{"entries": 1, "bytes": 9}')
    world.session.journal.append(Kind.STDERR, b"err")
    world.session.end(3)
    assert (await Reader(front).until("iopub:status:idle"))[1:] == [
        "iopub:execute_input",
        "iopub:stream:out",
        "iopub:stream:\n[sandcell] 9 bytes of output were dropped\n",
        "iopub:stream:err",
        "iopub:error:CommandFailed",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]
    assert world.context.calls == ["ticket notebook:front"]


async def test_a_shell_that_ends_without_a_word_is_told(world: World, front: Front) -> None:
    front.receive("shell", request("execute_request", code="%%shell\nmake"))
    await world.session.ran.wait()
    world.session.journal.end()
    assert "iopub:error:LOST" in await Reader(front).until("iopub:status:idle")


async def test_interrupt_reaches_what_runs(world: World, front: Front) -> None:
    reader = Reader(front)
    front.receive("control", request("interrupt_request"))
    await reader.until("control:interrupt_reply:ok")
    assert world.context.calls == ["interrupt notebook:front"]
    asked = request("execute_request", code="1")
    front.receive("shell", asked)
    front.receive("control", request("interrupt_request"))
    await reader.until("control:interrupt_reply:ok")
    assert world.context.submitted[0][1].interrupted_by == ["notebook:front"]
    kernel_ends(world, asked)
    front.receive("shell", request("execute_request", code="%%shell\nsleep 9", store_history=False))
    await world.session.ran.wait()
    front.receive("control", request("interrupt_request"))
    await reader.until("control:interrupt_reply:ok")
    assert world.session.interrupts == 1


async def test_kernel_info_restart_and_what_the_kernel_answers(world: World, front: Front) -> None:
    reader = Reader(front)
    front.receive("shell", request("kernel_info_request"))
    await reader.until("shell:kernel_info_reply:ok")
    front.receive("control", request("shutdown_request", restart=True))
    await reader.until("control:shutdown_reply:ok")
    assert world.context.calls == ["restart notebook:front"]
    history = request("history_request")
    front.receive("shell", history)
    assert world.context.sent == [("shell", history)]
    world.context.problem = error(ErrorCode.CONTEXT_DIED, "gone")
    front.receive("shell", request("history_request"))
    assert "shell:history_reply:error" in await reader.until("shell:history_reply:error")


async def test_an_editor_is_answered_when_the_kernel_is_busy(world: World) -> None:
    async with world.fronts(Config(inspect_timeout=0.01)) as fronts:
        front = await fronts.create(CreateFront())
        front.receive("shell", request("complete_request", code="os.", cursor_pos=3))
        assert await Reader(front).until("shell:complete_reply:ok")


async def test_a_front_end_that_shuts_down_ends_its_front(world: World) -> None:
    async with world.fronts() as fronts:
        front = await fronts.create(CreateFront(id="front"))
        front.receive("control", request("shutdown_request", restart=False))
        assert fronts.list() == []
        assert front.journal.ended


async def test_the_same_id_gives_the_same_front(world: World) -> None:
    async with world.fronts() as fronts:
        first, second = await asyncio.gather(
            fronts.create(CreateFront(id="front")), fronts.create(CreateFront(id="front"))
        )
        assert first is second
        assert fronts.get("front").info().context_id == "python"
        with pytest.raises(SandcellError, match="NOT_FOUND"):
            fronts.get("other")
        with pytest.raises(SandcellError, match="NOT_FOUND"):
            await fronts.create(CreateFront(context="other"))
        with pytest.raises(SandcellError, match="INVALID_NAME"):
            await fronts.create(CreateFront(id="../x"))


async def test_an_unused_front_makes_room_and_a_used_one_does_not(world: World) -> None:
    async with world.fronts(replace(Config(), max_records=2)) as fronts:
        used, unused = await fronts.create(CreateFront()), await fronts.create(CreateFront())
        used.connections = 1
        third = await fronts.create(CreateFront())
        assert fronts.list() == [used, third]
        third.receive("shell", request("execute_request", code="1"))
        with pytest.raises(SandcellError, match="QUOTA_EXCEEDED"):
            await fronts.create(CreateFront())
        assert unused.journal.ended


async def test_leaving_ends_what_a_front_waits_for(world: World) -> None:
    async with world.fronts() as fronts:
        front = await fronts.create(CreateFront())
        front.receive("shell", request("execute_request", code="%%shell\nsleep 1000"))
        await world.session.ran.wait()
    assert front.journal.ended
