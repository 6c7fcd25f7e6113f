"""The bar that fills while something is copied."""

from __future__ import annotations

from typing import Any

import pytest

from sandcell.errands import stage
from sandcell.errands.stage import Bar


class Shown:
    """What a cell shows, and the clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.drawn: list[tuple[str, bool]] = []

    def monotonic(self) -> float:
        return self.now

    def draw(self, data: dict[str, Any], display_id: str, *, is_update: bool) -> None:
        assert "<progress" in data["text/html"]
        assert display_id
        self.drawn.append((data["text/plain"], is_update))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    made = Shown()
    monkeypatch.setattr(stage, "time", made)
    return made


def test_a_copy_that_is_quick_has_no_bar(shown: Shown) -> None:
    bar = Bar("upload of a", shown.draw)
    bar(5, 10)
    bar.finish(10)
    assert shown.drawn == []


def test_one_display_is_updated_now_and_then_and_shows_the_end(shown: Shown) -> None:
    bar = Bar("upload of <a>", shown.draw)
    for done in range(10):
        shown.now += 0.1
        bar(done * 2**20, 9 * 2**20)
    bar.finish(9 * 2**20)
    assert shown.drawn == [
        ("upload of <a>: 2.0 MiB of 9.0 MiB", False),
        ("upload of <a>: 5.0 MiB of 9.0 MiB", True),
        ("upload of <a>: 8.0 MiB of 9.0 MiB", True),
        ("upload of <a>: 9.0 MiB of 9.0 MiB", True),
    ]


def test_where_the_size_is_not_known_it_says_how_much_there_was(shown: Shown) -> None:
    bar = Bar("upload of a folder", shown.draw)
    shown.now += 1
    bar(2048, None)
    assert shown.drawn == [("upload of a folder: 2.0 KiB", False)]
