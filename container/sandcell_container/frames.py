"""Entries of a journal as frames of bytes, both ways: what travels in `application/vnd.sandcell.journal`.

Pure, and free of asyncio: the blocking client reads frames without a loop. Source: docs/protocol.md.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandcell_container.errors import SandcellError

__all__ = [
    "FRAME_HEAD",
    "LATE",
    "Cursor",
    "Entry",
    "FrameDecoder",
    "Kind",
    "encode_entry",
    "encode_head",
    "stale",
]

LATE = 1  # flag: came after the end of the run that caused it


class Kind(IntEnum):
    """What an entry is; the number travels in the frame. Payloads: docs/protocol.md."""

    GAP = 0
    STARTED = 1
    STDOUT = 2
    STDERR = 3
    RESULT_ADDED = 4
    RESULT_UPDATED = 5
    OUTPUT_CLEARED = 6
    INPUT_REQUESTED = 7
    ERROR_RAISED = 8
    TOOL_CALLED = 9
    TRUNCATED = 10
    ENDED = 11
    STATUS = 12
    MESSAGE = 13
    ERROR = 14
    CHANGED = 15


_NUMBER = re.compile(r"\d{1,20}", re.ASCII)  # what a frame can hold


class Cursor(NamedTuple):
    """A place between two entries: `seq` entries and `offset` payload bytes lie before it."""

    epoch: str
    seq: int
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}.{self.offset}"

    @classmethod
    def parse(cls, text: str, *, epoch: str) -> Cursor:
        """Read a cursor that a client sends back.

        Raises:
            InvalidRequest (STALE_CURSOR): it is malformed, or of another epoch than `epoch`.
        """
        head, _, tail = text.rpartition(".")
        given, _, seq = head.rpartition(".")
        if given != epoch or _NUMBER.fullmatch(seq) is None or _NUMBER.fullmatch(tail) is None:
            raise stale(text, epoch)
        return cls(epoch, int(seq), int(tail))


def stale(cursor: str, epoch: str) -> SandcellError:
    """Return the error of a cursor that means nothing to a journal of `epoch`."""
    return error(
        ErrorCode.STALE_CURSOR,
        f"the cursor {cursor[:80]!r} is not of this guest",
        hint="read again from the start, without a cursor",
        details={"epoch": epoch},
    )


class Entry(NamedTuple):
    """One entry. `seq` counts from 1, `offset` is the count of payload bytes up to and with this entry,
    `time` is in seconds since the epoch (UTC)."""

    seq: int
    offset: int
    kind: int
    flags: int
    time: float
    data: bytes


# length of data, kind, flags, 2 bytes unused, seq, offset, time: 32 bytes, big endian
FRAME_HEAD = struct.Struct("!IBBxxQQd")


def encode_entry(entry: Entry) -> bytes:
    """Return the binary frame of one entry: a 32-byte head and the data."""
    return encode_head(entry) + entry.data


def encode_head(entry: Entry) -> bytes:
    """Return what stands in front of its data, for who would rather not copy that."""
    return FRAME_HEAD.pack(len(entry.data), entry.kind, entry.flags, entry.seq, entry.offset, entry.time)


class FrameDecoder:
    """Bytes in, entries out: the reading side of `encode_entry`, whatever the chunks are.

    Data is copied once, when a frame is whole: until then the chunks that hold it are kept.
    """

    def __init__(self, *, max_frame: int = 256 * 2**20) -> None:
        self._max = max_frame
        self._pieces = list[memoryview]()  # of the head of an unfinished frame, then of its data
        self._held = 0
        self._head = _NO_HEAD

    def feed(self, chunk: bytes) -> Iterator[Entry]:
        """Take one chunk and return the entries that are now whole.

        Raises:
            InternalError: a frame claims more than `max_frame` bytes.
        """
        view, at = memoryview(chunk), 0
        while at < len(view):
            entry = self._whole(view, at) if not self._held else None
            if entry is None:
                piece = view[at : at + self.missing]
                at += len(piece)
                entry = self._hold(piece)
            else:
                at += FRAME_HEAD.size + len(entry.data)
            if entry is not None:
                yield entry

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return self._held

    @property
    def missing(self) -> int:
        """How many bytes of the next frame are still to come, as far as is known: of its head, or of all of it."""
        if self._held < FRAME_HEAD.size:
            return FRAME_HEAD.size - self._held
        return FRAME_HEAD.size + self._head[0] - self._held

    def _whole(self, view: memoryview, at: int) -> Entry | None:
        """Return the frame at `at`, None where it is not all there."""
        if len(view) - at < FRAME_HEAD.size:
            return None
        head = self._check(FRAME_HEAD.unpack_from(view, at))
        end = at + FRAME_HEAD.size + head[0]
        return None if len(view) < end else _entry(head, bytes(view[at + FRAME_HEAD.size : end]))

    def _hold(self, piece: memoryview) -> Entry | None:
        """Keep a piece of a frame, at most what is missing of it; return the frame when it is whole."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held == FRAME_HEAD.size:
            self._head = self._check(FRAME_HEAD.unpack(b"".join(self._pieces)))
            self._pieces.clear()
        if self.missing:
            return None
        entry = _entry(self._head, b"".join(self._pieces))
        self._pieces.clear()
        self._held = 0
        return entry

    def _check(self, head: _Head) -> _Head:
        if head[0] > self._max:
            raise error(ErrorCode.INTERNAL, f"a journal frame claims {head[0]} bytes")
        return head


_Head = tuple[int, int, int, int, int, float]
_NO_HEAD: _Head = (0, 0, 0, 0, 0, 0.0)


def _entry(head: _Head, data: bytes) -> Entry:
    _, kind, flags, seq, offset, moment = head
    return Entry(seq, offset, kind, flags, moment, data)
