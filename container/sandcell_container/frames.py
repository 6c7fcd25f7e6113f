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

__all__ = ["FRAME_HEAD", "LATE", "Cursor", "Entry", "FrameDecoder", "Kind", "encode_entry", "stale"]

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
    return (
        FRAME_HEAD.pack(len(entry.data), entry.kind, entry.flags, entry.seq, entry.offset, entry.time)
        + entry.data
    )


class FrameDecoder:
    """Bytes in, entries out: the reading side of `encode_entry`, whatever the chunks are."""

    def __init__(self, *, max_frame: int = 256 * 2**20) -> None:
        self._buffer = bytearray()
        self._max = max_frame

    def feed(self, chunk: bytes) -> Iterator[Entry]:
        """Take one chunk and return the entries that are now whole.

        Raises:
            InternalError: a frame claims more than `max_frame` bytes.
        """
        self._buffer += chunk
        at = 0
        while len(self._buffer) - at >= FRAME_HEAD.size:
            length, kind, flags, seq, offset, moment = FRAME_HEAD.unpack_from(self._buffer, at)
            if length > self._max:
                raise error(ErrorCode.INTERNAL, f"a journal frame claims {length} bytes")
            end = at + FRAME_HEAD.size + length
            if len(self._buffer) < end:
                break
            data = bytes(self._buffer[at + FRAME_HEAD.size : end])
            at = end
            yield Entry(seq, offset, kind, flags, moment, data)
        if at:
            del self._buffer[:at]

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._buffer)
