"""The journal: whatever is dropped on the way, a reader gets every byte once and in order, or is told what is missing."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.journal import (
    LATE,
    Cursor,
    Entry,
    FrameDecoder,
    Journal,
    JournalLimits,
    JournalReader,
    Kind,
    encode_entry,
)

if TYPE_CHECKING:
    from pathlib import Path

entries = st.builds(
    Entry,
    seq=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**64 - 1),
    kind=st.integers(0, 255),
    flags=st.integers(0, 255),
    time=st.floats(allow_nan=False),
    data=st.binary(max_size=300),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(entries, max_size=8), st.lists(st.integers(0, 10_000), max_size=20))
def test_frames_come_back_whatever_the_chunks_are(sent: list[Entry], places: list[int]) -> None:
    decoder = FrameDecoder()
    data = b"".join(map(encode_entry, sent))
    assert [entry for chunk in cut(data, places) for entry in decoder.feed(chunk)] == sent
    assert decoder.pending == 0


def test_an_unfinished_frame_waits_for_its_rest() -> None:
    decoder = FrameDecoder()
    frame = encode_entry(Entry(1, 3, Kind.STDOUT, 0, 1.5, b"abc"))
    assert list(decoder.feed(frame[:-1])) == []
    assert decoder.pending == len(frame) - 1
    assert [entry.data for entry in decoder.feed(frame[-1:])] == [b"abc"]


def test_a_frame_that_claims_too_much_is_refused() -> None:
    frame = encode_entry(Entry(1, 9, Kind.STDOUT, 0, 0.0, b"x" * 9))
    with pytest.raises(SandcellError) as caught:
        list(FrameDecoder(max_frame=8).feed(frame))
    assert caught.value.code == ErrorCode.INTERNAL


class Reader:
    """Reads on from where it is, and holds the journal to its promise."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.at = journal.start
        self.missed = 0

    def read(self, written: list[bytes], limit: int) -> None:
        batch = self.journal.read(self.at, limit)
        assert bool(batch) == (self.at.seq < len(written))
        for place, entry in enumerate(batch):
            if entry.kind == Kind.GAP:
                assert place == 0, "a gap can only be at the beginning of a batch"
                gap = json.loads(entry.data)
                lost = written[self.at.seq : entry.seq]
                assert gap == {"entries": len(lost), "bytes": sum(map(len, lost))} and lost
                self.missed += len(lost)
            else:
                assert entry.seq == self.at.seq + 1
                assert entry.data == written[entry.seq - 1]
            assert entry.offset == sum(map(len, written[: entry.seq]))
            self.at = Cursor(self.journal.epoch, entry.seq, entry.offset)


class JournalModel(RuleBasedStateMachine):
    """Appends and reads of several readers in any order, under bounds small enough to drop all the time."""

    @rule()
    def nothing(self) -> None:
        """Let a run without a journal be one."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.journal: Journal | None = None
        self.readers: list[Reader] = []

    def open(self, memory: int, head: int, disk: int) -> Journal:
        if self.journal is None:
            limits = JournalLimits(memory=memory, head=min(head, memory), disk=disk)
            self.journal = Journal("e", limits)
            self.limits = limits
            self.readers = [Reader(self.journal) for _ in range(3)]
        return self.journal

    @rule(
        memory=st.sampled_from([1, 200, 1000, 5000]),
        head=st.sampled_from([0, 0, 400, 2000]),
        disk=st.sampled_from([0, 0, 100, 1000, 10_000, 200_000]),
        sizes=st.lists(st.sampled_from([0, 1, 50, 300, 3000, 70_000]), min_size=1, max_size=12),
    )
    def append(self, memory: int, head: int, disk: int, sizes: list[int]) -> None:
        journal = self.open(memory, head, disk)
        for size in sizes:
            data = (b"%d:" % len(self.written) * (size // 2 + 1))[:size]
            self.written.append(data)
            entry = journal.append(Kind.STDOUT, data)
            assert (entry.seq, entry.data) == (len(self.written), data)

    @rule(who=st.integers(0, 2), limit=st.sampled_from([1, 500, 2**18]))
    def read(self, who: int, limit: int) -> None:
        if self.journal is not None:
            self.readers[who].read(self.written, limit)

    @invariant()
    def what_is_in_memory_is_bounded(self) -> None:
        if self.journal is not None:
            largest = max(map(len, self.written[-1:]), default=0)
            assert self.journal.memory <= self.limits.memory + largest + 200

    def teardown(self) -> None:
        if self.journal is None:
            return
        for reader in self.readers:
            for _ in range(len(self.written) + 1):
                reader.read(self.written, 2**18)
            assert reader.at.seq == len(self.written)
        self.journal.close()


TestJournalModel = JournalModel.TestCase


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=60),
    st.sampled_from([(10_000, 0, 0), (2000, 0, 0), (3000, 1000, 0), (500, 0, 5000), (3000, 1000, 5000)]),
)
def test_followers_beside_a_writer_miss_nothing_untold(
    data: list[bytes], bounds: tuple[int, int, int]
) -> None:
    memory, head, disk = bounds
    asyncio.run(follow_all(data, JournalLimits(memory=memory, head=head, disk=disk)))


async def follow_all(data: list[bytes], limits: JournalLimits) -> None:
    journal = Journal("e", limits)

    async def follow(pause: int) -> tuple[int, int]:
        seen, size = 0, 0
        async for batch in journal.follow():
            for entry in batch:
                gap = (
                    json.loads(entry.data)
                    if entry.kind == Kind.GAP
                    else {"entries": 1, "bytes": len(entry.data)}
                )
                seen, size = seen + gap["entries"], size + gap["bytes"]
                assert (entry.seq, entry.offset) == (seen, size)
            for _ in range(pause):
                await asyncio.sleep(0)
        return seen, size

    async def write() -> None:
        for number, each in enumerate(data):
            journal.append(Kind.STDERR, each)
            if number % 3 == 0:
                await asyncio.sleep(0)
        journal.end()

    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(follow(pause)) for pause in (0, 1, 5)]
        group.create_task(write())
    assert {task.result() for task in followers} == {(len(data), sum(map(len, data)))}
    journal.close()


async def test_what_comes_after_the_end_is_late_and_ends_no_follower_twice() -> None:
    journal = Journal("e")
    journal.append(Kind.ENDED, b"{}")
    journal.end()
    journal.append(Kind.STDOUT, b"late", flags=LATE)
    found = [entry async for batch in journal.follow() for entry in batch]
    assert [(entry.kind, entry.flags) for entry in found] == [(Kind.ENDED, 0), (Kind.STDOUT, LATE)]
    assert [entry async for batch in journal.follow(journal.cursor) for entry in batch] == []


async def test_a_cancelled_follower_leaves_nothing_behind() -> None:
    journal = Journal("e")
    following = asyncio.ensure_future(anext(journal.follow()))
    await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    journal.append(Kind.STDOUT, b"x")
    assert [entry.data for entry in await anext(journal.follow())] == [b"x"]


async def test_close_ends_followers_and_gives_back_the_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    journal = Journal("e", JournalLimits(memory=200, disk=10_000, spill_dir=str(tmp_path)))
    for number in range(20):
        journal.append(Kind.STDOUT, b"%d" % number * 50)
    assert os.listdir(tmp_path) == [], "nobody else can open the file"
    following = asyncio.ensure_future(anext(journal.follow(journal.cursor)))
    await asyncio.sleep(0)
    journal.close()
    journal.append(Kind.STDOUT, b"nobody hears this")
    with pytest.raises(StopAsyncIteration):
        await following
    assert journal.read(journal.start) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_is_full_loses_entries_and_not_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    journal = Journal("e", JournalLimits(memory=500, disk=100_000))
    written = [b"%02d" % number * 50 for number in range(20)]
    for data in written[:10]:
        journal.append(Kind.STDOUT, data)
    monkeypatch.setattr(os, "pwritev", full)
    for data in written[10:]:
        journal.append(Kind.STDOUT, data)
    reader = Reader(journal)
    while reader.at.seq < len(written):
        reader.read(written, 2**18)
    assert reader.missed > 0
    journal.close()


@pytest.mark.parametrize(
    "text", ["", "e", "e.1", "x.1.2", "e.1.x", "e.-1.2", "e.1.2.3", "e.\u0661.2", "e.1." + "9" * 5000]
)
def test_a_cursor_of_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(SandcellError) as caught:
        Cursor.parse(text, epoch="e")
    assert caught.value.code == ErrorCode.STALE_CURSOR


@given(st.text("abc.-", min_size=1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_cursors_come_back(epoch: str, seq: int, offset: int) -> None:
    cursor = Cursor(epoch, seq, offset)
    assert Cursor.parse(str(cursor), epoch=epoch) == cursor


def test_a_cursor_ahead_of_the_journal_is_refused() -> None:
    journal = Journal("e")
    journal.append(Kind.STDOUT, b"x")
    with pytest.raises(SandcellError) as caught:
        journal.read(Cursor("e", 2, 1))
    assert caught.value.code == ErrorCode.STALE_CURSOR


async def test_a_writer_can_see_how_far_its_slowest_reader_is_behind() -> None:
    journal, told = Journal("e"), list[int]()
    journal.when_read(lambda: told.append(journal.backlog))
    journal.append(Kind.STDOUT, b"x" * 1000)
    assert journal.backlog == 0  # nobody reads
    with JournalReader(journal) as slow, JournalReader(journal) as quick:
        assert journal.backlog >= 1000
        await quick.next()
        assert journal.backlog >= 1000
        await slow.next()
        assert journal.backlog == 0
        journal.append(Kind.STDOUT, b"y")
        await quick.next()
    assert journal.backlog == 0
    assert told[1] == 0 and told[-1] == 0


def test_one_that_is_to_rest_keeps_in_memory_what_no_disk_takes(tmp_path: Path) -> None:
    for folder, left in ((tmp_path, 1000), (tmp_path / "missing", 5000)):
        journal = Journal("e", JournalLimits(memory=10_000, disk=100_000, spill_dir=str(folder)))
        for _ in range(10):
            journal.append(Kind.STDOUT, b"x" * 500)
        journal.rest(1000)
        assert abs(journal.memory - left) < 2000
        assert [entry.kind for entry in journal.last(10**6)] == [Kind.STDOUT] * 10
        journal.close()
