"""Limits on memory, and which deaths are due to them."""

from __future__ import annotations

import signal

import pytest

from sandcell.memory import (
    LEAST_MEMORY,
    MemoryLimit,
    check_memory,
    describe_size,
    judge_end,
    limit_of,
    warnings_of,
)
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, SandcellError

LIMIT = 256 * 2**20
ITS_OWN = MemoryLimit(LIMIT)


def ended(number: int | None, *, peak: int | None = LIMIT) -> End:
    if number is None:
        return End(cause="exited", code=3, peak_memory=peak)
    return End(cause="signaled", signal=number, peak_memory=peak)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_fault_at_the_limit_is_the_lack_of_memory(number: int) -> None:
    end = judge_end(ended(number), ITS_OWN)
    assert (end.cause, end.limit, end.signal, end.peak_memory) == ("oom", "memory", number, LIMIT)


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
    assert judge_end(end, ITS_OWN) == end
    assert judge_end(end, None) == end


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
    assert judge_end(ended(signal.SIGABRT, peak=LIMIT * 2 // 3), of_the_sandbox).cause == "oom"


def test_sizes_are_told_as_a_person_reads_them() -> None:
    assert describe_size(LIMIT) == "256 MiB"
    assert describe_size(1000) == "1000 bytes"
