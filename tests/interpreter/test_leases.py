"""When a sandbox ends, by a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sandcell.guest.leases import Leases


class _Handle:
    def __init__(self) -> None:
        self.cancelled_here = False

    def cancel(self) -> None:
        self.cancelled_here = True


class _Clock:
    """Time that stands still until `pass_time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, Any, tuple[Any, ...], _Handle]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any) -> Any:
        handle = _Handle()
        self._calls.append((when, callback, args, handle))
        return handle

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((each for each in self._calls if each[0] <= end), key=lambda each: each[0]):
            self._calls.remove(due[0])
            when, callback, args, handle = due[0]
            self.now = max(self.now, when)
            if not handle.cancelled_here:
                callback(*args)
        self.now = end


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def leases_of(clock: _Clock, **options: Any) -> Leases:
    given: dict[str, Any] = {"boot_deadline": 60.0, "grace": 0.0, "idle_timeout": 600.0, "keep": False}
    return Leases(epoch="e", clock=clock, **given | options)


async def is_over(leases: Leases) -> str | None:
    try:
        async with asyncio.timeout(0):
            return await leases.over()
    except TimeoutError:
        return None


def told(leases: Leases) -> list[str]:
    found = leases.news.read(leases.news.start)
    return [json.loads(entry.data)["status"] for entry in found]


async def test_a_sandbox_that_nobody_comes_to_ends(clock: _Clock) -> None:
    leases = leases_of(clock)
    clock.pass_time(59)
    assert await is_over(leases) is None
    clock.pass_time(2)
    assert await is_over(leases) == "nobody came"


async def test_the_last_lease_ends_it_at_once_without_a_grace(clock: _Clock) -> None:
    leases = leases_of(clock)
    with leases.hold():
        with leases.hold():
            clock.pass_time(10_000)
        assert await is_over(leases) is None
    clock.pass_time(0)
    assert await is_over(leases) == "its last lease lapsed"


async def test_who_comes_back_within_the_grace_finds_it(clock: _Clock) -> None:
    leases = leases_of(clock, grace=60.0)
    with leases.hold():
        pass
    clock.pass_time(59)
    with leases.hold():
        clock.pass_time(1000)
    clock.pass_time(59)
    assert await is_over(leases) is None
    clock.pass_time(2)
    assert await is_over(leases) is not None


async def test_one_to_keep_outlives_its_owner_until_it_is_idle(clock: _Clock) -> None:
    leases = leases_of(clock, keep=True)
    with leases.hold():
        pass
    clock.pass_time(500)
    with leases.work():
        clock.pass_time(10_000)
        assert await is_over(leases) is None
    clock.pass_time(599)
    assert await is_over(leases) is None
    clock.pass_time(2)
    assert await is_over(leases) == "idle"


async def test_a_cull_is_told_30_seconds_ahead_and_taken_back_by_work(clock: _Clock) -> None:
    leases = leases_of(clock, keep=True)
    with leases.hold():
        pass
    clock.pass_time(569)
    assert told(leases) == ["running"]
    clock.pass_time(2)
    assert told(leases) == ["running", "stopping"]
    with leases.work():
        pass
    assert told(leases) == ["running", "stopping", "running"]
    clock.pass_time(599)
    assert await is_over(leases) is None
    clock.pass_time(2)
    assert await is_over(leases) == "idle"


async def test_code_that_runs_or_ran_lately_is_no_idleness(clock: _Clock) -> None:
    last_end = clock.now + 1000
    leases = leases_of(clock, keep=True, quiet_for=lambda: max(clock.now - last_end, 0.0))
    with leases.hold():
        pass
    clock.pass_time(1599)
    assert await is_over(leases) is None
    clock.pass_time(2)
    assert await is_over(leases) == "idle"
    assert told(leases) == ["running", "stopping", "stopping"]


async def test_without_an_idle_timeout_one_to_keep_stays(clock: _Clock) -> None:
    leases = leases_of(clock, keep=True, idle_timeout=None)
    with leases.hold():
        pass
    clock.pass_time(10**9)
    assert await is_over(leases) is None


async def test_a_stop_is_told_and_ends_the_followers(clock: _Clock) -> None:
    leases = leases_of(clock)
    leases.stop("SIGTERM")
    assert await is_over(leases) == "SIGTERM"
    assert told(leases) == ["running", "stopping"]
    assert leases.news.ended
