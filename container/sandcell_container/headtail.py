"""What is kept of a long output: its beginning and its end. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import takewhile

__all__ = ["Cut", "HeadTail"]

_SHARE = (
    0.45  # of the bound, for the head and for the tail of what is cut; the rest is slack for cutting at lines
)
_SLACK = 4  # a line is not split if that costs at most one part in this many of head or tail
_BLOCK = (
    2**12
)  # small pieces are joined up to this size, so a byte a piece costs no more memory than its size


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
    """Takes a stream of bytes and keeps at most `bound` of them: all while they fit, else head and tail."""

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"bound={bound} has to be above zero")
        self.bound = bound
        self._part = int(bound * _SHARE)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._lines = 0
        self.total = 0

    @property
    def is_cut(self) -> bool:
        """Whether more came than is kept."""
        return self.total > self.bound

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.total += len(chunk)
        self._lines += chunk.count(b"\n")
        room = self._part - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._keep(chunk)

    def held(self) -> bytes:
        """Return all that is kept, head and tail together; while nothing is cut that is all that came."""
        return bytes(self._head) + b"".join(self._tail)

    def finish(self) -> Cut:
        """Return what is left: cut at ends of lines where one is near, else between UTF-8 code points."""
        tail = b"".join(self._tail)
        if not self.is_cut:
            return Cut(
                head=bytes(self._head) + tail, tail=b"", gap_bytes=0, gap_lines=0, total_bytes=self.total
            )
        head = _end_well(bytes(self._head))
        tail = _begin_well(tail[max(len(tail) - self._part, 0) :])
        return Cut(
            head=head,
            tail=tail,
            gap_bytes=self.total - len(head) - len(tail),
            gap_lines=self._lines - head.count(b"\n") - tail.count(b"\n"),
            total_bytes=self.total,
        )

    def _keep(self, chunk: bytes) -> None:
        room = self.bound - self._part
        if len(chunk) >= room:
            self._tail.clear()
            self._tail_size = 0
            chunk = chunk[-room:]
        if self._tail and len(self._tail[-1]) + len(chunk) <= _BLOCK:
            self._tail[-1] += chunk
        else:
            self._tail.append(chunk)
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0]) >= room:
            self._tail_size -= len(self._tail.popleft())


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
