"""Output as a terminal would leave it, and output too large to keep: pure text, whatever the pieces are.

Carriage return goes to the start of the line and backspace one column back; what comes then overwrites.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from sandcell_container.end import Truncation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["BoundedText", "Screen", "cut_middle", "strip_ansi", "strip_colours"]

_MOVES = re.compile(r"([\r\b])")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_LINE = 64 * 2**10  # characters of an unfinished line that a carriage return can still reach
_SMALL = 4096
_SHARE = 0.45  # of a bound, for each of head and tail. Source: CONTRACT, Truncation


class BoundedText:
    """Text of at most `limit` characters: the head and the tail of what was written, and a count of the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head: list[str] = []
        self._head_left = int(limit * _SHARE)
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._bytes = 0
        self._lines = 0
        self._dropped = False

    def write(self, text: str) -> None:
        self._bytes += _size(text)
        self._lines += text.count("\n")
        if self._head_left:
            first, text = text[: self._head_left], text[self._head_left :]
            _append(self._head, first)
            self._head_left -= len(first)
        if text:
            _append(self._tail, text)
            self._tail_size += len(text)
            self._trim()

    @property
    def lines(self) -> int:
        """How many lines have ended."""
        return self._lines

    def finish(self) -> tuple[str, Truncation | None]:
        """Return the text, and what was left out of its middle, where a note stands in its place."""
        head, note, tail = self._parts()
        if not note:
            return head, None
        missing, lines = self._missing(head, tail)
        return head + note + tail, Truncation(bytes=missing, lines=lines, total_bytes=self._bytes)

    def offsets(self, marks: Sequence[int]) -> list[int]:
        """Return where in the finished text so many lines have ended, for each of `marks`, which ascend; of lines that were
        left out, behind the note."""
        if not marks:
            return []
        head, note, tail = self._parts()
        in_head = bisect_right(marks, head.count("\n"))
        begun = self._lines - tail.count("\n")
        later = (max(mark - begun, 0) for mark in marks[in_head:])
        before = len(head) + len(note)
        return [*_ends(head, marks[:in_head]), *(before + end for end in _ends(tail, later))]

    def _parts(self) -> tuple[str, str, str]:
        """Return the head, and where something was left out the note and the tail."""
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._dropped:
            return head + tail, "", ""
        head = head[: head.rfind("\n") + 1] or head
        tail = tail[-int(self._limit * _SHARE) :]
        tail = tail[tail.find("\n") + 1 :] or tail
        missing, lines = self._missing(head, tail)
        between = "" if head.endswith("\n") else "\n"
        return head, f"{between}[... {missing} bytes, {lines} lines left out ...]\n", tail

    def _missing(self, head: str, tail: str) -> tuple[int, int]:
        """Return how many bytes and lines were left out between these."""
        kept = head + tail
        return self._bytes - _size(kept), self._lines - kept.count("\n")

    def _trim(self) -> None:
        bound = self._limit - int(self._limit * _SHARE)
        while self._tail_size > bound:
            self._dropped = True
            spare = self._tail_size - bound
            if len(self._tail[0]) <= spare:
                self._tail_size -= len(self._tail.popleft())
            else:
                self._tail[0] = self._tail[0][spare:]
                self._tail_size -= spare


def _ends(text: str, numbers: Iterable[int]) -> Iterator[int]:
    """Yield where so many lines of `text` have ended; `numbers` ascend."""
    at = count = 0
    for number in numbers:
        while count < number:
            found = text.find("\n", at)
            if found < 0:
                at = len(text)
                break
            at, count = found + 1, count + 1
        yield at


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _append(pieces: list[str] | deque[str], text: str) -> None:
    """Append to the last piece while it is small: a million short lines are not a million objects."""
    if pieces and len(pieces[-1]) < _SMALL:
        pieces[-1] += text
    else:
        pieces.append(text)


class _Line:
    """The unfinished line of a screen, and the column where the next text goes."""

    __slots__ = ("_pieces", "column", "size")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0
        self.column = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def put(self, text: str) -> None:
        end = self.column + len(text)
        if self.column == self.size:
            self._pieces.append(text)
            self.size = end
        else:
            line = self.text
            line = line[: self.column] + text + line[end:]
            self._pieces, self.size = [line], len(line)
        self.column = end


class Screen:
    """One stream as it would stand on a terminal after everything was written."""

    def __init__(self, limit: int) -> None:
        self._text = BoundedText(limit)
        self._line = _Line()
        self._is_open = False  # what is written of the line can be reached no more

    @property
    def lines(self) -> int:
        """How many lines there are, the unfinished one included."""
        return self._text.lines + (self._is_open or self._line.size > 0)

    def offsets(self, marks: Sequence[int]) -> list[int]:
        """Return where in what `finish` has returned so many lines end, for each of `marks`, which ascend."""
        return self._text.offsets(marks)

    def write(self, text: str) -> None:
        if "\r" in text or "\b" in text:
            self._write_moves(text)
            return
        first, end, rest = text.partition("\n")
        self._put(first)
        if end:
            self._end_line(end)
            lines, end, last = rest.rpartition("\n")
            self._text.write(lines + end)
            self._put(last)

    def finish(self) -> tuple[str, Truncation | None]:
        self._end_line("")
        return self._text.finish()

    def _write_moves(self, text: str) -> None:
        first, *others = text.split("\n")
        self._write_line(first)
        for other in others:
            self._end_line("\n")
            self._write_line(other)

    def _write_line(self, text: str) -> None:
        for part in _MOVES.split(text):
            if part == "\r":
                self._line.column = 0
            elif part == "\b":
                self._line.column = max(self._line.column - 1, 0)
            else:
                self._line.put(part)
        self._put("")

    def _put(self, text: str) -> None:
        if text:
            self._line.put(text)
        if self._line.size > _MAX_LINE:
            self._end_line("")

    def _end_line(self, end: str) -> None:
        text = self._line.text + end
        if text:
            self._text.write(text)
            self._is_open = not end
        self._line = _Line()


def strip_colours(text: str) -> str:
    """Return `text` without the sequences of colours, as IPython writes them; others stay."""
    return _COLOURS.sub("", text)


def strip_ansi(text: str) -> str:
    """Return `text` without escape sequences of terminals."""
    return _ANSI.sub("", text)


def cut_middle(text: str, limit: int, note: str = "[... {size} characters in all ...]") -> str:
    """Return `text` in at most `limit` characters: its head and tail, cut at lines, and between them `note`, which says the
    `size` that it had."""
    if len(text) <= limit:
        return text
    note = f"\n{note.format(size=len(text))}\n"
    room = limit - len(note)
    if room <= 0:
        return text[:limit]
    head, tail = text[: room // 2], text[len(text) - room // 2 :]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    return head + note + tail
