"""Creates whose client went before it was answered: nobody knows of what was made, so it is taken back."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from sandcell.guest.request import ApiHandler
    from sandcell_container.ids import Prefix

__all__ = ["Births", "id_of"]


def id_of(given: str | None, prefix: Prefix) -> str:
    """Return the id that was given, else a new one."""
    return new_id(prefix) if given is None else given


class Births:
    """Who is just asking for what to be made. A repeated request for the same id is one more asker."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], _Asked] = {}

    @asynccontextmanager
    async def making(
        self,
        handler: ApiHandler,
        thing: tuple[str, str],
        *,
        find: Callable[[str], object],
        take_back: Callable[[str], Awaitable[object]],
    ) -> AsyncGenerator[None]:
        """Inside the block `thing`, a kind and an id, is made for the client of `handler`, or found.

        Where it was not there before, and every client that asked for it has gone by now, it is taken back. `find`
        raises NOT_FOUND for an id that is none.
        """
        asked = self._asked.get(thing)
        if asked is None:
            asked = self._asked[thing] = _Asked(is_new=_is_missing(find, thing[1]))
        asked.count += 1
        try:
            yield
        finally:
            asked.count -= 1
            asked.is_heard |= not handler.client_gone
            if not asked.count:
                del self._asked[thing]
        if asked.is_new and not asked.is_heard and not asked.count and not _is_missing(find, thing[1]):
            await take_back(thing[1])


@dataclass(slots=True)
class _Asked:
    is_new: bool
    count: int = 0
    is_heard: bool = False


def _is_missing(find: Callable[[str], object], thing_id: str) -> bool:
    try:
        find(thing_id)
    except SandcellError as problem:
        return problem.code is ErrorCode.NOT_FOUND
    return False
