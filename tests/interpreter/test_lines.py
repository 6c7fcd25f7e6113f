"""Lines as they come, whatever the pieces are."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sandcell.lines import LONGEST_LINE, LastLines, Lines, ended_first
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode
from sandcell_container.frames import Entry, Kind


def entry(data: bytes, kind: Kind = Kind.STDOUT) -> Entry:
    return Entry(1, 1, kind, 0, 0.0, data)


@given(st.text("aé\n", max_size=30), st.lists(st.integers(0, 60), max_size=6))
def test_whole_lines_come_once_whatever_the_pieces(text: str, places: list[int]) -> None:
    data = text.encode()
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    lines = Lines()
    found = [line for a, b in pairwise(edges) for line in lines.add(entry(data[a:b]))]
    *whole, rest = text.split("\n")
    assert [line.text for line in found if line.is_whole] == whole
    if rest:
        assert found[-1].text == rest
        assert not found[-1].is_whole


def test_streams_are_apart_and_other_entries_are_none() -> None:
    lines = Lines()
    assert [line.text for line in lines.add(entry(b"ou"))] == ["ou"]
    assert [line.text for line in lines.add(entry(b"err\n", Kind.STDERR))] == ["err"]
    assert list(lines.add(entry(b"{}", Kind.GAP))) == []
    assert next(iter(lines.add(entry(b"t\r\n")))) == ("stdout", "out", True)


def test_a_line_without_an_end_is_bounded() -> None:
    lines = Lines()
    found = [line for _ in range(5) for line in lines.add(entry(b"x" * LONGEST_LINE))]
    assert [len(line.text) for line in found] == [LONGEST_LINE] * 5


def test_the_last_lines_are_kept() -> None:
    last, lines = LastLines(2, longest=3), Lines()
    for data in (b"one\ntwo\nthree\nfo", b"ur"):
        for line in lines.add(entry(data)):
            last.add(line)
    assert last.lines() == ["thr", "fou"]


def test_an_end_before_what_was_waited_for_is_told_with_the_last_lines() -> None:
    problem = ended_first("prc_1", "said 'ready'", End(cause="exited", code=3), ["a", "boom"])
    assert problem.code is ErrorCode.COMMAND_FAILED
    assert problem.message == "the process prc_1 ended with exit code 3 before it said 'ready': boom"
    assert problem.details["last_lines"] == ["a", "boom"]
    killed = ended_first("prc_1", "x", End(cause="killed", signal=9), [])
    assert "killed, signal 9" in killed.message
    assert "ended with lost before" in ended_first("prc_1", "x", End(cause="lost"), []).message
