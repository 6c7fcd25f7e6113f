"""How long an editor's question may take: it may run code of the user's, and the cell behind it waits."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["PATIENCE_S", "TooSlow", "limited"]

# Longer than an editor waits, so that what is imported for the first answer is there for the second; shorter than the
# grace of an interrupt, which reaches a cell only when it runs, and ends the interpreter of one that does not heed it.
PATIENCE_S = 3.0
_AGAIN_S = 0.5  # for code that catches everything


class TooSlow(BaseException):
    """The time of a `limited` block is over."""


@contextmanager
def limited(seconds: float = PATIENCE_S) -> Generator[None]:
    """Raise TooSlow in the block after `seconds`, and again until it is left.

    In the main thread; signals reach no other, and there is no limit. An alarm of the user's own that comes due meanwhile
    rings after the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_left = False

    def ring(_number: int, _frame: object) -> None:
        if not is_left:
            raise TooSlow

    handler = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    due, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        try:
            yield
        finally:
            is_left = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
        if due:
            signal.setitimer(signal.ITIMER_REAL, max(due - (time.monotonic() - began), 0.001), interval)
