from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.tree_copy import copy_tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def copied(source: Path) -> Path:
    target = source.parent / "target"
    copy_tree(source, target)
    return target


def test_files_folders_modes_and_times_are_the_same(source: Path) -> None:
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "f").write_bytes(b"\x00text")
    (source / "a" / "b" / "f").chmod(0o4751)
    os.utime(source / "a" / "b" / "f", ns=(1, 2))
    os.utime(source / "a", ns=(3, 4))
    (source / b"\xff\n name".decode(errors="surrogateescape")).write_text("")
    target = copied(source)
    found = (target / "a" / "b" / "f").stat()
    assert (target / "a" / "b" / "f").read_bytes() == b"\x00text"
    assert stat.S_IMODE(found.st_mode) == 0o751
    assert found.st_mtime_ns == 2 and (target / "a").stat().st_mtime_ns == 4
    assert sorted(os.listdir(os.fsencode(target))) == sorted(os.listdir(os.fsencode(source)))


def test_links_are_copied_and_never_followed(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (source / "out").symlink_to(outside)
    (source / "file").symlink_to(outside / "secret")
    (source / "loop").symlink_to("loop")
    target = copied(source)
    assert os.readlink(target / "out") == str(outside)
    assert os.readlink(target / "loop") == "loop"
    assert os.readlink(target / "file") == str(outside / "secret")


def test_a_file_of_several_names_stays_one(source: Path) -> None:
    (source / "a").mkdir()
    (source / "a" / "f").write_bytes(b"x" * 100_000)
    os.link(source / "a" / "f", source / "g")
    target = copied(source)
    assert (target / "a" / "f").stat().st_ino == (target / "g").stat().st_ino
    assert (target / "g").read_bytes() == b"x" * 100_000


def test_holes_stay_holes(source: Path) -> None:
    with (source / "endless").open("wb") as file:
        file.seek(2**30)
        file.write(b"end")
        file.truncate(2**40)
    target = copied(source)
    found = (target / "endless").stat()
    assert found.st_size == 2**40
    assert found.st_blocks * 512 < 2**20
    with (target / "endless").open("rb") as file:
        file.seek(2**30)
        assert file.read(4) == b"end\x00"


def test_pipes_sockets_and_devices_are_left_out(source: Path) -> None:
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "s"))
    (source / "f").write_text("")
    assert [each.name for each in copied(source).iterdir()] == ["f"]


def test_what_is_too_deep_is_refused(source: Path) -> None:
    folder = source
    for _ in range(202):
        folder = folder / "d"
        folder.mkdir()
    with pytest.raises(SandcellError) as caught:
        copied(source)
    assert caught.value.code is ErrorCode.UNSUPPORTED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_copy_is_given_to_its_owner(source: Path, tmp_path: Path) -> None:
    (source / "d").mkdir()
    (source / "d" / "f").write_text("")
    (source / "l").symlink_to("/etc/passwd")
    copy_tree(source, tmp_path / "target", owner=61999)
    owners = {(tmp_path / "target" / name).lstat().st_uid for name in ("", "d", "d/f", "l")}
    assert owners == {61999}
    assert Path("/etc/passwd").stat().st_uid == 0
