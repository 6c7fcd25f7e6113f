"""The network "open" of the engine local: every public host, nothing of this machine or beside it, whatever is tried."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.network_site import refusals

from sandcell import ErrorCode, Sandbox, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import GuestProcess, Place

pytestmark = pytest.mark.usefixtures("tunnel")

_WORKS = {
    "public": "93.184.215.14",
    "by name": "93.184.215.14",
    "listed": "10.9.8.6",
    "datagram": "hello",
    "rebound": ["93.184.215.14", "EHOSTUNREACH"],
}
_ARRIVES = ["10.9.8.53:53", "10.9.8.6:80", "93.184.215.14:80", "93.184.215.14:9999"]


@pytest.mark.short
def test_only_what_is_public_or_listed_is_reached_whatever_user_code_tries(tmp_path: Path) -> None:
    _judge(_attack("local", tmp_path))


@pytest.mark.docker
def test_from_a_container_no_more_is_reached(place: Place, tmp_path: Path) -> None:
    _judge(_attack(place.name, tmp_path))


def _judge(said: dict[str, Any]) -> None:
    found: dict[str, Any] = said["found"]
    assert {name: found.pop(name) for name in _WORKS} == _WORKS
    undone = [
        name for name, came in found.items() if came not in {"refused"} and not str(came).startswith("E")
    ]
    assert not undone, found
    for name in ("private", "metadata", "machine", "decimal", "inside.wild.example.org"):
        assert found[name] == "EHOSTUNREACH"  # at once, and not by a time that passes
    for name in ("rules", "rules by another table", "device down", "address", "neighbour"):
        assert found[name] in ("refused", "ENOENT")  # the image has no such programs
    assert (found["rules by hand"], found["device down by hand"]) == ("EPERM", "EPERM")
    assert said["arrived"] == _ARRIVES


def _attack(engine: str, folder: Path) -> dict[str, Any]:
    """Run `open_attack` in a sandbox of a machine in a network of the test's own."""
    identity = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    here = Path(__file__)
    done = subprocess.run(
        [
            "unshare",
            *identity,
            "--net",
            "--mount",
            sys.executable,
            "-m",
            "tests.e2e.open_world",
            engine,
            str(folder),
        ],
        env={**os.environ, "SANDCELL_STATE_DIR": str(folder / "state")},
        cwd=here.parents[2],
        input=here.with_name("open_attack.py").read_text(),
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_what_connects_it_has_no_power_and_ends_with_it(guest: GuestProcess) -> None:
    with _opened(guest) as (_, tunnel):
        status = _status(tunnel)
        assert int(status["CapEff"], 16) & ~(1 << 10) == 0  # nothing, or to listen below 1024
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        if os.geteuid() == 0:
            assert "0" not in status["Uid"].split()
            assert sorted(each.name for each in Path(f"/proc/{tunnel}/root").iterdir()) == ["etc", "run"]
        handle = os.pidfd_open(tunnel)
    try:
        assert select.select([handle], [], [], 20)[0]
    finally:
        os.close(handle)


def test_a_living_sandbox_is_opened_and_closed_and_keeps_its_files() -> None:
    with Sandbox.create(engine="local", env={"GIVEN": "1"}) as box:
        box.files.write("note", "kept")
        assert _devices(box) == {"lo"}
        changed = box.update(network="open")
        assert changed.restarted
        assert (box.info().network, _devices(box)) == ("open", {"lo", "tap0"})
        assert box.exec("echo $GIVEN$http_proxy").stdout == "1\n"
        assert box.update(network=["open", "10.1.2.3:5432"]).restarted
        assert box.info().network == ("open", "10.1.2.3:5432")
        box.stop()
        assert _devices(box) == {"lo", "tap0"}  # started by the call
        assert box.update(network=["pypi.org"]).restarted
        assert _devices(box) == {"lo"}
        assert box.update(network="none").restarted
        assert (_devices(box), box.files.read("note")) == ({"lo"}, "kept")


def test_without_its_tunnel_a_sandbox_goes_on_and_reaches_nothing(guest: GuestProcess) -> None:
    with _opened(guest) as (made, tunnel):
        os.kill(tunnel, signal.SIGKILL)
        assert "slirp4netns of the sandbox has ended" in refusals(made)[0]
        assert made.run_code("1 + 1").value == 2
        assert _devices(made) == {"lo"}
        made.restart()
        assert _devices(made) == {"lo", "tap0"}


def test_what_is_refused_is_told_once_with_the_way_to_allow_it() -> None:
    ask = (
        "import socket\nfor host, port in (('10.1.2.3', 5432), ('10.1.2.3', 5432), ('169.254.169.254', 80)):\n"
        "    socket.socket().connect_ex((host, port))"
    )
    with Sandbox.create(engine="local", network="open") as made:
        made.exec(["python3", "-c", ask])
        first, second = refusals(made, 2)
        assert "may not reach 10.1.2.3:5432" in first
        assert 'update(network=["open", "10.1.2.3:5432"])' in first
        assert "may not reach 169.254.169.254:80" in second


def test_what_is_missing_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sandcell_container.engines.tunnel.FOLDERS", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandcellError) as caught:
        Sandbox.create(engine="local", network="open")
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "apt install slirp4netns nftables" in caught.value.hint


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("nft", "nft cannot make the packet filter"), ("slirp4netns", "slirp4netns does not run here")],
)
def test_what_does_not_run_is_no_reason_to_start_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str, reason: str
) -> None:
    script = tmp_path / broken
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandcellError) as caught:
        Sandbox.create(engine="local", network="open")
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert reason in caught.value.message
    assert caught.value.hint


def _devices(sandbox: Sandbox) -> set[str]:
    lines = sandbox.exec("cat /proc/net/dev").stdout.splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


@contextmanager
def _opened(guest: GuestProcess) -> Generator[tuple[Sandbox, int]]:
    """Yield a sandbox with the network "open", and the pid of what connects it: a child of the zygote, as `guest` is."""
    before = _children_of_zygote(guest)
    with Sandbox.create(engine="local", network="open") as made:
        new = _children_of_zygote(guest) - before
        (tunnel,) = (pid for pid in new if _status(pid)["Name"] == "slirp4netns")
        yield made, tunnel


def _children_of_zygote(guest: GuestProcess) -> set[int]:
    zygote = _status(guest.pid)["PPid"]
    return {int(pid) for pid in Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()}


def _status(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
