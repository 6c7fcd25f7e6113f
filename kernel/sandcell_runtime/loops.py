"""`asyncio.run` in a cell, although the kernel's own loop runs in the same thread.

A cell runs inside the kernel's loop, so that `await` at its top level and tasks that outlive it work. Python refuses
to start a second loop inside; but a cell that calls `asyncio.run` blocks the kernel's loop anyway, so nothing is
lost when that loop steps aside for so long.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["allow_nested_runs"]


def allow_nested_runs() -> None:
    """Make `asyncio.run` and `asyncio.Runner` of this process work in threads whose loop runs already."""
    asyncio.run = asyncio.runners.run = _beside(asyncio.run)
    for name in ("run", "close"):
        setattr(asyncio.Runner, name, _beside(getattr(asyncio.Runner, name)))


def _beside(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = 1  # IPython leaves this frame out of a traceback
        with _stepped_aside():
            return function(*args, **kwargs)

    return run


@contextmanager
def _stepped_aside() -> Generator[None]:
    """Be, as far as asyncio can tell, in a thread without a running loop and without a running task."""
    loop = asyncio._get_running_loop()
    if loop is None:
        yield
        return
    task = asyncio.current_task(loop)
    if task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        with _plain_interrupts():
            yield
    finally:
        asyncio._set_running_loop(loop)
        asyncio.set_event_loop(loop)
        if task is not None:
            asyncio.tasks._enter_task(loop, task)


@contextmanager
def _plain_interrupts() -> Generator[None]:
    """Have SIGINT as KeyboardInterrupt, which `asyncio.run` turns into a cancellation of what it runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
