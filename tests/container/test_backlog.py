"""When a writer has to wait for its readers."""

from __future__ import annotations

from sandcell_container.frames import FRAME_HEAD, Cursor
from sandcell_container.guest.backlog import Backlog

HEAD = FRAME_HEAD.size


def place(seq: int, offset: int) -> Cursor:
    return Cursor("e", seq, offset)


def test_without_a_bound_it_is_never_full() -> None:
    assert not Backlog(None, 10).is_full(place(10**6, 10**12))


def test_it_is_full_until_somebody_has_read() -> None:
    backlog = Backlog(1000, 10**6)
    assert not backlog.is_full(place(1, 999 - HEAD))
    assert backlog.is_full(place(1, 1000 - HEAD))
    backlog.note_read(place(0, 1))
    assert not backlog.is_full(place(1, 1000 - HEAD))


def test_small_entries_count_by_what_they_take_on_disk() -> None:
    assert Backlog(HEAD * 100, 10**6).is_full(place(100, 0))


def test_the_furthest_reader_counts_and_none_takes_it_back() -> None:
    backlog = Backlog(1000, 10**6)
    backlog.note_read(place(5, 5000))
    backlog.note_read(place(1, 1000))
    backlog.note_reader(place(2, 2000))
    backlog.note_reader(None)
    assert not backlog.is_full(place(5, 5999))
    assert backlog.is_full(place(5, 6000))


def test_it_waits_a_moment_for_who_reads_and_only_as_long() -> None:
    backlog = Backlog(None, 100)
    assert not backlog.is_ahead(place(1, 10**6)), "nobody reads"
    backlog.note_reader(place(0, 0))
    assert backlog.is_ahead(place(1, 100))
    backlog.lose_patience()
    assert not backlog.is_ahead(place(1, 100))
    backlog.note_reader(place(1, 100))
    assert not backlog.is_ahead(place(1, 150))
    assert backlog.is_ahead(place(2, 200)), "who goes on is waited for again"
    backlog.note_reader(None)
    assert not backlog.is_ahead(place(9, 10**6))


def test_its_bound_may_grow() -> None:
    backlog = Backlog(100, 10**6)
    assert backlog.is_full(place(0, 100))
    backlog.widen(1000)
    assert not backlog.is_full(place(0, 999))
