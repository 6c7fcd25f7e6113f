# Made from ../aio/watch.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Changes of files as they come."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from sandcell.client.blocking.follow import Follower
from sandcell.client.file_changes import change_of
from sandcell.client.protocol import Cut
from sandcell.client.turns import deadline_of, is_past, turn_of
from sandcell_container.frames import Cursor, FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from sandcell.client.blocking.transport import Transport
    from sandcell.client.file_changes import FileChange
    from sandcell.client.protocol import Request

__all__ = ["Watch"]


class Watch:
    """A watch of files. Iterating yields changes as they come, `read` returns those that there are; both go on where the last
    one has ended. `end` is why no more come, "deleted" or "moved", once that was heard.

    What nobody asks for is kept, up to 1 MiB, for a minute; then the watch ends, and asking again is LOST.
    """

    def __init__(self, transport: Transport, request: Request) -> None:
        self.cursor: str | None = None
        """Behind the last change that was handed out."""
        self.end: str | None = None
        self._transport = transport
        self._request = request

    def start(self) -> Self:
        """Return when all is watched: what changes from now on is told. Raises as `Files.watch`."""
        self._fetch(0.0)
        return self

    def read(self, timeout: float | None = None) -> list[FileChange]:
        """Return the changes behind the last ones, as soon as there are some; none after `timeout` seconds (0: at once), or
        when no more come.

        Raises:
            Gone (LOST): nobody has asked for more than a minute, or the sandbox was stopped meanwhile.
        """
        deadline = deadline_of(timeout) if timeout else None
        while self.end is None:
            found = self._fetch(0.0 if timeout == 0 else turn_of(deadline))
            if found or timeout == 0 or is_past(deadline):
                return found
        return []

    def __iter__(self) -> Iterator[FileChange]:
        return self.follow()

    def follow(self) -> Generator[FileChange]:
        """Yield changes as they come, until what is watched has gone. Raises as `read`."""
        request = self._from_here()
        with closing(Follower(self._transport, request, self._request).entries()) as entries:
            for entry, place in entries:
                if entry.kind == Kind.ENDED:
                    self.end = json.loads(entry.data)["why"]
                change = change_of(entry, place.epoch)
                self.cursor = str(place)
                if change is not None:
                    yield change

    def _fetch(self, wait: float) -> list[FileChange]:
        """Return what there is behind the cursor, after at most `wait` seconds."""
        here = self._from_here()
        asked = {**here.query, "follow": "false", "wait": f"{wait:.3f}"}
        answer = self._transport.open(
            replace(here, query=asked, patience=wait + self._transport.reply_timeout)
        )
        try:
            entries = list(FrameDecoder().feed(answer.read_all()))
        except Cut as cut:
            raise self._transport.missed(str(cut), admitted=True) from cut
        finally:
            answer.close()
        epoch, found = answer.head.headers["sandcell-epoch"], list["FileChange"]()
        for entry in entries:
            if entry.kind == Kind.ENDED:
                self.end = json.loads(entry.data)["why"]
            change = change_of(entry, epoch)
            self.cursor = str(Cursor(epoch, entry.seq, entry.offset))
            if change is not None:
                found.append(change)
        return found

    def _from_here(self) -> Request:
        if self.cursor is None:
            return self._request
        return replace(self._request, query={**self._request.query, "cursor": self.cursor}, wakes=False)
