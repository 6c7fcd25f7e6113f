"""What ends the command from outside: SIGTERM and SIGHUP, as ^C does. Its sandbox ends with it, and leaves no folder."""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn

__all__ = ["Ending", "end_on_signals"]

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


class Ending:
    """The same for what runs on a loop, ^C too: the signal cancels the task, which then gives back what it holds."""

    def __init__(self) -> None:
        self._number = 0

    def listen(self) -> None:
        """From now on let a signal cancel the running task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (*_ENDING, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._end, number, task)

    def check(self) -> None:
        """Raise SystemExit where a signal has come."""
        if self._number:
            raise SystemExit(_SIGNALED + self._number)

    def _end(self, number: int, task: asyncio.Task[object]) -> None:
        if not self._number:
            self._number = number
            task.cancel()
