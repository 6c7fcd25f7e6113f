"""A writer that waits a moment for who reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from sandcell_container.guest.pace import Pace
from sandcell_container.journal import Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from sandcell_container.journal import Entry

pytestmark = pytest.mark.short
DEADLINE_S = 20


class Writer:
    """Writes 100 bytes at a time, while it may."""

    def __init__(self) -> None:
        self.journal = Journal("epoch", JournalLimits(memory=10_000))
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.pace = Pace(self.journal, 1000, pause=self.may_write.clear, resume=self.may_write.set)

    def reader(self) -> AsyncGenerator[list[Entry]]:
        return cast("AsyncGenerator[list[Entry]]", self.journal.follow())

    def write(self) -> None:
        self.journal.append(Kind.STDOUT, bytes(100))
        self.pace.regulate()

    def write_on(self, most: int = 100) -> int:
        """Write while it may, and return how often."""
        return next((n for n in range(most) if not self._write_one()), most)

    def _write_one(self) -> bool:
        if self.may_write.is_set():
            self.write()
            return True
        return False


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    made.pace.close()
    made.journal.close()


async def test_without_readers_it_never_waits(writer: Writer) -> None:
    assert writer.write_on() == 100


async def test_it_waits_for_a_reader_until_that_has_gone_on(writer: Writer) -> None:
    reader = writer.reader()
    writer.write()
    await anext(reader)
    assert 5 < writer.write_on() < 15
    assert sum(len(entry.data) for entry in await anext(reader)) > 500
    following = asyncio.ensure_future(anext(reader))
    await asyncio.wait({following}, timeout=0)
    assert writer.may_write.is_set()
    writer.write()
    await following
    await reader.aclose()


async def test_it_waits_a_moment_and_no_more(writer: Writer) -> None:
    reader = writer.reader()
    writer.write()
    await anext(reader)
    assert writer.write_on() < 15
    async with asyncio.timeout(DEADLINE_S):
        await writer.may_write.wait()
    assert writer.write_on() == 100
    await reader.aclose()


async def test_who_is_behind_another_is_not_waited_for(writer: Writer) -> None:
    slow, fast = writer.reader(), writer.reader()
    writer.write()
    await anext(slow)
    for _ in range(30):
        await anext(fast)
        assert writer.may_write.is_set()
        writer.write()
    for reader in (slow, fast):
        await reader.aclose()


async def test_closed_it_regulates_no_more(writer: Writer) -> None:
    reader = writer.reader()
    writer.write()
    await anext(reader)
    writer.pace.close()
    assert writer.write_on() == 100
    await reader.aclose()
