"""Work that outlives the request that began it, owned by the guest's group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Detached"]

T = TypeVar("T")


class Detached(Generic[T]):
    """One piece of work. What it raises is its outcome, for who waits, and does not end the group."""

    def __init__(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, T]) -> None:
        self._outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._outcome.add_done_callback(_look_at)
        self._task = group.create_task(self._run(work))

    @property
    def is_done(self) -> bool:
        return self._outcome.done()

    async def wait(self) -> T:
        """Return its outcome, or raise it. Cancelling leaves the work alone."""
        return await asyncio.shield(self._outcome)

    def cancel(self) -> None:
        self._task.cancel()

    async def _run(self, work: Coroutine[Any, Any, T]) -> None:
        try:
            outcome = await work
        except asyncio.CancelledError:
            self._outcome.cancel()
            raise
        except Exception as problem:  # noqa: BLE001 -- handed on to who waits
            self._outcome.set_exception(problem)
        else:
            self._outcome.set_result(outcome)


def _look_at(outcome: asyncio.Future[Any]) -> None:
    """Nobody may be left to ask; asyncio would call that an exception never retrieved."""
    if not outcome.cancelled():
        outcome.exception()
