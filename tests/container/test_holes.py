from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandcell_container.file_copy import copy_piece
from sandcell_container.holes import write_with_holes

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
TEXT = os.urandom(70_000)
CONTENTS = [
    b"",
    b"x",
    bytes(3),
    bytes(MIB),
    TEXT,
    TEXT + bytes(MIB),
    bytes(MIB) + TEXT,
    TEXT + bytes(MIB) + TEXT,
]


def room(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_what_is_written_is_what_was_given_and_zeros_take_no_room(tmp_path: Path) -> None:
    for number, content in enumerate(CONTENTS):
        path = tmp_path / str(number)
        with path.open("wb", buffering=0) as file:
            for at in range(0, len(content), 300_000):
                write_with_holes(file.fileno(), content[at : at + 300_000])
            file.truncate(file.tell())
        assert path.read_bytes() == content
        assert room(path) < MIB


def test_a_hole_is_copied_as_one(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        for at in (MIB, 40 * MIB):
            file.seek(at)
            file.write(TEXT)
        file.truncate(2**40)
    with source.open("rb") as given, target.open("wb") as made:
        done = 0
        while count := copy_piece(given.fileno(), made.fileno(), done, 2**36):
            done += count
    assert (done, target.stat().st_size) == (2**40, 2**40)
    assert room(target) < MIB
    with target.open("rb") as file:
        assert file.read(MIB) == bytes(MIB)
        assert file.read(len(TEXT)) == TEXT
        file.seek(40 * MIB)
        assert file.read(len(TEXT) + 5) == TEXT + bytes(5)


def test_a_pipe_gets_zeros(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"")
    os.truncate(tmp_path / "source", 1000)
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, (tmp_path / "source").open("rb") as given:
        with open(writing, "wb") as made:
            assert copy_piece(given.fileno(), made.fileno(), 0, 1000) == 1000
        assert reader.read() == bytes(1000)
