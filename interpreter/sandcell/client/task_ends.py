"""The end of tasks that run code of the caller's, which need not heed that it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["end_tasks"]

_GRACE_S = 2.0  # for what a tool has to put in order when it is cancelled
_log = logging.getLogger(__name__)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end; those that go on after a grace of two seconds are left, which the log tells."""
    asked = [*tasks]
    for task in asked:
        task.cancel()
    if asked:
        _, going_on = await asyncio.wait(asked, timeout=_GRACE_S)
        for task in going_on:
            _log.warning(
                "a host tool was cancelled %g s ago, goes on, and is left: %r", _GRACE_S, task.get_coro()
            )
