"""What a process has written, as its callers read it: events with text, pages of them, and what was looked for. Pure."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandcell.events import Event, Gap, Stderr, Stdout, event_of
from sandcell.lines import LastLines, Line, Lines
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor, Entry, Kind

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

__all__ = ["LogDecoder", "LogMatch", "LogSearch", "Page", "text_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of what a process has written. `next_cursor` is where the next page begins; `done`: nothing comes after
    this one. `truncated`: something before or in it is not there; a Gap among the events says how much, but where only
    the last lines were asked for."""

    events: list[Event]
    next_cursor: str
    done: bool
    truncated: bool

    @property
    def text(self) -> str:
        """The output in it, of both streams in the order in which it came."""
        return text_of(self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMatch:
    """What a pattern has found: `text` in the `line` of a `stream`, the groups of the pattern by number and by name, and
    the `cursor` behind the piece of output that held it."""

    text: str
    line: str
    stream: str
    cursor: str
    groups: tuple[str | None, ...] = ()
    named: dict[str, str | None] = field(default_factory=dict[str, str | None])


def text_of(events: Iterable[Event]) -> str:
    """Return the output in `events`; a line says where some is missing."""
    found = list[str]()
    for event in events:
        if isinstance(event, Stdout | Stderr):
            found.append(event.text)
        elif isinstance(event, Gap):
            begin = "" if not found or found[-1].endswith("\n") else "\n"
            found.append(f"{begin}[... {event.bytes} bytes are no longer kept ...]\n")
    return "".join(found)


_EVENTS: dict[int, type[Stdout | Stderr]] = {Kind.STDOUT: Stdout, Kind.STDERR: Stderr}
_BREAKS = {Kind.ENDED, Kind.GAP}  # what is begun in front of one is never finished


class LogDecoder:
    """Makes events of the entries of a process, in order.

    A process writes bytes, and an entry may end inside a character: that belongs to the next event of its stream. The
    cursor of an event holds what is begun, so who goes on from it reads the same characters.
    """

    def __init__(self, cursor: str | None = None) -> None:
        """`cursor` is that of an event or a page, or None for the beginning; `start` is what the guest knows of it."""
        plain, _, held = (cursor or "").partition("~")
        self.start = plain or None
        self._place = plain
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in _EVENTS}
        for decoder, text in zip(self._decoders.values(), held.split("-") if held else (), strict=False):
            decoder.decode(_bytes_of(text, held))

    def events(self, entry: Entry, epoch: str) -> Iterator[Event]:
        """Yield the events of an entry: none where it only begins a character, two where one in front is torn."""
        if entry.kind in _BREAKS:
            yield from self._torn(entry.time)
        self._place = str(Cursor(epoch, entry.seq, entry.offset))
        kind = _EVENTS.get(entry.kind)
        if kind is not None:
            text = self._decoders[entry.kind].decode(entry.data)
            if text:
                yield kind(text=text, cursor=self.cursor(self._place), time=entry.time)
        elif (event := event_of(entry, epoch)) is not None:
            yield event

    def cursor(self, place: str) -> str:
        """Return the cursor of a place in the journal that is behind what came, with the characters that are begun there."""
        held = [decoder.getstate()[0].hex() for decoder in self._decoders.values()]
        return f"{place}~{'-'.join(held)}" if any(held) else place

    def _torn(self, moment: float) -> Iterator[Event]:
        for number, kind in _EVENTS.items():
            text = self._decoders[number].decode(b"", final=True)
            if text:
                yield kind(text=text, cursor=self._place, time=moment)


def _bytes_of(text: str, held: str) -> bytes:
    try:
        return bytes.fromhex(text)[:3]
    except ValueError:
        raise error(
            ErrorCode.STALE_CURSOR,
            f"a cursor ends with {held[:80]!r}",
            hint="take that of an event, or a page's next_cursor",
        ) from None


class LogSearch:
    """Looks for a pattern in the lines of a process as they come.

    A match is `sure` in a whole line, and in an unfinished one where text follows it. One that reaches to the end of
    what is there may go on: `maybe` holds it, until more of the line comes or the caller has waited long enough.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.maybe: LogMatch | None = None
        self.pattern = pattern
        self._lines = Lines()
        self._last = LastLines()

    def add(self, entry: Entry, epoch: str) -> LogMatch | None:
        """Take the next entry; returns a match that is sure."""
        place = str(Cursor(epoch, entry.seq, entry.offset))
        for line in self._lines.add(entry):
            self._last.add(line)
            if self.maybe is not None and self.maybe.stream == line.stream:
                self.maybe = None
            found = self.pattern.search(line.text)
            if found is None:
                continue
            match = _match_of(found, line, place)
            if line.is_whole or found.end() < len(line.text):
                return match
            self.maybe = match
        return None

    @property
    def last_lines(self) -> list[str]:
        """The last lines that came."""
        return self._last.lines()


def _match_of(found: re.Match[str], line: Line, cursor: str) -> LogMatch:
    return LogMatch(
        text=found[0],
        line=line.text,
        stream=line.stream,
        cursor=cursor,
        groups=found.groups(),
        named=found.groupdict(),
    )
