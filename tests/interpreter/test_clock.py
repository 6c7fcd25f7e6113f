"""Time that a run is held for is not its own."""

from __future__ import annotations

import asyncio

from sandcell.clock import Clock


async def test_time_for_which_it_is_held_does_not_count() -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    began = loop.time()
    clock = Clock(0.05, over.set)
    clock.hold()
    clock.hold()
    await asyncio.sleep(0.2)
    assert not over.is_set()
    clock.release()
    clock.release()
    await asyncio.wait_for(over.wait(), 20)
    assert loop.time() - began >= 0.24
    clock.release()  # once is all


async def test_one_that_was_cancelled_never_calls() -> None:
    called = list[int]()
    clock = Clock(0.0, lambda: called.append(1))
    clock.hold()
    clock.cancel()
    clock.release()
    await asyncio.sleep(0)
    assert not called
