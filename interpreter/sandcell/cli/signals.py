"""What ends the command from outside: SIGTERM and SIGHUP, as ^C does. Its sandbox ends with it, and leaves no folder."""

from __future__ import annotations

import signal
from typing import NoReturn

__all__ = ["end_on_signals"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIGNALED = 128  # and the number of the signal


def end_on_signals() -> None:
    """From now on raise SystemExit with 128 and the number of such a signal, where it is not ignored (nohup)."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> NoReturn:
    for each in (*_ENDING, signal.SIGINT):
        signal.signal(each, _go_on)  # giving back takes a moment, and is not to be broken off
    raise SystemExit(_SIGNALED + number)


def _go_on(_number: int, _frame: object) -> None:
    """The process is ending already."""
