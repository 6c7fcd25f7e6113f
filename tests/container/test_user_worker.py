"""The worker that has the user's identity, started by real spawners in both modes."""

from __future__ import annotations

import os
import pwd
import signal
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.start import Start
from sandcell_container.guest.user_worker import UserWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.container.conftest import Place

    from sandcell_container.guest.job import Job

pytestmark = pytest.mark.short


@pytest.fixture
async def worker(place: Place) -> AsyncIterator[UserWorker]:
    async with UserWorker(place.spawner, "/usr/bin/python3", deadline_s=20.0) as made:
        yield made


def job_of(worker: UserWorker) -> Job:
    link = worker._link  # pyright: ignore[reportPrivateUsage] -- there is no other way to its process
    assert link is not None
    return link._job  # pyright: ignore[reportPrivateUsage]


async def stat(worker: UserWorker, path: str) -> int:
    return (await worker.ask("stat_file", "a file", path=path)).number


async def test_one_that_was_killed_is_replaced(worker: UserWorker) -> None:
    assert await stat(worker, "/") == 0
    await job_of(worker).kill_tree()
    assert await stat(worker, "/") == 0


async def test_one_that_does_not_answer_is_replaced(place: Place) -> None:
    async with UserWorker(place.spawner, "/usr/bin/python3", deadline_s=0.3) as worker:
        assert await stat(worker, "/") == 0
        job_of(worker).signal(signal.SIGSTOP, "tree")
        await job_of(worker).pids()  # the signal was sent
        with pytest.raises(SandcellError) as caught:
            await stat(worker, "/")
        assert caught.value.code == ErrorCode.UNREACHABLE
        assert await stat(worker, "/") == 0


async def test_nothing_is_left_open(place: Place) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with UserWorker(place.spawner, "/usr/bin/python3") as worker:
        assert await stat(worker, "/none") != 0
        (await worker.ask("terminal", "a terminal")).close()
        (await worker.ask("read", "a file", path="/etc/passwd")).close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_it_tells_what_a_process_is(worker: UserWorker, place: Place) -> None:
    begun = time.time()
    argv = ("tail", "-f", "/dev/null", "--", "/dev/null", "\udcff\n\"'é")
    job = await place.spawner.start(Start(argv=argv, env={}, cwd="/"))
    answer = await worker.ask("processes", "processes", pids=[job.pid, 2**22])
    (row,) = cast("list[dict[str, Any]]", answer.parts)
    assert row["pid"] == job.pid
    assert row["user"] == ("1000" if place.mode == "marks" else pwd.getpwuid(os.getuid()).pw_name)
    assert row["command"] == " ".join(argv)
    assert 0 <= row["cpu"] < 5
    assert 2**16 < row["memory"] < 2**28
    assert begun - 1 < row["started"] < time.time() + 1


async def test_long_command_lines_are_cut_and_many_processes_told(worker: UserWorker, place: Place) -> None:
    argv = ("tail", "-f", "/dev/null", "\udcff" * 10_000)
    job = await place.spawner.start(Start(argv=argv, env={}, cwd="/"))
    answer = await worker.ask("processes", "processes", pids=[job.pid] * 50)
    rows = cast("list[dict[str, Any]]", answer.parts)
    assert [row["command"] for row in rows] == [" ".join(argv)[:4096]] * 50


async def test_what_has_ended_is_no_process(worker: UserWorker, place: Place) -> None:
    job = await place.spawner.start(Start(argv=("true",), env={}, cwd="/"))
    await job.wait()
    assert (await worker.ask("processes", "processes", pids=[job.pid])).parts == []
