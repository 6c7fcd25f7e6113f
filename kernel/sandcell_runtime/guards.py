"""Looking at objects of the user's, which may do anything then: it takes a bounded time, and ends nothing but itself."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from IPython.core.events import EventManager

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["EXTRA_S", "GuardedEvents", "Guards", "fault_in_words", "fault_of"]

EXTRA_S = 5.0  # what one extra may take
_LATER_S = 0.1  # and each after one that took longer
_AGAIN_S = 1.0  # until code that swallowed the end of its time is told again
_SHOWN = 500  # characters of a failure that are told
_name_of: Callable[[type], str] = type.__dict__[
    "__name__"
].__get__  # no metaclass of the user's comes before it


class TakesTooLong(BaseException):
    """An extra has had its time. Outside of Exception, which code of users often swallows."""


class Guards:
    """Runs what may fail, for one run of code: once something took too long there, what follows has little time."""

    def __init__(self, extra_s: float = EXTRA_S) -> None:
        self._extra_s = extra_s

    def fault_of(self, make: Callable[[], None]) -> str | None:
        """Do as the function `fault_of`, in bounded time.

        It is bounded in the main thread: a signal is what reaches code that sleeps. Elsewhere, in a subshell or a
        thread of the user's, the bound of the run itself is all there is.
        """
        given_s = self._extra_s
        try:
            with _alarm_after(given_s):
                return fault_of(make)
        except TakesTooLong:
            self._extra_s = _LATER_S
            return f"it took more than {given_s:g} s"


def fault_of(make: Callable[[], object]) -> str | None:
    """Call `make` and return why it failed, None where it did not. Only KeyboardInterrupt is passed on."""
    try:
        make()
    except (KeyboardInterrupt, TakesTooLong):
        raise
    except BaseException as problem:  # noqa: BLE001 -- libraries and objects of the user's may do anything, leave Python too
        return fault_in_words(problem)
    return None


def fault_in_words(problem: BaseException) -> str:
    """Return `NAME: TEXT` of an exception, whatever it does when it is asked."""
    return f"{_name_of(type(problem))}: {_words(problem)}"[:_SHOWN]


def _words(problem: BaseException) -> str:
    try:
        return str(problem).encode("utf-8", "backslashreplace").decode()
    except (KeyboardInterrupt, TakesTooLong):
        raise
    except BaseException:  # noqa: BLE001 -- an exception of the user's whose text fails as well
        return "(it cannot be printed)"


@contextmanager
def _alarm_after(seconds: float) -> Generator[None]:
    """Raise TakesTooLong in the main thread when `seconds` have passed. An alarm that user code has set comes later."""
    before = signal.getsignal(signal.SIGALRM)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # None: a handler of C code's, which could not be put back
        return
    is_on = True

    def tell(_number: int, _frame: object) -> None:
        if is_on:
            raise TakesTooLong

    begun = time.monotonic()
    signal.signal(signal.SIGALRM, tell)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        is_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - begun), 0.001), every_s)


class GuardedEvents(EventManager):
    """IPython's events, whose callbacks can end nothing: one that raises SystemExit would end the kernel, or leave its run
    without an end. But an interrupt that comes before the code has begun is the code's: nobody would send another one."""

    def trigger(self, event: str, *args: object, **kwargs: object) -> None:
        for function in list(self.callbacks[event]):
            try:
                function(*args, **kwargs)
            except (
                BaseException
            ) as problem:  # of a library or of the user's: it is shown, as IPython does with most
                if isinstance(problem, KeyboardInterrupt) and event.startswith("pre_"):
                    raise
                if self.print_on_error:
                    print(f"Error in callback {function} (for {event}):")  # noqa: T201 -- as IPython does
                self.shell.showtraceback()
