from __future__ import annotations

import shlex
import time
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandcell_kernel.words import split_words


@example('"\\')
@example('"a\\\\')
@example("'a\\")
@given(st.text(alphabet="ab \t\r'\"\\=-#$\n"))
def test_quotes_are_those_of_a_shell(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError as problem:
        with pytest.raises(ValueError, match=str(problem)):
            split_words(line)
    else:
        assert split_words(line) == expected


@pytest.mark.parametrize("blank", ["\xa0", "\u2003", "\u3000", "\u2028", "\x0b", "\x0c", "\x1c", "\x85"])
def test_every_blank_is_one(blank: str) -> None:
    assert split_words(f"{blank}a{blank}{blank}b '{blank}'{blank}") == ["a", "b", blank]


@pytest.mark.parametrize("text", ["x", "x ", "'", "\\x", '"x" ', '"\\', "''"])
def test_the_time_grows_with_the_line_and_not_with_its_square(text: str) -> None:
    line = text * (1_000_000 // len(text))
    began = time.process_time()
    with suppress(ValueError):
        split_words(line)
    assert time.process_time() - began < 20  # shlex takes more for a fifth of it
