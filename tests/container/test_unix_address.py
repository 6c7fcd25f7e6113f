from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from sandcell_container.unix_address import connect_address, listen_at

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("length", [10, 107, 108, 240])
def test_a_socket_is_reached_at_a_path_of_any_length(tmp_path: Path, length: int) -> None:
    folder = tmp_path
    while len(str(folder)) < length - 20:
        folder = folder / "deep-folder"
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / "guest.sock")
    with listen_at(path) as listener, socket.socket(socket.AF_UNIX) as client:
        with connect_address(path) as address:
            client.connect(address)
        accepted, _ = listener.accept()
        with accepted:
            client.sendall(b"hello")
            assert accepted.recv(100) == b"hello"


def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    path = str(tmp_path / "guest.sock")
    before = os.umask(0)
    try:
        with listen_at(path):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    finally:
        os.umask(before)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with connect_address(str(folder / "guest.sock")) as address:
        assert address.startswith("/proc/self/fd/")
    assert os.listdir("/proc/self/fd") == before


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), connect_address(str(tmp_path / ("x" * 120) / "guest.sock")):
        pass
