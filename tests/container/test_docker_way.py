"""The proxy of a container, without a container: the test comes to it as the entry would."""

from __future__ import annotations

import socket
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from sandcell_container.engines.docker_folder import Folder
from sandcell_container.engines.docker_way import open_way
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.policy import add_policy
from sandcell_container.spec import SandboxSpec
from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_DEADLINE_S = 30.0


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "sbx_1")
    made.create()
    return made


def spec(*hosts: str) -> SandboxSpec:
    return SandboxSpec(id="sbx_1", name="one", network=hosts)


@contextmanager
def way_in(folder: Folder) -> Generator[tuple[socket.socket, int]]:
    """Start a proxy and be the entry: yields what would be the guest's end, and the port of the proxy."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as way:
        way.settimeout(_DEADLINE_S)
        with (
            open_way(folder, spec("listed.invalid"), time.monotonic() + _DEADLINE_S),
            socket.create_server(("127.0.0.1", 0)) as listener,
            connect_address(folder.way) as address,
        ):
            way.connect(address)
            socket.send_fds(way, [b"listener"], [listener.fileno()])
            port: int = listener.getsockname()[1]
            assert way.recv(4096) == b"taken"
        yield way, port


def ask(port: int, host: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S) as client:
        client.sendall(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        return client.makefile().readline()


def test_it_serves_who_connects_inside_and_tells_what_it_refused(folder: Folder) -> None:
    with way_in(folder) as (way, port):
        assert "HOST_NOT_ALLOWED" in ask(port, "other.invalid")
        assert b"other.invalid" in way.recv(4096)
        assert "UNREACHABLE" in ask(port, "listed.invalid")
        add_policy(folder.path, ("other.invalid",))
        assert "UNREACHABLE" in ask(port, "other.invalid")
        assert "HOST_NOT_ALLOWED" in ask(port, "listed.invalid")


def test_it_ends_with_the_guest(folder: Folder) -> None:
    with way_in(folder) as (way, port):
        way.shutdown(socket.SHUT_WR)
        assert way.recv(4096) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)


def test_a_container_that_comes_to_no_proxy_is_an_error(folder: Folder) -> None:
    with (
        pytest.raises(SandcellError) as failed,
        open_way(folder, spec("a.org"), time.monotonic() + _DEADLINE_S),
    ):
        pass
    assert failed.value.code is ErrorCode.START_FAILED
    assert "same version" in failed.value.hint


def test_a_start_that_fails_is_told_as_what_it_is(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError), open_way(folder, spec("a.org"), time.monotonic() + _DEADLINE_S):
        raise ZeroDivisionError
    assert sorted(each.name for each in folder.path.iterdir()) == ["network", "proxy.log"]


def test_without_a_network_there_is_none(folder: Folder) -> None:
    with open_way(folder, SandboxSpec(id="sbx_1", name="one"), time.monotonic()):
        assert list(folder.path.iterdir()) == []
