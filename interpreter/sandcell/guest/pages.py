"""A page of a journal: so much of it as fits into one answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.frames import Cursor, Entry, Kind

if TYPE_CHECKING:
    from sandcell_container.journal import Journal

__all__ = ["JournalPage", "PageQuery", "read_page"]

PAGE_BYTES = 2**20
"""What one page holds at most, and an entry more: user code must not choose the memory of who reads."""

_MOST_LOOKED_AT = 16 * 2**20  # for a page of one stream while the other one floods
_STREAMS = {Kind.STDOUT, Kind.STDERR}


class PageQuery(NamedTuple):
    """What is asked for: output of `stream` (None: both), at most `limit` pieces of it, or the last `tail` lines."""

    after: Cursor | None = None
    stream: Kind | None = None
    limit: int | None = None
    tail: int | None = None

    def wants(self, entry: Entry) -> bool:
        return entry.kind not in _STREAMS or self.stream in {None, entry.kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPage:
    """Entries in order; `cursor` is behind all that was looked at, and `is_done` says that nothing comes after it.

    `is_truncated`: something in front of the page or in it is missing.
    """

    entries: list[Entry]
    cursor: Cursor
    is_done: bool
    is_truncated: bool


def read_page(journal: Journal, query: PageQuery) -> JournalPage:
    """Return the page that is asked for, of what the journal holds now."""
    if query.tail is not None:
        return _last_page(journal, query, query.tail)
    found, at = _next_entries(journal, query)
    is_truncated = any(each.kind == Kind.GAP for each in found)
    return JournalPage(entries=found, cursor=at, is_done=_is_done(journal, at), is_truncated=is_truncated)


def _next_entries(journal: Journal, query: PageQuery) -> tuple[list[Entry], Cursor]:
    found, at = list[Entry](), query.after or journal.start
    begin, size, pieces = at.offset, 0, 0
    while (batch := journal.read(at)) and at.offset - begin < _MOST_LOOKED_AT:
        for entry in batch:
            if query.wants(entry):
                is_output = entry.kind in _STREAMS
                if is_output and (pieces == query.limit or (size and size + len(entry.data) > PAGE_BYTES)):
                    return found, at
                found.append(entry)
                pieces += is_output
                size += len(entry.data)
            at = Cursor(journal.epoch, entry.seq, entry.offset)
    return found, at


def _last_page(journal: Journal, query: PageQuery, lines: int) -> JournalPage:
    entries = [each for each in journal.last(PAGE_BYTES) if query.wants(each)]
    found = _last_lines(entries, lines)
    return JournalPage(
        entries=found,
        cursor=journal.cursor,
        is_done=journal.ended,
        is_truncated=not found or found[0].seq > 1,
    )


def _last_lines(entries: list[Entry], lines: int) -> list[Entry]:
    """Return `entries` from where the last `lines` lines begin; the first one is cut to begin there."""
    left, is_last = lines, True
    for place in range(len(entries) - 1, -1, -1):
        entry = entries[place]
        if entry.kind not in _STREAMS or not entry.data:
            continue
        if is_last and entry.data.endswith(b"\n"):
            left += 1  # the end of a line and not the beginning of another
        is_last = False
        count = entry.data.count(b"\n")
        if count >= left:
            rest = _after_newline(entry.data, left)
            return [entry._replace(data=rest), *entries[place + 1 :]] if rest else entries[place + 1 :]
        left -= count
    return entries


def _after_newline(data: bytes, number: int) -> bytes:
    """Return what is behind the newline that is the `number`th from the end."""
    at = len(data)
    for _ in range(number):
        at = data.rindex(b"\n", 0, at)
    return data[at + 1 :]


def _is_done(journal: Journal, at: Cursor) -> bool:
    return journal.ended and at.seq == journal.cursor.seq
