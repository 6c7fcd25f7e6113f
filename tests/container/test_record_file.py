from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.end import End
from sandcell_container.record_file import encode_record, read_record, write_record

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_holds_text_of_any_bytes(tmp_path: Path) -> None:
    kept = {"A": "a 'b' \"c\" \n\\ é \udcff\udcfe", "B": "\ud83d"}
    write_record(tmp_path / "record.json", encode_record(kept))
    assert read_record(tmp_path / "record.json", dict[str, str]) == kept
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]


def test_what_is_not_there_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert read_record(tmp_path / "record.json", End) is None
    assert read_record(tmp_path / "file" / "record.json", End) is None


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[]", b'{"cause": 5, "at": 1}'])
def test_what_does_not_fit_is_told(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "record.json").write_bytes(text)
    with pytest.raises(ValueError):  # any kind of it
        read_record(tmp_path / "record.json", End)


def test_what_might_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "folder", "device", "loop"):
        with pytest.raises(ValueError):  # its words are the system's
            read_record(tmp_path / name, End)
