"""What an Arrow IPC stream says of its own size, read before a library unpacks it. Pure.

Source: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format, and Message.fbs beside it; of a
flatbuffer no more is read here than a few fields of a table.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["BadStream", "is_compressed"]

_CONTINUATION = b"\xff\xff\xff\xff"
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of a Message
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # kinds of its header
_DATA = 1  # of a DictionaryBatch: its RecordBatch
_COMPRESSION = 3  # of a RecordBatch


class BadStream(ValueError):
    """The bytes are no Arrow IPC stream."""


def is_compressed(stream: bytes) -> bool:
    """Whether a batch of `stream` is compressed, and so may be any number of times larger than it looks.

    Raises:
        BadStream: it is none.
    """
    try:
        return any(_is_compressed_batch(message) for message in _messages(memoryview(stream)))
    except (struct.error, IndexError) as problem:
        raise BadStream(f"a message is cut short: {problem}") from problem


def _messages(stream: memoryview) -> Generator[_Table]:
    """Yield the metadata of each message, up to the end that the stream itself names."""
    at = 0
    while at < len(stream):
        if bytes(stream[at : at + 4]) == _CONTINUATION:  # older writers leave it out
            at += 4
        (size,) = struct.unpack_from("<i", stream, at)
        if size == 0:
            return
        if size < 0:
            raise BadStream(f"a message of {size} bytes")
        at += 4
        message = _Table.root_of(stream[at : at + size])
        yield message
        length = message.number(_BODY_LENGTH, "<q")
        if length < 0:
            raise BadStream(f"a body of {length} bytes")
        at += size + length


def _is_compressed_batch(message: _Table) -> bool:
    kind = message.number(_HEADER_TYPE, "<B")
    header = message.table(_HEADER)
    if kind == _DICTIONARY_BATCH and header is not None:
        header = header.table(_DATA)
    elif kind != _RECORD_BATCH:
        return False
    return header is not None and header.table(_COMPRESSION) is not None


class _Table:
    """A table of a flatbuffer: its fields by their number, each of which may be left out."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]
        (self._vtable_size,) = struct.unpack_from("<H", data, self._vtable)

    @classmethod
    def root_of(cls, data: memoryview) -> _Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def number(self, field: int, form: str) -> int:
        at = self._place_of(field)
        return int(struct.unpack_from(form, self._data, at)[0]) if at else 0

    def table(self, field: int) -> _Table | None:
        at = self._place_of(field)
        return _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0]) if at else None

    def _place_of(self, field: int) -> int:
        slot = 4 + 2 * field
        if slot + 2 > self._vtable_size:
            return 0
        offset = int(struct.unpack_from("<H", self._data, self._vtable + slot)[0])
        return self._at + offset if offset else 0
