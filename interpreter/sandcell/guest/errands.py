"""Errands of one front: lines of cells that the kernel process on the host does, which is connected, or comes back, or not."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandcell_kernel.answers import Problem

__all__ = ["Errands"]


class Errands:
    """See the module. One is done at a time, as cells are. A kernel process that is away for `away_s` has gone."""

    def __init__(self, *, away_s: float = 60.0) -> None:
        self._away_s = away_s
        self._hosts = 0
        self._has_host = False
        self._asked: tuple[int, asyncio.Future[Problem | None]] | None = None
        self._patience: asyncio.TimerHandle | None = None

    @property
    def has_host(self) -> bool:
        """Whether there is a kernel process that does them; one that lost its connection counts for a while."""
        return self._has_host

    @contextmanager
    def hosted(self) -> Generator[None]:
        """A kernel process that does errands is connected inside the block."""
        self._hosts += 1
        self._has_host = True
        self._stop_waiting()
        try:
            yield
        finally:
            self._hosts -= 1
            if self._hosts == 0:
                self._patience = asyncio.get_running_loop().call_later(self._away_s, self._miss)

    async def run(self, number: int, begin: Callable[[], None]) -> Problem | None:
        """Ask for line `number` by `begin`, and return what was wrong, None where it is done.

        Raises:
            Gone (LOST): the kernel process has gone.
        """
        answer: asyncio.Future[Problem | None] = asyncio.get_running_loop().create_future()
        self._asked = number, answer
        begin()
        try:
            return await answer
        finally:
            self._asked = None

    def end(self, number: int, problem: Problem | None) -> None:
        """Take how one went; nothing where it is not waited for any more."""
        if self._asked is not None and self._asked[0] == number and not self._asked[1].done():
            self._asked[1].set_result(problem)

    def close(self) -> None:
        """Wait for nobody any more."""
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _miss(self) -> None:
        self._has_host = False
        if self._asked is not None and not self._asked[1].done():
            hint = "run the cell again when the kernel is back"
            self._asked[1].set_exception(
                error(ErrorCode.LOST, "the kernel process that was to do it has gone", hint=hint)
            )
