"""The promise about results: a run that asks for nothing pays nothing for what others may ask for."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.harness import Row
from IPython.core.formatters import DisplayFormatter

from sandcell_runtime.displays import BundleFormatter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["open_result_rows"]

_TIMES = 2000


@contextmanager
def open_result_rows(_engine: str) -> Generator[list[Row]]:
    """Yield the rows; they need no sandbox."""
    yield [
        Row(
            name="formatting for a run that does not ask / IPython's own",
            ours=_formatting(BundleFormatter),
            theirs=_formatting(DisplayFormatter),
            bound=1.1,
            rounds=40,
        )
    ]


def _formatting(kind: Callable[[], Any]) -> Callable[[], float]:
    formatter = kind()

    def measured() -> float:
        begin = time.perf_counter()
        for _ in range(_TIMES):
            formatter.format(42)
        return (time.perf_counter() - begin) / _TIMES

    return measured
