"""Processes by id: repeated, shared, forgotten. Over a real spawner."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.interpreter.house import a_spawner

from sandcell.config import Config
from sandcell.guest import processes as room
from sandcell.guest.processes import Launch, Processes
from sandcell.job_bodies import CreateProcess
from sandcell_container.end import KillReport
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Kind
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.spawn import Spawner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandcell_container.guest.process import Process

CONFIG = Config(max_records=3, kill_grace=1.0)


def boot_of(folder: str, **fields: Any) -> GuestBoot:
    known: dict[str, Any] = {
        "sandbox_id": "s",
        "name": "s",
        "engine": "none",
        "token": "t",
        "epoch": "e",
        "created_at": 0.0,
        "on_release": "remove",
        "grace": 0.0,
        "idle_timeout": None,
        "default_timeout": 300.0,
        "python": "p",
        "runtime_dir": "r",
        "workdir": folder,
        "base_env": {"PATH": os.environ["PATH"], "A": "1", "B": "2"},
    }
    return GuestBoot(**known | fields)


@pytest.fixture
async def processes() -> AsyncGenerator[Processes]:
    with tempfile.TemporaryDirectory() as folder, a_spawner() as sock:
        async with Spawner(sock) as spawner:
            made = Processes(spawner, boot_of(folder), CONFIG)
            yield made
            made.close()


def body(command: str = "true", **fields: Any) -> CreateProcess:
    return CreateProcess(command=command, **fields)


async def run(processes: Processes, command: str = "true", **fields: Any) -> Process:
    process = await processes.start(body(command, **fields))
    await process.wait()
    return process


def said(process: Process) -> str:
    entries = process.journal.read(process.journal.start)
    return b"".join(each.data for each in entries if each.kind == Kind.STDOUT).decode()


async def test_a_repeated_request_is_the_same_process_while_it_runs_and_after(processes: Processes) -> None:
    first = await processes.start(body("echo x >> once; read line", id="one", stdin=True))
    assert await processes.start(body("echo x >> once; read line", id="one", stdin=True)) is first
    first.close_stdin()
    await first.wait()
    assert await processes.start(body("echo x >> once; read line", id="one", stdin=True)) is first
    assert said(await run(processes, "cat once")) == "x\n"


async def test_the_same_folder_said_otherwise_is_the_same_process(processes: Processes) -> None:
    await run(processes, "mkdir sub")
    here = (await run(processes, "pwd", id="here")).plan.cwd
    below = await run(processes, "pwd", id="below", cwd="sub")
    for cwd in (here, ".", f"{here}/", ""):
        assert (await processes.start(body("pwd", id="here", cwd=cwd))).plan.cwd == here
    assert await processes.start(body("pwd", id="below", cwd=f"{here}/sub")) is below
    with pytest.raises(SandcellError) as caught:
        await processes.start(body("pwd", id="below"))
    assert caught.value.code is ErrorCode.EXISTS


async def test_many_who_ask_at_once_share_one_start(processes: Processes) -> None:
    found = await asyncio.gather(*(processes.start(body("sleep 50", id="one")) for _ in range(50)))
    assert len({id(each) for each in found}) == 1
    assert await processes.kill("one", 0, who="t") == KillReport(killed=1)


async def test_an_id_is_not_for_two_processes(processes: Processes) -> None:
    await run(processes, id="one")
    with pytest.raises(SandcellError) as caught:
        await processes.start(body("false", id="one"))
    assert caught.value.code is ErrorCode.EXISTS
    await processes.remove("one", who="t")
    assert (await run(processes, "false", id="one")).end is not None


async def test_a_start_that_failed_may_be_tried_again(processes: Processes) -> None:
    for _ in range(2):
        with pytest.raises(SandcellError) as caught:
            await processes.start(body(id="one", cwd="missing"))
        assert caught.value.code is ErrorCode.CWD_NOT_FOUND
    assert (await run(processes, id="one")).end is not None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": "NO"}, ErrorCode.INVALID_NAME),
        ({"timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"memory": 1000}, ErrorCode.INVALID_ARGUMENT),
        ({"env": {"A=": "x"}}, ErrorCode.INVALID_ENV_NAME),
    ],
)
async def test_what_cannot_be_is_refused(
    processes: Processes, fields: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(SandcellError) as caught:
        await processes.start(body(**fields))
    assert caught.value.code is code
    assert processes.list() == []


async def test_environment_and_folder_are_completed_from_the_sandbox(processes: Processes) -> None:
    await run(processes, "mkdir sub")
    process = await run(processes, "echo $A $B $C; pwd", cwd="sub", env={"A": None, "C": "3"})
    lines = said(process).split("\n")
    assert lines[0] == "2 3"
    assert lines[1] == processes.describe(process).cwd


async def test_the_newest_that_ended_are_kept_and_of_older_ones_that_they_ran(processes: Processes) -> None:
    running = await processes.start(body("sleep 50", id="lasting"))
    for name in ("one", "two", "three", "four"):
        await run(processes, id=name)
    assert [each.id for each in processes.list()] == ["lasting", "two", "three", "four"]
    with pytest.raises(SandcellError) as caught:
        processes.get("one")
    assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(SandcellError) as caught:
        await processes.start(body(id="one"))
    assert caught.value.code is ErrorCode.LOST
    assert (await processes.wait("one")).code == 0
    assert await processes.kill("one", 0, who="t") == KillReport()
    await processes.remove("one", who="t")
    assert (await run(processes, id="one")).end is not None
    await running.kill(0)


async def test_what_is_known_of_forgotten_ones_is_bounded(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_FORGOTTEN", 1)
    for name in ("one", "two"):
        await run(processes, id=name, keep_record=False)
    with pytest.raises(SandcellError):
        await processes.wait("one")
    assert (await processes.wait("two")).code == 0


async def test_a_record_that_is_not_to_be_kept_goes_with_its_end_but_not_under_a_reader(
    processes: Processes,
) -> None:
    process = await processes.start(body("read line; echo out", id="one", stdin=True, keep_record=False))
    with process.read() as journal:
        process.close_stdin()
        await processes.wait("one")
        assert processes.list() == []
        entries = journal.read(journal.start)
        assert [each.kind for each in entries] == [Kind.STARTED, Kind.STDOUT, Kind.ENDED]
    assert process.journal.memory == 0


async def test_lists_are_by_session_and_status(processes: Processes) -> None:
    async def prepare() -> Launch:
        return Launch(argv=("sleep", "50"), cwd="/", env={"PATH": os.environ["PATH"]})

    await run(processes, id="ended")
    await processes.start(body("shown", id="mine"), session_id="ses_1", prepare=prepare)
    assert [each.id for each in processes.list(session_id="ses_1")] == ["mine"]
    assert [each.id for each in processes.list(status="ended")] == ["ended"]
    assert [each.id for each in processes.list(status="running")] == ["mine"]
    assert processes.describe(processes.get("mine")).command == "shown"
    assert await processes.kill_all(who="t", session_id="ses_2") == KillReport()
    assert await processes.kill_all(who="t") == KillReport(killed=1)
    end = processes.get("mine").end
    assert end is not None and (end.cause, end.who) == ("killed", "t")


async def test_a_session_prepares_only_what_is_started_and_its_descriptor_is_given_back(
    processes: Processes,
) -> None:
    prepared = list[int]()

    async def prepare() -> Launch:
        extra = os.memfd_create("snapshot")
        os.write(extra, b"from beside")
        os.lseek(extra, 0, os.SEEK_SET)
        prepared.append(extra)
        return Launch(argv=("sh", "-c", "cat <&3"), cwd="/", env={"PATH": os.environ["PATH"]}, extra=extra)

    before = len(os.listdir("/proc/self/fd"))
    process = await processes.start(body("shown", id="one"), session_id="ses_1", prepare=prepare)
    assert await processes.start(body("shown", id="one"), session_id="ses_1", prepare=prepare) is process
    await process.wait()
    assert said(process) == "from beside"
    assert len(prepared) == 1
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(SandcellError):
        await processes.start(body("shown", id="one"))


async def test_clean_forgets_what_has_ended_and_frees_the_ids(processes: Processes) -> None:
    await run(processes, id="one")
    await run(processes, id="two")
    running = await processes.start(body("sleep 50", id="three"))
    assert processes.clean() == 2
    assert [each.id for each in processes.list()] == ["three"]
    assert (await run(processes, "false", id="one")).end is not None
    await running.kill(0)


async def test_removing_what_runs_ends_it(processes: Processes) -> None:
    await processes.start(body("sleep 50", id="one"))
    assert await processes.remove("one", who="t") == KillReport(killed=1)
    with pytest.raises(SandcellError) as caught:
        await processes.remove("one", who="t")
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_it_is_active_while_something_runs_and_was_when_the_last_one_ended(
    processes: Processes,
) -> None:
    assert processes.last_active() == 0
    process = await processes.start(body("sleep 50"))
    assert abs(processes.last_active() - time.time()) < 1
    await process.kill(0)
    ended = processes.last_active()
    assert ended == processes.last_active() <= time.time()
    processes.clean()
    assert processes.last_active() == ended


async def test_a_limit_on_memory_is_told_with_what_does_not_hold(processes: Processes) -> None:
    process = await run(processes, "ulimit -d", memory=200 * 2**20)
    assert said(process) == "204800\n"
    info = processes.describe(process)
    assert info.memory == 200 * 2**20
    assert "each process of the tree, not for their sum" in info.warnings[0]


async def test_the_output_of_all_that_ended_takes_no_more_disk_than_it_may(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_KEPT_DISK", 2_500_000)
    done = [await run(processes, "head -c 2000000 /dev/zero") for _ in range(2)]
    assert done[0].journal.read(done[0].journal.start)[0].kind == Kind.GAP
    assert done[1].journal.read(done[1].journal.start)[0].kind == Kind.STARTED
    assert done[1].journal.disk > 1_900_000
