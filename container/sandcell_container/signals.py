"""Signals by name or number, as a person writes them. Pure."""

from __future__ import annotations

import re
import signal

from sandcell_container.errors import ErrorCode, error

__all__ = ["signal_number"]

_LAST = 64
_REAL_TIME = re.compile(r"RT(MIN|MAX)([+-]\d{1,2})?", re.ASCII)


def signal_number(given: int | str) -> int:
    """Return the number of a signal: 15, "15", "TERM", "SIGTERM", "sigterm" or "RTMIN+1".

    Raises:
        InvalidRequest (UNKNOWN_SIGNAL): there is none such.
    """
    number = given if isinstance(given, int) else _named(given)
    if not 1 <= number <= _LAST:
        raise error(
            ErrorCode.UNKNOWN_SIGNAL,
            f"there is no signal {str(given)[:40]!r}",
            hint="a name as TERM or SIGTERM, or a number from 1 to 64",
            details={"field": "signal"},
        )
    return number


def _named(text: str) -> int:
    """Return its number, 0 where it has none."""
    name = text.strip().upper().removeprefix("SIG")
    if name.isascii() and name.isdigit() and len(name) <= 2:
        return int(name)
    real_time = _REAL_TIME.fullmatch(name)
    if real_time is not None:
        return signal.Signals[f"SIGRT{real_time[1]}"] + int(real_time[2] or 0)
    return getattr(signal.Signals, f"SIG{name}", 0)
