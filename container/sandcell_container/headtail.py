"""What is kept of a long output: its beginning and its end. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cut", "HeadTail"]

_SHARE = (
    0.45  # of the bound, for the head and for the tail of what is cut; the rest is slack for cutting at lines
)
_SLACK = 4  # a line is not split if that costs at most one part in this many of head or tail
_BLOCK = (
    2**12
)  # small pieces are joined up to this size, so a byte a piece costs no more memory than its size


_PIECE = 2**16  # at least so many bytes are given out at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What is left of a stream. Uncut, `head` is all of it and `tail` is empty.

    `gap_bytes` and `gap_lines` (ends of lines) are missing between the two; `total_bytes` came in all.
    """

    head: bytes
    tail: bytes
    gap_bytes: int
    gap_lines: int
    total_bytes: int

    @property
    def is_cut(self) -> bool:
        return self.gap_bytes > 0


class HeadTail:
    """Takes a stream of bytes and keeps at most `bound` of them: all while they fit, else head and tail.

    Pieces are kept as they come, and looked at only where they are dropped: most outputs are small, or wanted whole.
    """

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"bound={bound} has to be above zero")
        self.bound = bound
        self.total = 0
        self._part = int(bound * _SHARE)
        self._head: deque[bytes] = deque()
        self._head_size = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped_lines = 0

    @property
    def is_cut(self) -> bool:
        """Whether more came than is kept."""
        return self.total > self.bound

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.total += len(chunk)
        room = self._part - self._head_size
        if room > 0:
            _add(self._head, chunk[:room])
            self._head_size += min(room, len(chunk))
            chunk = chunk[room:]
        if chunk:
            self._keep(chunk)

    def pieces(self) -> Iterator[bytes]:
        """Yield all that came, while nothing is cut, in pieces of some size."""
        group, size = list[bytes](), 0
        for piece in (*self._head, *self._tail):
            group.append(piece)
            size += len(piece)
            if size >= _PIECE:
                yield b"".join(group)
                group, size = [], 0
        if group:
            yield b"".join(group)

    def finish(self) -> Cut:
        """Return what is left: cut at ends of lines where one is near, else between UTF-8 code points."""
        if not self.is_cut:
            whole = b"".join((*self._head, *self._tail))
            return Cut(head=whole, tail=b"", gap_bytes=0, gap_lines=0, total_bytes=self.total)
        kept_head, kept_tail = b"".join(self._head), b"".join(self._tail)
        head = _end_well(kept_head)
        tail = _begin_well(kept_tail[max(len(kept_tail) - self._part, 0) :])
        return Cut(
            head=head,
            tail=tail,
            gap_bytes=self.total - len(head) - len(tail),
            gap_lines=self._dropped_lines + _lines(kept_head, kept_tail) - _lines(head, tail),
            total_bytes=self.total,
        )

    def _keep(self, chunk: bytes) -> None:
        room = self.bound - self._part
        if len(chunk) > room:
            self._dropped_lines += chunk.count(b"\n", 0, len(chunk) - room)
            chunk = chunk[-room:]
        _add(self._tail, chunk)
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0]) >= room:
            dropped = self._tail.popleft()
            self._tail_size -= len(dropped)
            self._dropped_lines += dropped.count(b"\n")


def _add(pieces: deque[bytes], chunk: bytes) -> None:
    if pieces and len(pieces[-1]) + len(chunk) <= _BLOCK:
        pieces[-1] += chunk
    else:
        pieces.append(chunk)


def _lines(*parts: bytes) -> int:
    return sum(part.count(b"\n") for part in parts)


def _end_well(head: bytes) -> bytes:
    """Return `head` without a torn last line, or without a torn last character where that line is long."""
    line = head.rfind(b"\n") + 1
    if line and line >= len(head) - len(head) // _SLACK:
        return head[:line]
    at = len(head)
    while at > max(len(head) - 3, 0) and head[at - 1] & 0xC0 == 0x80:
        at -= 1
    lead = head[at - 1] if at else 0
    wanted = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
    return head if len(head) - at + 1 >= wanted else head[: at - 1]


def _begin_well(tail: bytes) -> bytes:
    """Return `tail` without the rest of a torn line, or of a torn character where that rest is long."""
    line = tail.find(b"\n") + 1
    if line and line <= len(tail) // _SLACK:
        return tail[line:]
    torn = sum(1 for _ in takewhile(lambda byte: byte & 0xC0 == 0x80, tail[:3]))
    return tail[torn:]
