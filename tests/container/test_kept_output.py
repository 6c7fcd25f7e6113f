"""What is kept of an output, with a store of files that answers when it is told to."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from sandcell_container.guest.kept_output import KeptOutput
from sandcell_container.guest.spill import Spill
from sandcell_container.journal import Journal, Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Store:
    """Makes files in a folder of the tests, once `answer` is called; None where the disk is full."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.asked: list[tuple[str, Callable[[int | None], None]]] = []
        self.removed: list[str] = []

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        self.asked.append((path, callback))

    def remove_soon(self, path: str) -> None:
        self.removed.append(path)

    def answer(self) -> None:
        path, callback = self.asked.pop()
        callback(None if self.full else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


class Resumed:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def kept_by(store: Store, path: Path) -> KeptOutput:
    return KeptOutput("stdout", Kind.STDOUT, 10, spill=Spill(store, str(path)))


def test_what_fits_is_whole_and_makes_no_file(tmp_path: Path) -> None:
    store, journal = Store(), Journal("e")
    kept = kept_by(store, tmp_path / "out")
    kept.take(b"12345", Resumed())
    kept.take(b"67890", Resumed())
    assert kept.finish_into(journal) is None
    assert [(e.kind, e.data) for e in journal.read(journal.start)] == [(Kind.STDOUT, b"1234567890")]
    assert store.asked == []


def test_the_first_bytes_too_many_wait_for_the_file_that_gets_all(tmp_path: Path) -> None:
    store, resumed, journal = Store(), Resumed(), Journal("e")
    kept = kept_by(store, tmp_path / "out")
    kept.take(b"1234567", resumed)
    kept.take(b"89abc", resumed)
    assert kept.is_waiting and resumed.count == 0
    store.answer()
    assert not kept.is_waiting and resumed.count == 1
    kept.take(b"defg", resumed)
    said = kept.finish_into(journal)
    assert said is not None
    assert (said.path, said.total_bytes, said.bytes) == (str(tmp_path / "out"), 16, 8)
    assert (tmp_path / "out").read_bytes() == b"123456789abcdefg"
    head, gap, tail = journal.read(journal.start)
    assert (head.data, tail.data) == (b"1234", b"defg")
    assert json.loads(gap.data) == {"stream": "stdout", "bytes": 8, "lines": 0, "entries": 0}


def test_a_file_that_cannot_be_made_is_not_named(tmp_path: Path) -> None:
    store = Store(full=True)
    kept = kept_by(store, tmp_path / "out")
    kept.take(b"x" * 20, Resumed())
    store.answer()
    said = kept.finish()
    assert said is not None and said.path is None and said.total_bytes == 20


def test_without_a_store_nothing_waits() -> None:
    kept = KeptOutput("stderr", Kind.STDERR, 10)
    kept.take(b"x" * 20, Resumed())
    assert not kept.is_waiting
    said = kept.finish()
    assert said is not None and said.path is None
