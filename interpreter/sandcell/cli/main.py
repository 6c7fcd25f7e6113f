"""The console script. What takes time to import is imported when ^C is heeded already: it is never a traceback."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # of `typing`, which would take longer to import than all of this
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["run"]

_INTERRUPTED = 130


def run() -> NoReturn:
    """Be the command: do what the arguments of this process say, and end it with the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it wants none
        signal.signal(signal.SIGINT, _leave)
    from sandcell.cli.signals import end_on_signals
    from sandcell.cli.verbs import main

    _open_closed_streams()
    end_on_signals()
    try:
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


def _leave(_number: int, _frame: object) -> NoReturn:
    """Nothing has been begun, and an exception could be lost in an import."""
    os._exit(_INTERRUPTED)


def _open_closed_streams() -> None:
    """Let nothing else get the numbers of standard input and error where the caller has closed them."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # likewise
