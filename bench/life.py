"""The promises about sandboxes that come, stop and start."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.contexts import PlainKernel
from bench.harness import Row

from sandcell import Sandbox

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_life_rows"]

PAUSE_S = 0.3  # until what a round has left behind has ended


@contextmanager
def open_life_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows, with a sandbox of `engine` behind them that is stopped and started."""
    with Sandbox.create(engine=engine, on_release="remove") as sandbox:
        yield [
            Row(
                name="create() to its first result / a plain kernel's start",
                ours=lambda: _create(engine),
                theirs=_plain,
                bound=1.0,
                rounds=20,
                warm_up=2,
            ),
            Row(
                name="a stopped sandbox to its first result / the same",
                ours=lambda: _wake(sandbox),
                theirs=_plain,
                bound=1.0,
                rounds=15,
                warm_up=2,
            ),
        ]


def _create(engine: str) -> float:
    begin = time.perf_counter()
    with Sandbox.create(engine=engine) as made:
        made.run_code("1+1")
        seconds = time.perf_counter() - begin
    time.sleep(PAUSE_S)
    return seconds


def _wake(sandbox: Sandbox) -> float:
    sandbox.stop()
    begin = time.perf_counter()
    sandbox.run_code("1+1")
    seconds = time.perf_counter() - begin
    time.sleep(PAUSE_S)
    return seconds


def _plain() -> float:
    begin = time.perf_counter()
    with PlainKernel() as kernel:
        kernel.run("1+1")
        seconds = time.perf_counter() - begin
    time.sleep(PAUSE_S)
    return seconds
