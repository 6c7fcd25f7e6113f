"""Time that a run is held for is not its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sandcell.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """A loop whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[asyncio.TimerHandle] = []
        self.real = asyncio.new_event_loop()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        self.handles.append(asyncio.TimerHandle(self.now + delay, callback, (), self.real))
        return self.handles[-1]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.handles if each.when() <= self.now and not each.cancelled()]
        self.handles = [each for each in self.handles if each not in due]
        for each in due:
            each._run()


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    loop.real.close()
    return loop


def test_time_for_which_it_is_held_does_not_count(loop: Loop) -> None:
    over = list[float]()
    clock = Clock(10, lambda: over.append(loop.now), loop)
    loop.wait(4)
    clock.hold()
    clock.hold()
    loop.wait(1000)
    clock.release()
    clock.release()
    loop.wait(5.5)
    assert not over
    loop.wait(0.5)
    clock.release()
    loop.wait(1000)
    assert over == [1110.0]


def test_one_that_was_cancelled_never_calls(loop: Loop) -> None:
    called = list[int]()
    clock = Clock(1, lambda: called.append(1), loop)
    clock.hold()
    clock.cancel()
    clock.release()
    loop.wait(1000)
    assert not called
