"""What is downloaded replaces a local file whole, or leaves it as it was."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from sandcell.client.aio.channel import write_chunks as write_chunks_aio
from sandcell.client.blocking.channel import write_chunks
from sandcell.notebook_file import check_target
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


def broken() -> Iterator[bytes]:
    yield b"half"
    raise ConnectionError("cut")


async def broken_aio() -> AsyncIterator[bytes]:
    for chunk in broken():
        yield chunk


def test_a_download_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"whole")
    with pytest.raises(ConnectionError):
        write_chunks(str(old), broken())
    with pytest.raises(ConnectionError):
        asyncio.run(write_chunks_aio(str(old), broken_aio()))
    assert old.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [old]


def test_a_download_keeps_the_mode_and_goes_through_a_symlink(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch(mode=0o640)
    link.symlink_to(target)
    write_chunks(str(link), iter([b"new"]))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to("/dev/null")
    for path in (fifo, link):
        with pytest.raises(OSError, match="no regular file"):
            write_chunks(str(path), iter([b"x"]))
        with pytest.raises(SandcellError, match="no regular file"):
            check_target(path)
    with pytest.raises(IsADirectoryError):
        write_chunks(str(tmp_path), iter([b"x"]))
    assert fifo.is_fifo() and sorted(tmp_path.iterdir()) == [fifo, link]
