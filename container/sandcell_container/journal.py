"""An append-only record of what came out, with cursors: bounded in memory, spilled to disk, followable.

A journal holds entries in order: its head (kept for good where asked), what was spilled to a ring on disk, and
its tail in memory. What falls between head and ring is dropped, and every reader that would have had it gets a
GAP entry that says how much. One loop owns a journal; nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sandcell_container.descriptors import leave_room
from sandcell_container.frames import (
    FRAME_HEAD,
    LATE,
    Cursor,
    Entry,
    FrameDecoder,
    Kind,
    encode_entry,
    encode_head,
    stale,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

__all__ = [
    "LATE",
    "Cursor",
    "Entry",
    "FrameDecoder",
    "Journal",
    "JournalLimits",
    "JournalReader",
    "Kind",
    "encode_entry",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """Bounds in bytes of payload and bookkeeping. `head` of `memory` is kept for good, 0 keeps the newest only;
    `disk` 0 spills nothing. `spill_dir` must be a folder that this process may write with its own rights."""

    memory: int = 2**20
    head: int = 0
    disk: int = 0
    spill_dir: str | None = None


_ENTRY_COST = 160  # what one entry of no data holds in memory, about
_INDEX_STEP = 64 * 2**10
_READ_CHUNK = 256 * 2**10


class _Ring:
    """A bounded file of frames, the oldest overwritten first. The file has no name, so nobody else can open it."""

    def __init__(self, capacity: int, folder: str | None) -> None:
        self._capacity = capacity
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 -- close() gives it back
        try:
            leave_room(self._file.fileno())
        except OSError:
            self._file.close()
            raise
        self._end = 0
        self._step = min(_INDEX_STEP, capacity // 8)
        self._index: deque[tuple[int, int]] = deque()  # (seq, position) every `_step` bytes

    def append(self, entry: Entry) -> None:
        if not self._index or self._end - self._index[-1][1] >= self._step:
            self._index.append((entry.seq, self._end))
        self._write(encode_head(entry), entry.data)
        while self._index and self._index[0][1] < self._end - self._capacity:
            self._index.popleft()

    def read(self, after: int, limit: int) -> list[Entry]:
        """Return entries with `seq > after`, at least one where there is one, about `limit` bytes at most."""
        start = None
        for seq, position in self._index:
            if start is not None and seq > after + 1:
                break
            start = position
        if start is None:
            return []
        decoder, found, size = FrameDecoder(), list[Entry](), 0
        while start < self._end and size < limit:
            wanted = decoder.missing if decoder.pending else _READ_CHUNK
            chunk = self._read(start, min(wanted, self._end - start))
            start += len(chunk)
            for entry in decoder.feed(chunk):
                if found and entry.seq != found[-1].seq + 1:
                    return found  # one between was too large to be spilled
                if entry.seq > after:
                    found.append(entry)
                    size += len(entry.data) + FRAME_HEAD.size
        return found

    def seq_before(self, limit: int) -> int | None:
        """Return the number of the entry behind which `limit` bytes of frames are left, or all that there are.

        None where there is nothing.
        """
        found = None
        for seq, position in reversed(self._index):
            found = seq - 1
            if self._end - position >= limit:
                break
        return found

    @property
    def size(self) -> int:
        return min(self._end, self._capacity)

    def make_room(self, size: int) -> None:
        """Take the disk for the next `size` bytes now, `capacity` at most. Raises OSError where there is not so much."""
        at = self._end % self._capacity
        size = min(size, self._capacity)
        behind = min(size, self._capacity - at)
        for start, length in ((at, behind), (0, size - behind)):
            if length:
                os.posix_fallocate(self._file.fileno(), start, length)

    def close(self) -> None:
        self._file.close()

    def _write(self, head: bytes, data: bytes) -> None:
        left = len(head) + len(data)
        while left:
            at = self._end % self._capacity
            parts = (head, data) if left <= self._capacity - at else _first((head, data), self._capacity - at)
            written = os.pwritev(self._file.fileno(), parts, at)
            self._end += written
            left -= written
            if left:
                head, data = head[written:], data[max(written - len(head), 0) :]

    def _read(self, position: int, size: int) -> bytes:
        at = position % self._capacity
        return os.pread(self._file.fileno(), min(size, self._capacity - at), at)


def _first(parts: tuple[bytes, bytes], size: int) -> tuple[bytes, bytes]:
    """Return the first `size` bytes of two parts."""
    head, data = parts
    return head[:size], data[: max(size - len(head), 0)]


class Journal:
    """See the module. Give it back with `close()`."""

    def __init__(self, epoch: str, limits: JournalLimits | None = None) -> None:
        self.epoch = epoch
        self._limits = limits or JournalLimits()
        self._head: list[Entry] = []
        self._head_size = 0
        self._head_open = self._limits.head > 0
        self._tail: deque[Entry] = deque()
        self._tail_size = 0
        self._ring: _Ring | None = None
        self._memory = self._limits.memory
        self._disk = self._limits.disk
        self._closed = False
        self._seq = 0
        self._offset = 0
        self._ended_at: int | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._readers: set[JournalReader] = set()
        self._on_read: Callable[[], None] | None = None

    @property
    def cursor(self) -> Cursor:
        """The place after the newest entry."""
        return Cursor(self.epoch, self._seq, self._offset)

    @property
    def start(self) -> Cursor:
        """The place before the first entry."""
        return Cursor(self.epoch, 0, 0)

    def place_before(self, size: int) -> Cursor:
        """Return the place before the newest entries that have `size` bytes together, of those in memory."""
        seq, offset = self._seq, self._offset
        for entry in reversed(self._tail):
            if self._offset - offset >= size:
                break
            seq, offset = entry.seq - 1, entry.offset - len(entry.data)
        return Cursor(self.epoch, seq, offset)

    @property
    def memory(self) -> int:
        """How many bytes it holds in memory, bookkeeping included: its bound and one entry at most."""
        return self._head_size + self._tail_size

    @property
    def disk(self) -> int:
        """How many bytes it holds on disk."""
        return self._ring.size if self._ring is not None else 0

    @property
    def ended(self) -> bool:
        return self._ended_at is not None

    @property
    def backlog(self) -> int:
        """How many bytes the slowest of its readers has not taken yet, bookkeeping included; 0 without a reader."""
        return max((self._cost_after(each.at) for each in self._readers), default=0)

    @property
    def furthest(self) -> Cursor | None:
        """The place of the one of its readers who is furthest, None without a reader."""
        return max((each.at for each in self._readers), key=lambda at: at.seq, default=None)

    def when_read(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever a reader has gone on or gone away. One callback, the last one given."""
        self._on_read = callback

    def append(self, kind: int, data: bytes = b"", *, flags: int = 0, moment: float | None = None) -> Entry:
        """Add one entry and wake the followers. After `close` nothing is kept of it."""
        self._seq += 1
        self._offset += len(data)
        entry = Entry(self._seq, self._offset, kind, flags, time.time() if moment is None else moment, data)
        cost = len(data) + _ENTRY_COST
        if self._closed:
            return entry
        if self._head_open and self._head_size + cost <= self._limits.head:
            self._head.append(entry)
            self._head_size += cost
        else:
            self._head_open = False
            self._tail.append(entry)
            self._tail_size += cost
            self._trim()
        self._wake()
        return entry

    def end(self) -> None:
        """Say that the newest entry was the last one that followers wait for; later ones may still come."""
        if self._ended_at is None:
            self._ended_at = self._seq
            self._wake()

    def read(self, after: Cursor, limit: int = _READ_CHUNK) -> list[Entry]:
        """Return entries after `after`, in order, about `limit` bytes at most, at least one where there is one.

        Where entries between were dropped, the first one returned is a GAP whose data is JSON
        `{"entries": n, "bytes": n}`; its `seq` and `offset` are those of the last dropped entry.

        Raises:
            InvalidRequest (STALE_CURSOR): `after` lies beyond the newest entry.
        """
        if self._closed or after.seq == self._seq:
            return []
        if after.seq > self._seq:
            raise stale(str(after), self.epoch)
        found = (
            self._from_head(after.seq, limit)
            or self._from_ring(after.seq, limit)
            or self._from_tail(after.seq, limit)
        )
        first = found[0]
        missing = first.seq - after.seq - 1
        if missing:
            offset = first.offset - len(first.data)
            report = json.dumps({"entries": missing, "bytes": offset - after.offset}).encode()
            found.insert(0, Entry(first.seq - 1, offset, Kind.GAP, 0, first.time, report))
        return found

    def last(self, limit: int) -> list[Entry]:
        """Return the newest entries, in order, at least `limit` bytes of frames where there are so many.

        Not told is what is missing in front of them; what is missing between is, as `read` does.
        """
        at, found = Cursor(self.epoch, self._seq_before(limit), 0), list[Entry]()
        while batch := self.read(at):
            if batch[0].kind == Kind.GAP and not found:
                del batch[0]
            found += batch
            at = Cursor(self.epoch, found[-1].seq, found[-1].offset)
        return found

    async def follow(self, after: Cursor | None = None) -> AsyncIterator[list[Entry]]:
        """Yield batches of entries after `after` (default: from the start) as they come, until the end was seen.

        A slow follower holds up nobody: what it misses comes as a GAP. Cancelling leaves nothing behind.
        """
        with JournalReader(self, after) as reader:
            while batch := await reader.next():
                yield batch

    def rest(self, memory: int) -> None:
        """Hold at most `memory` bytes in memory from now on, where the disk takes what is over it."""
        if self._tail_size > memory and self._make_room(self._tail_size):
            self._memory = min(self._memory, max(memory, self._head_size))
            self._trim()

    def reserve_disk(self) -> bool:
        """Take all the disk that it may have now, so that it is there later; returns whether it is."""
        return self._make_room(self._disk)

    def give_back_disk(self) -> None:
        """Drop what is on disk; readers are told of it as of all that is missing."""
        self._drop_ring()

    def close(self) -> None:
        """Give back memory and disk, and end every follower. Twice is fine."""
        self.end()
        self._closed = True
        self._head.clear()
        self._tail.clear()
        self._head_size, self._tail_size = 0, 0
        self._drop_ring()

    async def changed(self) -> None:
        """Return after the next entry, or the end."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    # for JournalReader

    def enter(self, reader: JournalReader) -> None:
        self._readers.add(reader)

    def leave(self, reader: JournalReader) -> None:
        self._readers.discard(reader)
        self.note_read()

    def note_read(self) -> None:
        if self._on_read is not None:
            self._on_read()

    def _cost_after(self, at: Cursor) -> int:
        return self._offset - at.offset + (self._seq - at.seq) * _ENTRY_COST

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _trim(self) -> None:
        bound = max(self._memory - self._head_size, 0)
        while self._tail_size > bound and len(self._tail) > 1:
            entry = self._tail.popleft()
            self._tail_size -= len(entry.data) + _ENTRY_COST
            if len(entry.data) + FRAME_HEAD.size <= self._disk:
                self._spill(entry)

    def _make_room(self, size: int) -> bool:
        """Take `size` bytes of disk now; returns whether they are there."""
        if not self._disk:
            return False
        try:
            if self._ring is None:
                self._ring = _Ring(self._disk, self._limits.spill_dir)
            self._ring.make_room(size)
        except OSError as problem:
            log.info("no disk can be set aside for a journal: %s", problem)
            return False
        return True

    def _spill(self, entry: Entry) -> None:
        try:
            if self._ring is None:
                self._ring = _Ring(self._disk, self._limits.spill_dir)
            self._ring.append(entry)
        except OSError as problem:
            # A full disk must not end what is recorded here: readers get a GAP for what was on it.
            log.warning("a journal goes on without its disk: %s", problem)
            self._drop_ring()
            self._disk = 0

    def _drop_ring(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _seq_before(self, limit: int) -> int:
        """Return the number of the entry behind which about `limit` bytes are left, or all that there are."""
        left = limit
        for entry in reversed(self._tail):
            left -= len(entry.data) + FRAME_HEAD.size
            if left <= 0:
                return entry.seq - 1
        found = self._tail[0].seq - 1 if self._tail else self._seq
        if self._ring is not None and (spilled := self._ring.seq_before(left)) is not None:
            found = spilled
        return (
            0 if found == len(self._head) else found
        )  # the head is short: all of it, where nothing is between

    def _from_head(self, after: int, limit: int) -> list[Entry]:
        return _take(iter(self._head[after:]), limit)  # the head holds entries 1, 2, 3, ...

    def _from_ring(self, after: int, limit: int) -> list[Entry]:
        if self._ring is None or (self._tail and after >= self._tail[0].seq - 1):
            return []
        return self._ring.read(after, limit)

    def _from_tail(self, after: int, limit: int) -> list[Entry]:
        skip = max(after - self._tail[0].seq + 1, 0)
        return _take((self._tail[i] for i in range(skip, len(self._tail))), limit)


class JournalReader:
    """One who follows a journal from `after` (default: its start), and is at `at`. Inside its block it counts as a reader.

    A slow reader holds up nobody: what it misses comes as a GAP. But a writer may look at `Journal.backlog`.
    """

    def __init__(self, journal: Journal, after: Cursor | None = None) -> None:
        self.at = journal.start if after is None else after
        self._journal = journal

    def __enter__(self) -> Self:
        self._journal.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.leave(self)

    async def next(self) -> list[Entry]:
        """Return the next entries, when there are some; none once the end was seen. Raises as `Journal.read`."""
        while not (batch := self._journal.read(self.at)):
            if self._journal.ended:
                return []
            await self._journal.changed()
        self.at = Cursor(self._journal.epoch, batch[-1].seq, batch[-1].offset)
        self._journal.note_read()
        return batch


def _take(entries: Iterator[Entry], limit: int) -> list[Entry]:
    found, size = list[Entry](), 0
    for entry in entries:
        found.append(entry)
        size += len(entry.data) + FRAME_HEAD.size
        if size >= limit:
            break
    return found
