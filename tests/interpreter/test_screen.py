"""Text as a terminal leaves it, and text too large to keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.screen import BoundedText, Screen, cut_middle, strip_ansi


def shown(*pieces: str, limit: int = 10**6) -> str:
    screen = Screen(limit)
    for piece in pieces:
        screen.write(piece)
    return screen.finish()[0]


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("plain\nlines\n", "plain\nlines\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("100%\rok", "ok0%"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("abc\b\bX", "aXc"),
        ("\b\bx", "x"),
        ("a\n\rb", "a\nb"),
        ("", ""),
        ("\n\n", "\n\n"),
    ],
)
def test_what_a_terminal_would_show(written: str, left: str) -> None:
    assert shown(written) == left


@given(st.text(alphabet="ab\r\n\b😀", max_size=40), st.integers(1, 5))
def test_pieces_do_not_matter(text: str, size: int) -> None:
    assert shown(*(text[at : at + size] for at in range(0, len(text), size))) == shown(text)


@given(st.text(alphabet=st.characters(exclude_characters="\r\b", exclude_categories=["Cs"])))
def test_text_that_moves_no_cursor_is_kept(text: str) -> None:
    assert shown(text) == text


def test_a_line_without_end_is_not_held_for_ever() -> None:
    assert len(shown(*["x" * 10_000] * 50)) == 500_000


def test_the_head_and_the_tail_of_a_flood_are_kept_and_the_rest_counted() -> None:
    text = BoundedText(1000)
    lines = [f"line {number:05}\n" for number in range(10_000)]
    for line in lines:
        text.write(line)
    kept, cut = text.finish()
    assert cut is not None
    assert len(kept) < 1100
    assert kept.startswith("line 00000\n")
    assert kept.endswith("line 09999\n")
    note = next(line for line in kept.splitlines() if line.startswith("["))
    assert note == f"[... {cut.bytes} bytes, {cut.lines} lines left out ...]"
    assert cut.total_bytes == 110_000
    whole = [line for line in kept.splitlines() if line.startswith("line")]
    assert len(whole) + cut.lines == 10_000
    assert all(len(line) == 10 for line in whole)


def test_a_flood_without_lines_is_cut_between_code_points() -> None:
    text = BoundedText(100)
    text.write("😀" * 1000)
    kept, cut = text.finish()
    assert cut is not None
    assert kept.count("😀") == 90
    assert cut.bytes == 910 * 4


def test_text_up_to_the_bound_is_whole() -> None:
    text = BoundedText(100)
    text.write("x" * 60)
    text.write("y" * 40)
    assert text.finish() == ("x" * 60 + "y" * 40, None)


def test_escape_sequences_go() -> None:
    assert strip_ansi("\x1b[31;1mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 \x1b[2K") == "red link "


@given(st.text(max_size=300), st.integers(0, 200))
def test_a_cut_text_fits(text: str, limit: int) -> None:
    assert len(cut_middle(text, limit)) <= limit or len(text) <= limit
