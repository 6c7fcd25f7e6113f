"""How long a run has run, where some of the time is not its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock"]


class Timing(Protocol):
    """What is asked of a loop."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle: ...


class Clock:
    """Calls `on_over` once, after `seconds` in which it was not held; `timing` is the running loop."""

    def __init__(self, seconds: float, on_over: Callable[[], object], timing: Timing | None = None) -> None:
        self._loop = timing or asyncio.get_running_loop()
        self._on_over = on_over
        self._left = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self.release()

    def hold(self) -> None:
        """Count nothing from now on."""
        if self._timer is not None:
            self._left = self._timer.when() - self._loop.time()
            self._timer.cancel()
            self._timer = None

    def release(self) -> None:
        """Count again."""
        if self._timer is None and not self._is_over:
            self._timer = self._loop.call_later(max(self._left, 0.0), self._end)

    def cancel(self) -> None:
        """Never call back."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self._is_over = True
        self._on_over()
