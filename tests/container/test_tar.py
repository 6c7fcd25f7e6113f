"""Folders as tar: there and back, beside Python's own, and with archives that are made to do harm."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandcell_container.tar_folder import FolderMaker
from sandcell_container.tar_reader import InvalidArchive, TarReader
from sandcell_container.tar_writer import FolderPacker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ODD = ["sp ace", "new\nline", "漢" * 60, "\udcff", "-n", "x" * 250]


def pack(folder: Path) -> bytes:
    return b"".join(FolderPacker(os.fsencode(folder)).chunks())


def unpack(pieces: Iterable[bytes], folder: Path, *, any_links: bool = False) -> FolderMaker:
    folder.mkdir(exist_ok=True)
    maker = FolderMaker(os.fsencode(folder), any_links=any_links)
    try:
        reader = TarReader(maker)
        for piece in pieces:
            reader.feed(piece)
        reader.close()
        maker.finish()
    finally:
        maker.close()
    return maker


def member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    head = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return head + data + bytes(-len(data) % 512)


END = bytes(1024)


def test_a_folder_comes_back_as_it_was_whatever_the_pieces(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    for number, name in enumerate(ODD):
        (source / "deep" / name).write_bytes(b"x" * (number * 511))
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("deep/er")
    os.utime(source / "run", (1_000_000, 1_000_000))
    (source / "deep").chmod(0o500)
    data = pack(source)
    back = tmp_path / "back"
    made = unpack((data[at : at + 700] for at in range(0, len(data), 700)), back)
    assert made.left_out == []
    assert sorted(os.listdir(os.fsencode(back / "deep"))) == sorted([*map(os.fsencode, ODD), b"er"])
    assert (back / "run").stat().st_mtime == 1_000_000
    assert stat.S_IMODE((back / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((back / "deep").stat().st_mode) == 0o500
    assert os.readlink(back / "link") == "deep/er"
    assert pack(back) == data
    for each in (source, back):
        (each / "deep").chmod(0o700)


def test_others_read_what_we_write_and_we_what_they_write(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ODD:
        (source / name).write_bytes(os.fsencode(name))
    with tarfile.open(fileobj=io.BytesIO(pack(source)), errors="surrogateescape") as archive:
        assert sorted(archive.getnames()) == sorted([".", *ODD])
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=form, errors="surrogateescape") as archive:
            archive.add(source, arcname="a" * 120)
        back = tmp_path / f"back{form}"
        unpack([made.getvalue()], back)
        assert sorted(os.listdir(back / ("a" * 120))) == sorted(ODD)


def test_what_is_no_file_is_named_and_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "fifo")
    (source / "file").write_text("x")
    made = unpack([pack(source)], tmp_path / "back")
    assert os.listdir(tmp_path / "back") == ["file"]
    assert [each.partition(":")[0] for each in made.left_out] == ["fifo"]


@pytest.mark.parametrize("any_links", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        member("../out", data=b"x"),
        member("/out", data=b"x"),
        member("a/../../out", data=b"x"),
        member("a", tarfile.LNKTYPE, linkname="/etc/passwd"),
        member("a", tarfile.CHRTYPE),
        member("a", tarfile.FIFOTYPE),
        member("a" * 300, data=b"x"),
        member(".", data=b"x"),
        member("folder", tarfile.DIRTYPE, data=b"content"),
        b"no tar at all" * 100,
        member("a", data=b"x")[:700],
        member("a", data=b"x"),
    ],
    ids=range(12),
)
def test_what_would_do_harm_is_refused(data: bytes, any_links: bool, tmp_path: Path) -> None:  # noqa: FBT001 -- pytest's
    last = b"" if data in {member("a", data=b"x"), member("a", data=b"x")[:700]} else END
    with pytest.raises(InvalidArchive):
        unpack([data + last], tmp_path / "in", any_links=any_links)
    assert not (tmp_path / "out").exists()
    assert not [name for name in os.listdir(tmp_path / "in") if name.startswith(".sandcell")]


@pytest.mark.parametrize("target", ["/etc", "..", "a/../..", "a/../b", "../../../../etc"])
def test_no_symlink_leads_out_of_a_folder_of_this_machine(target: str, tmp_path: Path) -> None:
    made = unpack([member("deep/link", tarfile.SYMTYPE, linkname=target) + END], tmp_path / "in")
    kept = target == ".."  # from deep/ that is the top
    assert (tmp_path / "in" / "deep").exists() is kept
    assert bool(made.left_out) is not kept


def test_nothing_is_written_through_a_symlink(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data = member("link", tarfile.SYMTYPE, linkname=str(outside)) + member("link/file", data=b"x") + END
    with pytest.raises(NotADirectoryError):
        unpack([data], tmp_path / "in", any_links=True)
    assert os.listdir(outside) == []
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "file").symlink_to(outside / "file")
    unpack([member("file", data=b"x") + END], tmp_path / "again")
    assert os.listdir(outside) == []
    assert not (tmp_path / "again" / "file").is_symlink()


def test_a_file_of_zeros_takes_no_room_where_it_comes_to(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with (tmp_path / "folder" / "sparse").open("wb") as file:
        file.truncate(2**26)
    unpack(FolderPacker(os.fsencode(tmp_path / "folder")).chunks(), tmp_path / "other")
    status = (tmp_path / "other" / "sparse").stat()
    assert (status.st_size, status.st_blocks) == (2**26, 0)


@pytest.mark.parametrize("length", [10, 10_000])
def test_one_that_is_compressed_is_called_so(tmp_path: Path, length: int) -> None:
    squeezed = {
        "gzip": gzip.compress(os.urandom(length)),
        "bzip2": bz2.compress(os.urandom(length)),
        "xz": lzma.compress(os.urandom(length)),
    }
    for name, data in squeezed.items():
        with pytest.raises(InvalidArchive, match=f"compressed with {name}"):
            unpack([data], tmp_path / name)


def test_a_header_has_a_bound(tmp_path: Path) -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = b"x", 2**40
    with pytest.raises(InvalidArchive):
        unpack([info.tobuf()], tmp_path / "in")


class Nothing:
    """A sink that makes nothing."""

    def folder(self, name: tuple[bytes, ...], mode: int, mtime: int) -> None:
        check(name)

    def symlink(self, name: tuple[bytes, ...], target: bytes) -> None:
        check(name)

    def begin_file(self, name: tuple[bytes, ...], mode: int, mtime: int) -> None:
        check(name)

    def write(self, data: memoryview) -> None:
        assert data

    def end_file(self) -> None:
        """The file is over."""

    def skipped(self, names: list[str]) -> None:
        assert len(names) <= 1000


def check(name: tuple[bytes, ...]) -> None:
    assert not {b"", b".", b".."} & set(name)
    assert not any(b"/" in part or b"\0" in part for part in name)


SAMPLE = (
    member("folder", tarfile.DIRTYPE)
    + member("é" * 80, data=b"content")
    + member("l", tarfile.SYMTYPE, linkname="y" * 200)
    + END
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), max_size=8),
    st.integers(1, 1500),
)
def test_a_broken_archive_is_refused_or_read_and_nothing_else(
    changes: list[tuple[int, int]], size: int
) -> None:
    data = bytearray(SAMPLE)
    for at, value in changes:
        data[at] = value
        head = at - at % 512  # with the right checksum what is behind it is looked at, too
        block = data[head : head + 512]
        total = sum(block[:148]) + 8 * 32 + sum(block[156:])
        data[head + 148 : head + 156] = b"%06o\0 " % total
    reader = TarReader(Nothing())
    try:
        for at in range(0, len(data), size):
            reader.feed(bytes(data[at : at + size]))
        reader.close()
    except InvalidArchive:
        return


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=3000))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    reader = TarReader(Nothing())
    try:
        reader.feed(data)
        reader.close()
    except InvalidArchive:
        return
