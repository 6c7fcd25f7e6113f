"""A body on its way from the connection to its reader, a piece at a time: nothing piles up between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ChunkPipe"]


class ChunkPipe:
    """One writer, one reader. The writer waits until the reader took its piece."""

    def __init__(self) -> None:
        self._piece: bytes | None = None
        self._ended = False
        self._problem: BaseException | None = None
        self._change: asyncio.Future[None] | None = None

    async def send(self, piece: bytes) -> None:
        """Hand over one piece; returns at once when it has ended, because nobody reads any more."""
        while self._piece is not None and not self._ended:
            await self._changed()
        if not self._ended:
            self._piece = piece
            self._wake()

    def end(self, problem: BaseException | None = None) -> None:
        """Say that no more comes, or with `problem` that the rest is lost. Only the first time counts."""
        if not self._ended:
            self._ended, self._problem = True, problem
            self._wake()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the pieces until the end; raises `problem` where the rest is lost."""
        while True:
            if self._piece is not None:
                piece, self._piece = self._piece, None
                self._wake()
                yield piece
            elif self._ended:
                break
            else:
                await self._changed()
        if self._problem is not None:
            raise self._problem

    async def _changed(self) -> None:
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._change)  # both sides may wait for it, and one of them be cancelled

    def _wake(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
        self._change = None
