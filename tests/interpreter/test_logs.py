"""Output of processes as events with text, whatever the pieces are; and what is looked for in it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.events import Ended, Gap, Stderr, Stdout
from sandcell.logs import LogDecoder, LogSearch, text_of
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Entry, Kind

if TYPE_CHECKING:
    from sandcell.events import Event

END = b'{"end": {"cause": "exited", "code": 0}, "exit_code": 0, "signal": null, "duration": 1.0}'
texts = st.text("aé你🙂\n", max_size=12)
places = st.lists(st.integers(0, 60), max_size=8)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in at), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def journal_of(pieces: list[tuple[Kind, bytes]]) -> list[Entry]:
    entries, offset = list[Entry](), 0
    for number, (kind, data) in enumerate([*pieces, (Kind.ENDED, END)], 1):
        offset += len(data)
        entries.append(Entry(number, offset, kind, 0, 1.0, data))
    return entries


def follow(entries: list[Entry], cursor: str | None = None) -> list[Event]:
    """Return what a follower sees from `cursor` on, as a guest and a client make it."""
    decoder = LogDecoder(cursor)
    seen = int(decoder.start.split(".")[1]) if decoder.start else 0
    return [event for entry in entries[seen:] for event in decoder.events(entry, "e")]


def one(events: list[Event], stream: type[Stdout | Stderr]) -> str:
    return text_of(event for event in events if isinstance(event, stream))


def interleave(out: list[bytes], err: list[bytes], order: list[bool]) -> list[tuple[Kind, bytes]]:
    """Return both streams as one journal has them: by turns that `order` chooses."""
    left = {Kind.STDOUT: list(out), Kind.STDERR: list(err)}
    found = list[tuple[Kind, bytes]]()
    for is_error in [*order, *[False] * len(out), *[True] * len(err)]:
        kind = Kind.STDERR if is_error else Kind.STDOUT
        if left[kind]:
            found.append((kind, left[kind].pop(0)))
    return found


@given(texts, places, texts, places, st.lists(st.booleans(), max_size=16))
def test_characters_are_whole_also_for_who_goes_on_from_any_cursor(
    out: str, out_at: list[int], err: str, err_at: list[int], order: list[bool]
) -> None:
    entries = journal_of(interleave(cut(out.encode(), out_at), cut(err.encode(), err_at), order))
    whole = follow(entries)
    assert (one(whole, Stdout), one(whole, Stderr)) == (out, err)
    for place, event in enumerate(whole):
        assert [*whole[: place + 1], *follow(entries, event.cursor)] == whole


@given(st.binary(max_size=20), places)
def test_bytes_that_are_no_text_are_told_as_such_and_end_with_the_end(data: bytes, at: list[int]) -> None:
    events = follow(journal_of([(Kind.STDOUT, piece) for piece in cut(data, at)]))
    assert text_of(events) == data.decode("utf-8", "replace")
    assert isinstance(events[-1], Ended)


def test_a_character_that_a_gap_has_torn_is_told_in_front_of_it() -> None:
    entries = [
        Entry(1, 2, Kind.STDOUT, 0, 1.0, "a\u00e9".encode()[:2]),
        Entry(3, 5, Kind.GAP, 0, 1.0, b'{"entries": 2, "bytes": 3}'),
        Entry(4, 6, Kind.STDOUT, 0, 1.0, b"b"),
    ]
    events = [
        event for decoder in [LogDecoder()] for entry in entries for event in decoder.events(entry, "e")
    ]
    assert [type(event) for event in events] == [Stdout, Stdout, Gap, Stdout]
    assert text_of(events) == "a\ufffd\n[... 3 bytes are no longer kept ...]\nb"
    assert events[1].cursor == "e.1.2"


@pytest.mark.parametrize("cursor", ["e.1.2~zz", "e.1.2~-x"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(SandcellError) as caught:
        LogDecoder(cursor)
    assert caught.value.code is ErrorCode.STALE_CURSOR


def search(pattern: str, *pieces: bytes) -> tuple[LogSearch, list[str | None]]:
    looking = LogSearch(re.compile(pattern))
    found = list[str | None]()
    for number, piece in enumerate(pieces, 1):
        match = looking.add(Entry(number, number, Kind.STDOUT, 0, 1.0, piece), "e")
        found.append(match.text if match is not None else None)
    return looking, found


def test_a_match_in_a_whole_line_or_with_text_behind_it_is_sure() -> None:
    assert search("b+", b"abbc")[1] == ["bb"]
    assert search("b+", b"abb\n")[1] == ["bb"]
    assert search("^b", b"a\nb\n")[1] == ["b"]


def test_a_match_at_the_end_of_what_is_there_may_go_on() -> None:
    looking, found = search(r"port \d+", b"port 80", b"80", b"\n")
    assert found == [None, None, "port 8080"]
    looking, found = search("Name: ", b"Name: ")
    assert found == [None]
    assert looking.maybe is not None
    assert looking.maybe.line == "Name: "
    looking, found = search("80$", b"80", b"90\n")
    assert (found, looking.maybe) == ([None, None], None)


def test_what_one_stream_may_have_said_is_not_taken_back_by_the_other() -> None:
    looking = LogSearch(re.compile("Name: "))
    looking.add(Entry(1, 6, Kind.STDOUT, 0, 1.0, b"Name: "), "e")
    looking.add(Entry(2, 9, Kind.STDERR, 0, 1.0, b"err"), "e")
    assert looking.maybe is not None
    assert looking.maybe.cursor == "e.1.6"


def test_a_match_has_its_groups_and_its_place() -> None:
    match = LogSearch(re.compile(r"(?P<name>\w+)=(\d+)?")).add(
        Entry(3, 9, Kind.STDERR, 0, 1.0, b"say a= now\n"), "e"
    )
    assert match is not None
    assert (match.text, match.line, match.stream, match.cursor) == ("a=", "say a= now", "stderr", "e.3.9")
    assert (match.groups, match.named) == (("a", None), {"name": "a"})
