"""Turns by name: who asks for the same waits, who asks for another does not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["Turns"]


class Turns:
    """One lock for each name that is just in use."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, name: str) -> AsyncGenerator[None]:
        """Inside the block nobody else has the turn of `name`."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            yield
