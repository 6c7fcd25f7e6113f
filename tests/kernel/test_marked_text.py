"""Text and marks out of bytes, however they were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_kernel.marked_text import MarkedText, new_mark

MARK = b"\xfe" + bytes(range(200, 215))  # fixed: a drawn one may go on as the text of a test does


def mark(number: int) -> bytes:
    return MARK + number.to_bytes(8, "big")


def read(*pieces: bytes) -> list[str | int]:
    """Return the parts of `pieces`, texts that follow each other joined."""
    reader, parts = MarkedText(MARK), list[str | int]()
    for part in [*(part for piece in pieces for part in reader.feed(piece)), reader.finish()]:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part != "":
            parts.append(part)
    return parts


def test_a_new_mark_is_no_text_and_no_other_mark() -> None:
    assert len(new_mark()) == len(MARK)
    assert new_mark() != new_mark()
    assert new_mark()[:1] == MARK[:1]


def test_text_alone() -> None:
    assert read(b"a\0b\n") == ["a\0b\n"]


def test_marks_stand_where_they_were_written() -> None:
    assert read(b"a" + mark(1) + mark(2) + b"b" + mark(2**40)) == ["a", 1, 2, "b", 2**40]


@pytest.mark.parametrize("cut", range(1, 2 * len(mark(0))))
def test_a_mark_may_be_cut_anywhere(cut: int) -> None:
    data = b"before" + mark(7) + b"after, and more"
    assert read(data[:cut], data[cut:]) == ["before", 7, "after, and more"]


def test_a_code_point_around_a_mark_is_whole() -> None:
    face = "\U0001f600".encode()
    assert read(face[:2] + mark(1) + face[2:]) == [1, "\U0001f600"]


@pytest.mark.parametrize("data", [b"\xff", b"\xfe", b"a\xfeb", b"\xf0\x9f", MARK[:-1], MARK, mark(1)[:-1]])
def test_what_is_no_text_and_no_mark_is_shown_as_such(data: bytes) -> None:
    (text,) = read(data)
    assert isinstance(text, str)
    assert "�" in text


def test_what_may_become_a_mark_is_held_back_and_no_more() -> None:
    reader = MarkedText(MARK)
    assert reader.feed(b"text" + MARK[:3]) == ["text"]
    assert reader.feed(b"x") == [(MARK[:3] + b"x").decode("utf-8", "replace")]


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 2**63))),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_cuts_change_nothing(parts: list[bytes | int], cuts: list[int]) -> None:
    data = b"".join(mark(part) if isinstance(part, int) else part for part in parts)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert read(*(data[a:b] for a, b in pairwise(places))) == read(data)
