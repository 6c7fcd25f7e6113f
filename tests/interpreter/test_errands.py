"""Errands as the front sees them: asked for, answered, and waited for only as long as somebody may answer."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sandcell.guest.errands import Errands
from sandcell_container.errors import Gone
from sandcell_kernel.answers import Problem

WRONG = Problem(name="FORBIDDEN", value="no", lines=("hint",))


async def test_an_errand_ends_with_its_own_answer() -> None:
    errands = Errands()
    assert not errands.has_host
    with errands.hosted():
        assert errands.has_host
        assert await errands.run(0, lambda: errands.end(0, None)) is None

        def answer() -> None:
            errands.end(7, None)  # another one's
            errands.end(1, WRONG)
            errands.end(1, None)

        assert await errands.run(1, answer) == WRONG
    errands.end(1, None)
    errands.close()


async def test_a_kernel_process_that_comes_back_goes_on_and_one_that_does_not_is_gone() -> None:
    errands = Errands(away_s=0.05)
    held = contextlib.ExitStack()
    held.enter_context(errands.hosted())
    waiting = asyncio.ensure_future(errands.run(0, lambda: None))
    await asyncio.sleep(0)
    held.close()
    with errands.hosted():
        errands.end(0, None)
        assert await waiting is None
    with pytest.raises(Gone, match="has gone"):
        await errands.run(1, lambda: None)
    assert not errands.has_host


def test_a_problem_is_read_as_it_was_written() -> None:
    assert Problem.read(WRONG.content()) == WRONG
    assert Problem.read({"traceback": 3}) == Problem(name="", value="")
