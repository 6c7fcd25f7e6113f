"""Limits on memory, and which deaths are due to them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from sandcell.memory import (
    LEAST_MEMORY,
    MemoryLimit,
    check_memory,
    count_oom_kills,
    describe_size,
    judge_end,
    limit_of,
    warnings_of,
)
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 256 * 2**20
ITS_OWN = MemoryLimit(LIMIT)


def ended(number: int | None, *, peak: int | None = LIMIT) -> End:
    if number is None:
        return End(cause="exited", code=3, peak_memory=peak)
    return End(cause="signaled", signal=number, peak_memory=peak)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_fault_at_the_limit_is_the_lack_of_memory(number: int) -> None:
    end = judge_end(ended(number), ITS_OWN, kills=0)
    assert (end.cause, end.limit, end.signal, end.peak_memory) == ("oom", "memory", number, LIMIT)


def test_a_kill_is_the_systems_where_the_system_says_that_it_killed() -> None:
    assert judge_end(ended(signal.SIGKILL, peak=None), None, kills=1).cause == "oom"
    assert judge_end(ended(signal.SIGKILL), ITS_OWN, kills=0).cause == "signaled"


@pytest.mark.parametrize(
    "end",
    [
        ended(signal.SIGSEGV, peak=LIMIT // 2),
        ended(signal.SIGSEGV, peak=None),
        ended(signal.SIGTERM),
        ended(None),
    ],
    ids=["far below", "unknown", "another signal", "exited"],
)
def test_other_ends_stay_what_they_are(end: End) -> None:
    assert judge_end(end, ITS_OWN, kills=3) == end
    assert judge_end(end, None, kills=0) == end


def test_kills_are_counted_where_they_are_nearest(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    far.write_text("oom_kill 7\n")
    counters = [(str(near), "oom_kill"), (str(far), "oom_kill")]
    assert count_oom_kills(counters) == 7
    near.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 9\n")
    assert count_oom_kills(counters) == 2
    near.write_text("nothing\n")
    assert count_oom_kills(counters[:1]) == 0
    assert count_oom_kills() >= 0


def test_too_little_for_an_interpreter_is_refused() -> None:
    assert check_memory(None) is None
    assert check_memory(LEAST_MEMORY) == LEAST_MEMORY
    with pytest.raises(SandcellError) as caught:
        check_memory(LEAST_MEMORY - 1)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "64 MiB" in caught.value.hint


def test_what_does_not_hold_is_told() -> None:
    assert warnings_of(None, LIMIT) == ()
    assert len(warnings_of(LIMIT, None)) == 1
    assert "256 MiB is lower" in warnings_of(2 * LIMIT, LIMIT)[1]


def test_the_limit_that_is_reached_first() -> None:
    assert limit_of(None, None) is None
    assert limit_of(1, None) == limit_of(1, 2) == MemoryLimit(1)
    of_the_sandbox = limit_of(None, LIMIT)
    assert of_the_sandbox == limit_of(LIMIT + 1, LIMIT)
    assert of_the_sandbox is not None
    assert judge_end(ended(signal.SIGABRT, peak=LIMIT * 2 // 3), of_the_sandbox, kills=0).cause == "oom"


def test_sizes_are_told_as_a_person_reads_them() -> None:
    assert describe_size(LIMIT) == "256 MiB"
    assert describe_size(1000) == "1000 bytes"
