"""Bytes from a socket into a file, by the kernel."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import pytest

from sandcell_container.pour import Pour

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.fixture
def ends() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.0)
        yield ours, theirs


def pour_all(sock: socket.socket, fd: int) -> int:
    total = 0
    with Pour(fd) as pour:
        while count := pour.fill(sock.fileno(), 2**30):
            pour.drain()
            total += count
    return total


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_WRONLY | os.O_APPEND])
def test_all_that_comes_is_written(
    flags: int, ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    """Into a file that is written behind its end the kernel pours nothing: that is copied."""
    ours, theirs = ends
    (tmp_path / "f").write_bytes(b"")
    theirs.sendall(b"x" * 100_000)
    theirs.close()
    fd = os.open(tmp_path / "f", flags)
    assert pour_all(ours, fd) == 100_000
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"x" * 100_000


def test_nothing_yet_is_told(ends: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file, Pour(file.fileno()) as pour, pytest.raises(BlockingIOError):
        pour.fill(ends[0].fileno(), 10)


def test_what_cannot_be_written_is_dropped_and_told(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"lost")
    full = os.open("/dev/full", os.O_WRONLY)
    with Pour(full) as pour:
        assert pour.fill(ours.fileno(), 100) == 4
        with pytest.raises(OSError) as caught:
            pour.drain()
        assert caught.value.errno == errno.ENOSPC
        pour.drain()  # nothing is left
    os.close(full)
