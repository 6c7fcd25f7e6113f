from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.end import End
from sandcell_container.memo import Memo, note_exit, note_start, read_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLED, EXITED_137, EXITED_3 = 9, 137 << 8, 3 << 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memo"


@pytest.fixture
def file(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    yield fd
    os.close(fd)


def test_what_was_made_is_lost_at_the_next_start(file: int) -> None:
    first = Memo(file)
    first.note_made("context", "a")
    assert not first.is_lost("context", "a")
    second = Memo(file)
    assert second.is_lost("context", "a")
    assert not second.is_lost("session", "a")
    assert (second.has_lost("context"), second.has_lost("session")) == (True, False)
    second.note_made("context", "a")
    assert not second.is_lost("context", "a")
    assert not second.has_lost("context")
    assert Memo(file).is_lost("context", "a")


def test_exposures_outlive_starts_until_they_are_over(file: int) -> None:
    first = Memo(file)
    first.note_exposure(8000, "old", None)
    first.note_exposure(8000, "token", "web")
    first.note_exposure(9000, "other", None)
    first.note_exposure(9000, None, None)
    assert Memo(file).exposures == Memo(file).exposures == {8000: ("token", "web")}


def test_without_a_file_it_works_for_one_start() -> None:
    memo = Memo(None)
    memo.note_made("process", "p")
    memo.note_end(End(cause="culled"))
    assert not memo.is_lost("process", "p")


def test_it_stays_bounded(file: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandcell_container.memo._MOST_IDS", 10)
    monkeypatch.setattr("sandcell_container.memo._MOST_BYTES", 1000)
    memo = Memo(file)
    for number in range(500):
        memo.note_made("process", f"p{number}")
        assert path.stat().st_size < 1200
    again = Memo(file)
    assert [name for name in range(500) if again.is_lost("process", f"p{name}")] == list(range(490, 500))


def test_many_runs_push_out_nothing_else(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandcell_container.memo._MOST_IDS", 10)
    memo = Memo(file)
    memo.note_made("context", "a")
    for number in range(20):
        memo.note_made("run", f"r{number}")
    for again in (Memo(file), Memo(file)):
        assert again.is_lost("context", "a")
        assert again.is_lost("run", "r19")
        assert not again.is_lost("run", "r0")


@pytest.mark.parametrize(
    "cut", [b'{"made": ["con', b"\xff\x00\n", b"[]\n3\n{}\n", b'{"made": "x"}\n{"end": {"cause": "no"}}\n']
)
def test_what_is_no_line_of_it_is_passed_over(file: int, path: Path, cut: bytes) -> None:
    Memo(file).note_made("context", "a")
    os.write(file, cut)
    assert Memo(file).is_lost("context", "a")
    assert read_end(path) is None


def test_the_guests_own_word_comes_first(file: int, path: Path) -> None:
    Memo(file).note_end(End(cause="culled", limit="idle_timeout", at=1.0))
    note_exit(file, "guest", 0)
    assert read_end(path) == End(cause="culled", limit="idle_timeout", at=1.0)


def test_without_it_the_first_death_counts(file: int, path: Path) -> None:
    note_exit(file, "guest", EXITED_3)
    note_exit(file, "spawner", KILLED)
    found = read_end(path)
    assert found is not None and (found.cause, found.code) == ("exited", 3)


@pytest.mark.parametrize("status", [KILLED, EXITED_137])
def test_a_guest_that_lost_its_spawner_leaves_the_word_to_that(file: int, path: Path, status: int) -> None:
    memo = Memo(file)
    note_exit(file, "spawner", status)
    memo.note_end(End(cause="lost"))
    note_exit(file, "guest", 0)
    found = read_end(path)
    assert found is not None and (found.cause, found.signal) == ("signaled", 9)


def test_an_end_is_that_of_the_last_start(file: int, path: Path) -> None:
    Memo(file).note_end(End(cause="culled"))
    note_start(file, 2)
    assert read_end(path) is None
    note_exit(file, "guest", KILLED)
    found = read_end(path)
    assert found is not None and found.signal == 9


def test_nothing_is_known_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_end(tmp_path / "none") is None
