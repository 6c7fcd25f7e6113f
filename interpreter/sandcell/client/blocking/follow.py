# Made from ../aio/follow.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Entries of one journal in order, whatever the connection does meanwhile."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sandcell.client.protocol import Cut, Request, error_of
from sandcell_container.errors import SandcellError
from sandcell_container.frames import Cursor, Entry, FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandcell.client.blocking.answer import Answer
    from sandcell.client.blocking.transport import Transport

__all__ = ["Followed", "Follower", "read_entries"]

_MISSES = 3  # connections in a row that broke without one new entry
_DRAIN_S = 1.0  # the guest ends a stream right behind its ENDED


class Followed(NamedTuple):
    """One entry and the cursor behind it."""

    entry: Entry
    cursor: Cursor


class Follower:
    """Reads a stream of frames until its ENDED, or to what came after it, and goes on from its cursor when it is cut.

    `first` asks for the stream, `again` for the rest of it: its query gets the cursor. Without `again` a cut
    stream is UNREACHABLE. `deadline` (`time.monotonic()`) may be set at any time; nothing by then is
    UNREACHABLE.
    """

    def __init__(self, transport: Transport, first: Request, again: Request | None) -> None:
        self.deadline: float | None = None
        self._transport = transport
        self._first = first
        self._again = None if again is None else replace(again, wakes=False, admitted=True)

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def be_patient(self, seconds: float) -> None:
        """Move a deadline on, where it is sooner than that: the reader was busy, which is no fault of the guest."""
        if self.deadline is not None:
            self.deadline = max(self.deadline, time.monotonic() + seconds)

    def put_off(self, seconds: float) -> None:
        """Move a deadline by so much: what it is for takes longer, or shorter, than was thought."""
        if self.deadline is not None:
            self.deadline += seconds

    def entries(self) -> Generator[Followed]:
        """Yield the entries up to and with ENDED, and what has come late by then.

        Raises:
            SandcellError: the guest said so instead of a stream or in it; SANDBOX_GONE or UNREACHABLE when
                it stopped to say anything.
        """
        request, misses, ended = self._first, 0, False
        while True:
            answer = self._transport.open(request, deadline=self.deadline)
            why = "the stream ended before its end was told"
            try:
                for followed in read_entries(self._transport, answer, lambda: self.deadline):
                    misses = 0
                    request = self._after(followed.cursor)
                    yield followed
                    if followed.entry.kind == Kind.ENDED:
                        ended, self.deadline = True, time.monotonic() + _DRAIN_S
                ended = ended or bool(answer.head.headers.get("sandcell-ended"))
            except Cut as cut:
                why = str(cut)
            except SandcellError:
                if not ended:
                    raise
            finally:
                answer.close()
            if ended:
                return
            misses += 1
            if misses == _MISSES or self._again is None:
                raise self._transport.missed(why, admitted=True)
            if request is self._first:
                request = self._again

    def _after(self, cursor: Cursor) -> Request:
        if self._again is None:
            return self._first
        return replace(self._again, query={**self._again.query, "cursor": str(cursor)})


def read_entries(
    transport: Transport, answer: Answer, deadline: Callable[[], float | None] = lambda: None
) -> Generator[Followed]:
    """Yield the entries of a stream of frames, to the end of the answer.

    Raises:
        Cut: the connection broke before that.
        SandcellError: the guest said so in the stream; UNREACHABLE when nothing came by `deadline`, asked each time.
    """
    decoder = FrameDecoder()
    epoch = answer.head.headers.get("sandcell-epoch", "")
    while chunk := _next_chunk(transport, answer, deadline()):
        for entry in decoder.feed(chunk):
            if entry.kind == Kind.ERROR:
                raise transport.heed(error_of(answer.head.status, entry.data), admitted=True)
            yield Followed(entry, Cursor(epoch, entry.seq, entry.offset))


def _next_chunk(transport: Transport, answer: Answer, deadline: float | None) -> bytes:
    try:
        return answer.read(deadline)
    except TimeoutError as problem:
        raise transport.silent("it stopped answering", admitted=True) from problem
