"""The guest as a program of its own, beside a spawner without any isolation."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandcell_container.guest
from sandcell.client.blocking.transport import Transport
from sandcell.client.protocol import Address, Request
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.unix_address import listen_at

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

BOOT = GuestBoot(
    sandbox_id="sbx_test",
    name="test",
    engine="none",
    token="secret",
    epoch="e1",
    created_at=1.0,
    on_release="remove",
    grace=0.0,
    idle_timeout=None,
    default_timeout=None,
    python=sys.executable,
    runtime_dir="/nowhere",
    base_env={"PATH": "/usr/bin:/bin"},
)
SPAWNER = str(Path(sandcell_container.guest.__file__).with_name("spawner.py"))
HEALTH = Request(method="GET", path="/v1/health")
LEASE = Request(method="GET", path="/v1/events", query={"lease": "owner"})


class Running:
    """A guest's process, its spawner's, and a way to it."""

    def __init__(self, folder: Path, boot: GuestBoot) -> None:
        path = str(folder / "guest.sock")
        guest_end, spawner_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with guest_end, spawner_end, listen_at(path) as listener, tempfile.TemporaryFile() as file:
            file.write(boot.to_json())
            file.seek(0)
            given = {"boot": file.fileno(), "listen": listener.fileno(), "spawner": guest_end.fileno()}
            options = [f"--{name}-fd={descriptor}" for name, descriptor in given.items()]
            self.process = _start(["-m", "sandcell.guest", *options], given.values())
            fd = spawner_end.fileno()
            self.spawner = _start(["-I", "-S", SPAWNER, str(fd), "keepers", '{"limits": {}}'], [fd])
        self.transport = Transport(Address(path=path), boot.token, connect_timeout=10.0, reply_timeout=20.0)

    def close(self) -> None:
        self.transport.close()
        for each in (self.process, self.spawner):
            each.kill()
            each.wait()


def _start(argv: list[str], descriptors: Collection[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *argv], pass_fds=descriptors)


@pytest.fixture
def running(tmp_path: Path) -> Generator[Running]:
    made = Running(tmp_path, BOOT)
    yield made
    made.close()


def test_it_answers_and_ends_with_its_spawner(running: Running) -> None:
    assert running.transport.fetch(HEALTH) == b'{"status":"ok"}'
    lease = running.transport.open(LEASE)
    running.spawner.kill()
    assert b"its spawner has ended" in lease.read_all()
    assert running.process.wait(10) == 0


def test_it_ends_with_its_last_lease(running: Running) -> None:
    first, second = running.transport.open(LEASE), running.transport.open(LEASE)
    first.close()
    assert running.transport.fetch(HEALTH)
    second.close()
    assert running.process.wait(10) == 0
    assert running.spawner.wait(10) == 0
    with pytest.raises(SandcellError) as caught:
        running.transport.fetch(HEALTH)
    assert caught.value.code is ErrorCode.SANDBOX_GONE


def test_it_ends_when_nobody_comes(tmp_path: Path) -> None:
    made = Running(tmp_path, replace(BOOT, settings={"start_timeout": "0.2"}))
    assert made.process.wait(20) == 0
    made.close()


def test_it_ends_when_nothing_runs_for_long(tmp_path: Path) -> None:
    made = Running(tmp_path, replace(BOOT, on_release="keep", idle_timeout=0.3))
    made.transport.open(LEASE).close()
    assert made.process.wait(20) == 0
    made.close()


def test_a_stop_is_told_before_it_ends(running: Running) -> None:
    lease = running.transport.open(LEASE)
    running.process.terminate()
    assert b'"reason": "SIGTERM"' in lease.read_all()
    assert running.process.wait(10) == 0
