"""What a page in a browser is told of a terminal, which hostile code writes to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandcell.errands.control_text import ControlText
from sandcell.errands.screen import TerminalScreen


def fed(*pieces: bytes, cols: int = 20, rows: int = 4) -> TerminalScreen:
    screen = TerminalScreen(cols, rows)
    for each in pieces:
        screen.feed(each)
    return screen


def texts(patch: dict[str, Any]) -> dict[str, str]:
    return {row: "".join(text for text, _ in runs).rstrip() for row, runs in patch["rows"].items()}


def test_text_comes_as_pieces_of_one_style_each() -> None:
    patch = fed(b"plain \x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3;4;7mown\x1b[0m\x1b[?25l").patch()
    assert patch["rows"]["0"] == [
        ("plain ", ""),
        ("red", "fg-red bg-default bold"),
        (" ", ""),
        ("own", "fg-010203 bg-default underscore reverse"),
    ]


def test_only_what_has_changed_is_told_and_the_cursor_is_part_of_it() -> None:
    screen = fed(b"one\r\ntwo")
    assert texts(screen.patch()).keys() == {"0", "1", "2", "3"}
    screen.feed(b"\x1b[1;1H")
    patch = screen.patch()
    assert texts(patch) == {"0": "one", "1": "two"}
    assert patch["rows"]["0"][0] == ("o", "cursor")
    assert [*texts(screen.patch())] == ["0"]


def test_rows_that_leave_at_the_top_are_kept_by_the_page() -> None:
    screen = fed(b"\r\n".join(b"%d" % number for number in range(10)))
    patch = screen.patch()
    assert [runs[0][0] for runs in patch["scrolled"]] == ["0", "1", "2", "3", "4", "5"]
    assert texts(patch) == {"0": "6", "1": "7", "2": "8", "3": "9"}
    assert screen.patch()["scrolled"] == []


def test_a_full_screen_program_leaves_the_screen_as_it_was() -> None:
    screen = fed(b"before", b"\x1b[?1049h\x1b[2J\x1b[1;1Hinside" + b"\n" * 9)
    assert texts(screen.patch())["0"] == ""
    screen.feed(b"\x1b[?1049l")
    patch = screen.patch()
    assert texts(patch)["0"] == "before"
    assert patch["scrolled"] == []


def test_modes_that_change_what_keys_send_are_told() -> None:
    screen = fed(b"\x1b[?1h\x1b[?2004h")
    assert (screen.patch()["app_keys"], screen.patch()["paste"]) == (True, True)
    screen.feed(b"\x1b[?1l\x1b[?2004l")
    assert (screen.patch()["app_keys"], screen.patch()["paste"]) == (False, False)


def test_questions_are_answered_and_other_sizes_are_bounded() -> None:
    screen = TerminalScreen(10**9, -5)
    assert screen.size == (500, 2)
    assert screen.feed(b"ab\x1b[6n") == "\x1b[1;3R"
    assert len(screen.feed(b"\x1b[6n" * 1000)) <= 1024
    screen.feed(b"\x1b[?3h")  # 132 columns, as programs of another age ask
    screen.resize(30, 10)
    assert screen.size == (30, 10)


def test_a_sequence_that_nobody_knows_costs_itself_and_nothing_else() -> None:
    assert texts(fed(b"a\x1b[?5Ab\x1b[1;2;3;4Ac\x1b[?4md").patch())["0"] == "abcd"


def test_what_has_no_end_is_not_kept() -> None:
    text = ControlText()
    for _ in range(50):
        assert "".join(text.feed(b"\x1b]0;title" * 1000)) == ""
    assert "".join(text.feed(b"\x07after")) == "after"
    digits = [text.feed(b"\x1b[" + b"1" * 1000)] + [text.feed(b"1" * 1000) for _ in range(50)]
    assert max(len("".join(each)) for each in digits) <= 1000
    letter = "".join(ControlText().feed(("a" + "\u0301" * 10_000).encode()))
    assert len(letter) <= 5
    assert "".join(ControlText().feed("a\u200db\u202ec".encode())) == "abc"
    screen = fed(b"\x1b7" * 10_000)
    assert texts(screen.patch())["0"] == ""


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_a_cut_anywhere_changes_nothing(pieces: list[bytes]) -> None:
    whole, cut = ControlText(), ControlText()
    assert "".join(whole.feed(b"".join(pieces)) + whole.feed(b"\x1b\\.")).endswith(".")
    assert "".join(token for piece in [*pieces, b"\x1b\\."] for token in cut.feed(piece)).endswith(".")


def sequence(mark: str, numbers: list[int], final: str) -> bytes:
    return f"\x1b[{mark}{';'.join(map(str, numbers))}{final}".encode()


SEQUENCES = st.one_of(
    st.binary(max_size=8),
    st.builds(
        sequence,
        st.sampled_from(["", "?", ">", "!", "="]),
        st.lists(st.integers(0, 10**12), max_size=6),
        st.characters(min_codepoint=0x40, max_codepoint=0x7E),
    ),
    st.sampled_from(
        [b"\x1b7", b"\x1b8", b"\x1bM", b"\x1bc", b"\x1b#8", b"\x1b(0", b"\xc2\x9b5A", "漢e\u0301".encode()]
    ),
)


@given(st.lists(SEQUENCES, max_size=30))
def test_nothing_that_is_written_breaks_a_screen(pieces: list[bytes]) -> None:
    screen = fed(*pieces)
    patch = screen.patch()
    assert patch["lines"] == 4
    assert all(sum(len(text) for text, _ in runs) <= 20 * 5 for runs in patch["rows"].values())
    screen.resize(10, 8)
    screen.feed(b"\x1bc\x1b[1;1Hfine")
    assert texts(screen.patch())["0"] == "fine"
