"""Which of the processes that end were killed for want of memory: the system counts them, and does not tell which."""

from __future__ import annotations

import signal
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OomWatch"]

# Killed itself, or a shell whose last command was. Source: bash(1), "EXIT STATUS".
_KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}
_FRESH_S = 2.0  # from the kill to the news of the end: what was counted earlier was the end of something nobody waits for


class OomWatch:
    """`count` is the system's count. Each kill that it tells of is that of one process that ends by SIGKILL soon after."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._counted = count()
        self._fresh = deque[float](maxlen=1000)

    def is_starved(self, code: int) -> bool:
        """Tell whether a process that ends now, with the exit code `code` (negative: a signal), was such a one."""
        now = time.monotonic()
        counted = self._count()
        self._fresh.extend([now] * (counted - self._counted))
        self._counted = counted
        while self._fresh and self._fresh[0] < now - _FRESH_S:
            self._fresh.popleft()
        if code not in _KILLED or not self._fresh:
            return False
        self._fresh.popleft()
        return True
