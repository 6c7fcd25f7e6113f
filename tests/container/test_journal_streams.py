"""The journal and its followers over connections that break: under any order of writes, turns, arrivals and breaks,
every byte comes once and in order, or a gap says what is missing; and what fits is never dropped."""

from __future__ import annotations

import asyncio
import json
import os
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_container.journal import (
    Cursor,
    Entry,
    FrameDecoder,
    Journal,
    JournalLimits,
    JournalReader,
    Kind,
    encode_entry,
)

CLIENTS = 3
ENTRY_COST = 160  # what an entry costs in memory beside its data
HEAD = 32


class Write(NamedTuple):
    kind: Kind
    size: int


class Turn(NamedTuple):
    """The guest puts the next batch for a client onto its connection, or waits for one."""

    who: int


class Arrive(NamedTuple):
    """So many bytes arrive at a client."""

    who: int
    size: int


class Break(NamedTuple):
    """The connection of a client breaks: what was on its way is lost, and it comes again with its last cursor."""

    who: int


class Rest(NamedTuple):
    """The journal is to hold less in memory."""

    memory: int


class FillDisk(NamedTuple):
    """From now on nothing can be written to the disk."""


Step = Write | Turn | Arrive | Break | Rest | FillDisk

clients = st.integers(0, CLIENTS - 1)
writes = st.builds(
    Write, st.sampled_from([Kind.STDOUT, Kind.STDERR]), st.sampled_from([0, 1, 40, 300, 3000, 40_000])
)
steps: st.SearchStrategy[Step] = st.one_of(
    writes,
    writes,
    st.builds(Turn, clients),
    st.builds(Turn, clients),
    st.builds(Arrive, clients, st.integers(1, 5000)),
    st.builds(Break, clients),
    st.builds(Rest, st.sampled_from([100, 1000])),
    st.builds(FillDisk),
)
limits = st.builds(
    JournalLimits,
    memory=st.sampled_from([1, 500, 4000, 2**20]),
    head=st.sampled_from([0, 0, 400]),
    disk=st.sampled_from([0, 1000, 20_000, 200_000, 2**22]),
)


class Client:
    """One who follows, on the far side of a connection."""

    def __init__(self, journal: Journal, written: list[Entry]) -> None:
        self.at = journal.start
        self.missed = 0
        self._journal = journal
        self._written = written
        self._connect()

    def _connect(self) -> None:
        self._wire = bytearray()
        self._decoder = FrameDecoder()
        self._reader = JournalReader(self._journal, Cursor.parse(str(self.at), epoch="e"))
        self._reader.__enter__()
        self._coming: asyncio.Task[list[Entry]] | None = None
        self.is_over = False

    async def turn(self) -> None:
        """Take the next batch where there is one; else it comes with the next write."""
        if self._coming is None and not self.is_over:
            self._coming = asyncio.ensure_future(self._reader.next())
        await asyncio.sleep(0)
        await self.look()

    async def look(self) -> None:
        await asyncio.sleep(0)
        if self._coming is not None and self._coming.done():
            batch = self._coming.result()
            self._coming = None
            self.is_over = not batch
            self._wire += b"".join(map(encode_entry, batch))

    def arrive(self, size: int) -> None:
        piece, self._wire = bytes(self._wire[:size]), self._wire[size:]
        for entry in self._decoder.feed(piece):
            self._take(entry)

    async def break_off(self) -> None:
        await self.close()
        self._connect()

    async def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
        self._reader.__exit__()

    async def read_to_the_end(self) -> None:
        while not self.is_over:
            await self.turn()
            self.arrive(len(self._wire))
        assert self.at.seq == len(self._written)

    def _take(self, entry: Entry) -> None:
        """Hold the journal to its promise."""
        if entry.kind == Kind.GAP:
            lost = self._written[self.at.seq : entry.seq]
            assert lost, "a gap is of something"
            told = json.loads(entry.data)
            assert told == {"entries": len(lost), "bytes": sum(len(each.data) for each in lost)}
            self.missed += len(lost)
        else:
            assert entry.seq == self.at.seq + 1, "once and in order"
            assert entry == self._written[entry.seq - 1]
        assert entry.offset == sum(len(each.data) for each in self._written[: entry.seq])
        self.at = Cursor("e", entry.seq, entry.offset)


def may_drop(bounds: JournalLimits, script: list[Step], written: list[Entry]) -> bool:
    """Tell whether some of it may have been dropped: it did not fit."""
    size = sum(len(each.data) for each in written)
    if size + len(written) * ENTRY_COST <= bounds.memory and not any(
        isinstance(each, Rest) for each in script
    ):
        return False
    fits = size + len(written) * HEAD <= bounds.disk
    return not fits or any(isinstance(each, FillDisk) for each in script)


async def play(bounds: JournalLimits, script: list[Step], patch: pytest.MonkeyPatch) -> None:
    journal, written = Journal("e", bounds), list[Entry]()
    followers = [Client(journal, written) for _ in range(CLIENTS)]
    for step in script:
        match step:
            case Write():
                data = (b"%d:" % len(written) * (step.size // 2 + 1))[: step.size]
                written.append(journal.append(step.kind, data))
                for each in followers:
                    await each.look()
            case Turn():
                await followers[step.who].turn()
            case Arrive():
                followers[step.who].arrive(step.size)
            case Break():
                await followers[step.who].break_off()
            case Rest():
                journal.rest(step.memory)
            case FillDisk():
                patch.setattr(os, "pwritev", no_space)
    journal.end()
    for each in followers:
        await each.read_to_the_end()
        assert not each.missed or may_drop(bounds, script, written)
        await each.close()
    check_last(journal, written)
    journal.close()


def no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


def check_last(journal: Journal, written: list[Entry]) -> None:
    """The newest entries are the end of what was written, and as many as are asked for where these are kept."""
    for limit in (1, 1000, 10**6):
        found = journal.last(limit)
        whole = [entry for entry in found if entry.kind != Kind.GAP]
        assert whole == [written[entry.seq - 1] for entry in whole]
        assert not written or found[-1].seq == len(written)
        numbers = [entry.seq for entry in found]
        assert numbers == sorted(numbers)
        if len(found) < len(written) and is_whole(journal):
            assert sum(len(entry.data) + HEAD for entry in found) >= limit


def is_whole(journal: Journal) -> bool:
    at, number = journal.start, 0
    while batch := journal.read(at):
        number += sum(entry.kind != Kind.GAP for entry in batch)
        at = Cursor("e", batch[-1].seq, batch[-1].offset)
    return number == at.seq


@given(limits, st.lists(steps, max_size=40))
def test_every_byte_comes_once_and_in_order_or_is_told_as_missing(
    bounds: JournalLimits, script: list[Step]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(play(bounds, script, patch))
