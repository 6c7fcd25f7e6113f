"""Changes inside a text: the pure part."""

from __future__ import annotations

import pytest

from sandcell_container.guest.worker.editing import insert_after, replace_all
from sandcell_container.guest.worker.opening import Refusal


def test_edits_are_done_in_order_each_on_what_is_left() -> None:
    assert replace_all(b"a b", [(b"a", b"b c"), (b"b c", b"x")]) == b"x b"


@pytest.mark.parametrize(("data", "count"), [(b"none", 0), (b"old old", 2)])
def test_a_text_that_is_not_there_once_is_refused_with_the_count(data: bytes, count: int) -> None:
    with pytest.raises(Refusal) as caught:
        replace_all(data + b"1", [(b"1", b"2"), (b"old", b"new")])
    assert caught.value.code == "MATCH_COUNT"
    assert caught.value.details == {"count": count, "index": 1}


@pytest.mark.parametrize(
    ("line", "made"),
    [
        (0, b"new\na\nb"),
        (1, b"a\nnew\nb"),
        (2, b"a\nb\nnew\n"),
        (99, b"a\nb\nnew\n"),
    ],
)
def test_lines_are_inserted_behind_a_line(line: int, made: bytes) -> None:
    assert insert_after(b"a\nb", line, b"new") == made


def test_an_empty_file_gets_the_text_alone() -> None:
    assert insert_after(b"", 5, b"x\n") == b"x\n"
