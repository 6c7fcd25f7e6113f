"""Long waits in turns: a guest that stands still in one of them is noticed. Pure but for the clock.

Deadlines are of `time.monotonic()`; None is none.
"""

from __future__ import annotations

import time

from sandcell.client.process_options import seconds_of

__all__ = ["deadline_of", "is_past", "turn_of"]

_TURN_S = 20.0


def deadline_of(timeout: object) -> float | None:
    """Return when so many seconds from now are over. Raises as `seconds_of`."""
    seconds = seconds_of(timeout)
    return None if seconds is None else time.monotonic() + seconds


def turn_of(deadline: float | None) -> float:
    """Return for how many seconds to ask next."""
    return _TURN_S if deadline is None else min(_TURN_S, max(deadline - time.monotonic(), 0.0))


def is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
