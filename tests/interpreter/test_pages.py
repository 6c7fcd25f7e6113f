"""Pages of a journal: in order, without a hole that is not told, and no larger than they may be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from sandcell.guest import pages
from sandcell.guest.pages import PAGE_BYTES, PageQuery, read_page
from sandcell_container.frames import Entry, Kind
from sandcell_container.journal import Journal, JournalLimits

if TYPE_CHECKING:
    import pytest

    from sandcell.guest.pages import JournalPage

STREAMS = (Kind.STDOUT, Kind.STDERR)
outputs = st.lists(st.tuples(st.sampled_from(STREAMS), st.text("ab\n", max_size=8)), max_size=12)


def journal_of(written: list[tuple[Kind, str]], *, ended: bool = True) -> Journal:
    journal = Journal("e")
    journal.append(Kind.STARTED, b"{}")
    for kind, text in written:
        journal.append(kind, text.encode())
    if ended:
        journal.append(Kind.ENDED, b"{}")
        journal.end()
    return journal


def text_of(entries: list[Entry]) -> str:
    return b"".join(each.data for each in entries if each.kind in STREAMS).decode()


def all_pages(journal: Journal, **query: int | Kind) -> list[JournalPage]:
    found = [read_page(journal, PageQuery(**query))]  # type: ignore[arg-type]  # a test's own words
    while not found[-1].is_done:
        found.append(read_page(journal, PageQuery(after=found[-1].cursor, **query)))  # type: ignore[arg-type]
    return found


@given(outputs, st.integers(1, 5), st.sampled_from([None, *STREAMS]))
def test_pages_one_after_the_other_are_the_whole(
    written: list[tuple[Kind, str]], limit: int, stream: Kind | None
) -> None:
    journal = journal_of(written)
    query = {"limit": limit} if stream is None else {"limit": limit, "stream": stream}
    found = all_pages(journal, **query)
    entries = [each for page in found for each in page.entries]
    assert text_of(entries) == "".join(text for kind, text in written if stream in {None, kind})
    assert [each.kind for each in entries if each.kind not in STREAMS] == [Kind.STARTED, Kind.ENDED]
    assert all(sum(each.kind in STREAMS for each in page.entries) <= limit for page in found)
    assert not any(page.is_truncated for page in found)


@given(outputs, st.integers(0, 6))
def test_a_tail_is_the_last_lines(written: list[tuple[Kind, str]], lines: int) -> None:
    page = read_page(journal_of(written), PageQuery(tail=lines))
    whole = "".join(text for _, text in written)
    assert text_of(page.entries) == "".join(whole.splitlines(keepends=True)[-lines:] if lines else [])
    assert page.is_done
    assert page.is_truncated == (not page.entries or page.entries[0].kind != Kind.STARTED)


def test_the_tail_of_one_stream_leaves_the_other_out() -> None:
    journal = journal_of([(Kind.STDOUT, "1\n2\n"), (Kind.STDERR, "x\ny\n"), (Kind.STDOUT, "3\n")])
    assert text_of(read_page(journal, PageQuery(tail=2, stream=Kind.STDOUT)).entries) == "2\n3\n"
    assert text_of(read_page(journal, PageQuery(tail=1, stream=Kind.STDERR)).entries) == "y\n"


def test_a_page_of_what_still_runs_is_not_done_and_the_next_goes_on() -> None:
    journal = journal_of([(Kind.STDOUT, "1\n")], ended=False)
    first = read_page(journal, PageQuery())
    assert not first.is_done
    assert read_page(journal, PageQuery(after=first.cursor)).entries == []
    journal.append(Kind.STDOUT, b"2\n")
    assert text_of(read_page(journal, PageQuery(after=first.cursor)).entries) == "2\n"


def test_a_page_is_bounded_whatever_there_is() -> None:
    journal = Journal("e", JournalLimits(memory=2**16, disk=2**24))
    for _ in range(40):
        journal.append(Kind.STDOUT, b"x" * 200_000)
    page = read_page(journal, PageQuery())
    assert sum(len(each.data) for each in page.entries) <= PAGE_BYTES
    tail = read_page(journal, PageQuery(tail=1))
    assert sum(len(each.data) for each in tail.entries) <= 2 * PAGE_BYTES
    assert tail.is_truncated
    journal.close()


def test_a_page_of_one_stream_looks_no_further_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST_LOOKED_AT", 1000)
    journal = Journal("e", JournalLimits(memory=2**20))
    for _ in range(10):
        journal.append(Kind.STDERR, b"x" * 100_000)
    journal.append(Kind.STDOUT, b"rare")
    journal.end()
    found = all_pages(journal, stream=Kind.STDOUT)
    assert len(found) > 1
    assert text_of([each for page in found for each in page.entries]) == "rare"


def test_what_was_dropped_is_told() -> None:
    journal = Journal("e", JournalLimits(memory=1000))
    for _ in range(10):
        journal.append(Kind.STDOUT, b"x" * 300)
    page = read_page(journal, PageQuery())
    assert page.is_truncated
    assert json.loads(page.entries[0].data)["bytes"] + len(text_of(page.entries)) == 3000
