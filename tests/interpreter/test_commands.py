"""Commands by id: repeated, shared, given up, forgotten. Starts are played, so that their moments can be chosen."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest

from sandcell.config import Config
from sandcell.guest import command_records as records
from sandcell.guest import commands as room
from sandcell.guest.commands import Commands
from sandcell.job_bodies import ExecRequest
from sandcell_container.end import Truncation
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.frames import Kind
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.stdin_pipe import StdinPipe
from sandcell_container.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT = GuestBoot(
    sandbox_id="s",
    name="s",
    engine="none",
    token="t",
    epoch="e",
    created_at=0.0,
    on_release="remove",
    grace=0.0,
    idle_timeout=None,
    default_timeout=300.0,
    python="p",
    runtime_dir="r",
    base_env={"A": "1", "B": "2"},
)
BODY = ExecRequest(command="true", id="one")


class PlayedCommand:
    def __init__(self, exec_id: str) -> None:
        self.id = exec_id
        self.journal = Journal("e")
        self.cancelled = 0
        self.cuts: dict[str, Truncation] = {}

    def finish(self, output: bytes = b"") -> None:
        self.journal.append(Kind.STDOUT, output)
        self.journal.append(Kind.ENDED, b"{}")
        self.journal.end()

    async def cancel(self) -> None:
        self.cancelled += 1
        self.finish()


class Starts:
    """What is started, and when. Until `open` is set every start waits."""

    def __init__(self) -> None:
        self.made: list[PlayedCommand] = []
        self.asked: list[dict[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.problem: SandcellError | None = None

    async def start(self, *_: object, **asked: Any) -> PlayedCommand:
        self.asked.append(asked)
        await self.open.wait()
        if self.problem is not None:
            raise self.problem
        self.made.append(PlayedCommand(asked["exec_id"]))
        return self.made[-1]


@pytest.fixture
async def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    made = Starts()
    monkeypatch.setattr(room, "start_exec", made.start)
    return made


def commands_of(**settings: Any) -> Commands:
    nobody = cast("Any", None)  # the played start uses neither spawner nor files
    return Commands(nobody, BOOT, Config(**settings), nobody)


async def follow(commands: Commands, body: ExecRequest = BODY) -> PlayedCommand:
    async with commands.follow(body) as command:
        played = cast("PlayedCommand", command)
        played.finish(b"x" * 100)
        return played


async def test_a_repeated_id_is_the_same_command(starts: Starts) -> None:
    commands = commands_of()
    assert await follow(commands) is await follow(commands)
    assert len(starts.made) == 1
    assert starts.made[0].cancelled == 0


async def test_an_id_is_not_for_two_commands(starts: Starts) -> None:
    commands = commands_of()
    await follow(commands)
    with pytest.raises(SandcellError) as caught:
        await follow(commands, ExecRequest(command="false", id="one"))
    assert caught.value.code is ErrorCode.EXISTS


async def test_the_same_folder_said_otherwise_is_the_same_command(starts: Starts) -> None:
    commands = commands_of()
    found = [
        await follow(commands, ExecRequest(command="true", id="one", cwd=cwd)) for cwd in (None, "", ".")
    ]
    assert found == [starts.made[0]] * 3


async def test_a_command_ends_with_the_last_who_follows_it(starts: Starts) -> None:
    commands = commands_of()
    async with AsyncExitStack() as first:
        await first.enter_async_context(commands.follow(BODY))
        async with commands.follow(BODY):
            await first.aclose()
            assert starts.made[0].cancelled == 0
    assert starts.made[0].cancelled == 1


async def test_two_who_ask_at_the_same_time_share_one_start(starts: Starts) -> None:
    commands = commands_of()
    starts.open.clear()
    both = [asyncio.create_task(follow(commands)) for _ in range(2)]
    await asyncio.wait(both, timeout=0)
    starts.open.set()
    first, second = await asyncio.gather(*both)
    assert first is second
    assert len(starts.asked) == 1


async def test_who_waits_for_a_start_that_is_given_up_starts_it_anew(starts: Starts) -> None:
    commands = commands_of()
    starts.open.clear()
    first = asyncio.create_task(follow(commands))
    await asyncio.wait({first}, timeout=0.01)
    second = asyncio.create_task(follow(commands))
    await asyncio.wait({second}, timeout=0.01)
    first.cancel()
    await asyncio.wait({first})
    starts.open.set()
    assert (await second).id == "one"
    assert len(starts.asked) == 2


async def test_a_start_that_failed_may_be_tried_again(starts: Starts) -> None:
    commands = commands_of()
    starts.problem = error(ErrorCode.START_FAILED, "no")
    with pytest.raises(SandcellError):
        await follow(commands)
    starts.problem = None
    assert (await follow(commands)).id == "one"


@pytest.mark.parametrize("bound", [{"max_records": 2}, {}])
async def test_old_commands_are_forgotten_but_not_that_they_ran(
    starts: Starts, bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not bound:
        monkeypatch.setattr(records, "MAX_KEPT_BYTES", 1000)  # each has 100 of output, and bookkeeping
    commands = commands_of(**bound)
    for name in ("one", "two", "three"):
        await follow(commands, ExecRequest(command="true", id=name))
    with pytest.raises(SandcellError) as caught:
        await follow(commands)
    assert caught.value.code is ErrorCode.LOST
    assert len(starts.made) == 3
    assert (await follow(commands, ExecRequest(command="true", id="three"))) is starts.made[2]


class Store:
    def __init__(self) -> None:
        self.removed: list[str] = []

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        raise AssertionError("a played command makes no file")

    def remove_soon(self, path: str) -> None:
        self.removed.append(path)


async def test_the_files_of_a_command_go_when_it_is_forgotten(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_SPILLED_BYTES", 250)
    nobody, store = cast("Any", None), Store()
    commands = Commands(nobody, BOOT, Config(), store)
    for name in ("one", "two", "three"):
        async with commands.follow(ExecRequest(command="true", id=name)):
            cut = Truncation(bytes=50, lines=1, total_bytes=100, path=f"/out/{name}")
            starts.made[-1].cuts = {"stdout": cut}
            starts.made[-1].finish()
    assert store.removed == ["/out/one"]
    with pytest.raises(SandcellError) as caught:
        await follow(commands, ExecRequest(command="true", id="one"))
    assert caught.value.code is ErrorCode.LOST


async def test_an_input_that_breaks_off_ends_the_command_whoever_follows_it(starts: Starts) -> None:
    commands = commands_of()
    async with AsyncExitStack() as first:
        stdin = StdinPipe(more=True)
        await first.enter_async_context(commands.follow(BODY, stdin))
        async with commands.follow(BODY):
            await first.aclose()
            assert starts.made[0].cancelled == 1
        stdin.close()


async def test_an_input_that_came_whole_does_not(starts: Starts) -> None:
    commands = commands_of()
    async with AsyncExitStack() as first:
        stdin = StdinPipe(more=True)
        await first.enter_async_context(commands.follow(BODY, stdin))
        stdin.end()
        async with commands.follow(BODY, repeated := StdinPipe(more=True)):
            await first.aclose()
            assert starts.made[0].cancelled == 0
        repeated.close()
        stdin.close()


async def test_what_is_asked_is_completed_from_the_sandbox(starts: Starts) -> None:
    body = ExecRequest(command="true", cwd="sub", env={"A": None, "C": "3"}, timeout=None)
    await follow(commands_of(), body)
    asked = starts.asked[0]
    assert asked["cwd"] == "/workspace/sub"
    assert asked["env"] == {"B": "2", "C": "3"}
    assert asked["timeout"] is None
    await follow(commands_of(), ExecRequest(command="true"))
    assert (starts.asked[1]["timeout"], starts.asked[1]["cwd"]) == (300.0, "/workspace")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (ExecRequest(command="true", id="NO"), ErrorCode.INVALID_NAME),
        (ExecRequest(command="true", timeout=0), ErrorCode.INVALID_ARGUMENT),
        (ExecRequest(command="true", max_output=2**40), ErrorCode.INVALID_ARGUMENT),
        (ExecRequest(command="true", env={"A=": "x"}), ErrorCode.INVALID_ENV_NAME),
    ],
)
async def test_what_cannot_be_is_refused(starts: Starts, body: ExecRequest, code: ErrorCode) -> None:
    with pytest.raises(SandcellError) as caught:
        await follow(commands_of(), body)
    assert caught.value.code is code
    assert starts.asked == []
