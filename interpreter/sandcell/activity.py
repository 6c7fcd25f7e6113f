"""What user code is run in the sandbox, by whom: told to whoever watches as it begins, and the last of it kept.

For a person beside an agent, who wants to see what it does. Code and output are never logged, only shown to those who may
use the sandbox anyway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sandcell_container.journal import Journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator


__all__ = ["SDK", "Activity", "Deed", "Watch"]

SDK = "sdk"  # who does what comes by a client that names nobody

_KEPT = 200
_LONGEST_CODE = 2**14  # characters that are kept of each
_MOST_UNSEEN = 1000

Kind = Literal["run", "command", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something that was begun. `where` is the context or the session it runs in, "" where it needs none; `language` is
    "bash" for commands. `at` in seconds since the epoch. Its journal tells how it goes on, until its room drops it."""

    kind: Kind
    id: str
    who: str
    where: str
    language: str
    code: str
    at: float
    journal: Journal


class Watch:
    """What has begun since somebody began to watch. `missed` counts what came faster than it was taken."""

    def __init__(self) -> None:
        self.missed = 0
        self._unseen: deque[Deed] = deque()
        self._news = asyncio.Event()

    def take(self, deed: Deed) -> None:
        if len(self._unseen) >= _MOST_UNSEEN:
            self.missed += 1
            return
        self._unseen.append(deed)
        self._news.set()

    async def deeds(self) -> AsyncIterator[Deed]:
        """Yield deeds as they begin, for ever."""
        while True:
            while self._unseen:
                yield self._unseen.popleft()
            self._news.clear()
            await self._news.wait()


class Activity:
    """See the module; rooms call it with what they begin."""

    def __init__(self) -> None:
        self._recent: deque[Deed] = deque(maxlen=_KEPT)
        self._watches: set[Watch] = set()

    def __call__(self, deed: Deed) -> None:
        if len(deed.code) > _LONGEST_CODE:
            left_out = len(deed.code) - _LONGEST_CODE
            code = f"{deed.code[:_LONGEST_CODE]}\n# ... {left_out} more characters"
            deed = replace(deed, code=code)
        self._recent.append(deed)
        for watch in self._watches:
            watch.take(deed)

    def recent(self) -> list[Deed]:
        """Return the last deeds, the oldest first."""
        return list(self._recent)

    @contextmanager
    def watch(self) -> Generator[Watch]:
        """Yield what begins from now on, for as long as the block lasts."""
        watch = Watch()
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
