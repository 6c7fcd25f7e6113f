from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_container.headtail import HeadTail

chunks = st.lists(
    st.binary(max_size=40) | st.text(alphabet="aé漢🎉\n", max_size=12).map(str.encode), max_size=30
)


def feed(pieces: list[bytes], bound: int) -> HeadTail:
    keeper = HeadTail(bound)
    for piece in pieces:
        keeper.feed(piece)
    return keeper


@given(chunks, st.integers(1, 200))
def test_what_fits_is_kept_whole_and_nothing_else_is_lost_untold(pieces: list[bytes], bound: int) -> None:
    whole = b"".join(pieces)
    cut = feed(pieces, bound).finish()
    assert cut.total_bytes == len(whole)
    assert len(cut.head) + len(cut.tail) + cut.gap_bytes == len(whole)
    assert cut.is_cut == (len(whole) > bound)
    gap = whole[len(cut.head) : len(whole) - len(cut.tail)]
    assert whole.startswith(cut.head) and whole.endswith(cut.tail)
    assert cut.gap_lines == gap.count(b"\n")
    assert len(cut.head) + len(cut.tail) <= bound


@given(st.text(alphabet="aé漢🎉\n", min_size=60, max_size=300), st.integers(16, 60))
def test_text_is_cut_between_characters(text: str, bound: int) -> None:
    cut = feed([text.encode()], bound).finish()
    assert cut.head.decode() + cut.tail.decode()


@given(chunks, st.integers(1, 200))
def test_it_holds_no_more_than_it_may(pieces: list[bytes], bound: int) -> None:
    keeper = HeadTail(bound)
    for piece in pieces:
        keeper.feed(piece)
        assert sum(map(len, keeper.pieces())) <= bound + 2**12


def test_lines_are_kept_whole() -> None:
    cut = feed([b"%03d\n" % number for number in range(100)], 100).finish()
    assert cut.head == b"".join(b"%03d\n" % number for number in range(11))
    assert cut.tail == b"".join(b"%03d\n" % number for number in range(89, 100))
    assert (cut.gap_bytes, cut.gap_lines) == (78 * 4, 78)


def test_one_long_line_is_split_rather_than_lost() -> None:
    cut = feed([b"x\n" + b"y" * 1000 + b"\nz"], 100).finish()
    assert (len(cut.head), len(cut.tail)) == (45, 45)


def test_while_nothing_is_cut_all_is_held() -> None:
    keeper = feed([b"ab", b"c" * 98], 100)
    assert not keeper.is_cut
    assert b"".join(keeper.pieces()) == b"ab" + b"c" * 98


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        HeadTail(0)
