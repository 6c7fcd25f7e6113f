"""When a process is let write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandcell_container.guest.throttle import Throttle
from sandcell_container.journal import Journal, JournalLimits, JournalReader, Kind

if TYPE_CHECKING:
    from pathlib import Path


class Pipes:
    """Says whether it may be written to."""

    def __init__(self) -> None:
        self.is_open = True
        self.opened = asyncio.Event()

    def pause(self) -> None:
        self.is_open = False
        self.opened.clear()

    def resume(self) -> None:
        self.is_open = True
        self.opened.set()


def put(throttle: Throttle, journal: Journal, size: int) -> None:
    journal.append(Kind.STDOUT, b"x" * size)
    throttle.note_written()


async def test_what_may_be_dropped_never_waits_without_a_reader() -> None:
    pipes, limits = Pipes(), JournalLimits(memory=1000)
    journal = Journal("e", limits)
    throttle = Throttle(pipes, journal, limits, must_keep=False)
    put(throttle, journal, 2**22)
    assert pipes.is_open


async def test_a_reader_that_goes_on_is_waited_for_and_one_that_stands_only_for_a_moment() -> None:
    pipes, limits = Pipes(), JournalLimits(memory=2**22)
    journal = Journal("e", limits)
    throttle = Throttle(pipes, journal, limits, must_keep=False)
    with JournalReader(journal) as reader:
        put(throttle, journal, 100)
        await reader.next()
        put(throttle, journal, 2**20)
        assert not pipes.is_open
        await reader.next()
        assert pipes.is_open, "it has read all"
        put(throttle, journal, 2**20)
        assert not pipes.is_open
        async with asyncio.timeout(10):
            await pipes.opened.wait()
        put(throttle, journal, 2**20)
        assert pipes.is_open, "it has had its moment"
    throttle.stop()


async def test_what_must_not_be_dropped_waits_for_a_reader_or_a_cursor(tmp_path: Path) -> None:
    pipes, limits = Pipes(), JournalLimits(memory=2000, disk=100_000, spill_dir=str(tmp_path))
    journal = Journal("e", limits)
    throttle = Throttle(pipes, journal, limits, must_keep=True)
    put(throttle, journal, 49_000)
    assert pipes.is_open
    put(throttle, journal, 1000)
    assert not pipes.is_open
    throttle.note_read(journal.cursor)
    assert pipes.is_open
    put(throttle, journal, 50_000)
    assert not pipes.is_open
    with JournalReader(journal) as reader:
        while reader.at.seq < 3:
            await reader.next()
    assert pipes.is_open
    throttle.stop()
    journal.close()


async def test_without_a_disk_half_of_the_memory_is_the_bound(tmp_path: Path) -> None:
    pipes, limits = Pipes(), JournalLimits(memory=2000, disk=100_000, spill_dir=str(tmp_path / "missing"))
    journal = Journal("e", limits)
    throttle = Throttle(pipes, journal, limits, must_keep=True)
    put(throttle, journal, 1000)
    assert not pipes.is_open
    assert journal.memory >= 1000


async def test_one_that_was_stopped_waits_for_nobody() -> None:
    pipes, limits = Pipes(), JournalLimits(memory=2000)
    journal = Journal("e", limits)
    throttle = Throttle(pipes, journal, limits, must_keep=True)
    throttle.stop()
    throttle.stop()
    put(throttle, journal, 5000)
    assert pipes.is_open
