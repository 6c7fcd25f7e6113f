"""What is of the engine local alone: its proxy is a child of the zygote."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import GuestProcess
from tests.e2e.network_site import FETCH, refusals, run, serve_site

from sandcell import Sandbox
from sandcell.cli.verbs import main

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module")
def site() -> Generator[str]:
    """A server of the host; yields its HOST:PORT."""
    with serve_site() as host:
        yield host


def test_the_proxy_is_powerless_and_ends_with_its_sandbox(guest: GuestProcess, site: str) -> None:
    zygote = int(_status(guest.pid)["PPid"])
    before = _children(zygote)
    with Sandbox.create(engine="local", network=[site]) as made:
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"
        own = GuestProcess(made)
        (proxy,) = _children(zygote) - before - {own.launcher, own.pid}
        status = _status(proxy)
        assert status["CapEff"] == status["CapPrm"] == "0" * 16
        if os.geteuid() == 0:
            assert "0" not in status["Uid"].split()
        handle = os.pidfd_open(proxy)
    try:
        assert select.select([handle], [], [], 20)[0]
    finally:
        os.close(handle)


def test_without_its_proxy_a_sandbox_goes_on_and_reaches_nothing(guest: GuestProcess, site: str) -> None:
    zygote = int(_status(guest.pid)["PPid"])
    before = _children(zygote)
    with Sandbox.create(engine="local", network=[site]) as made:
        own = GuestProcess(made)
        (proxy,) = _children(zygote) - before - {own.launcher, own.pid}
        os.kill(proxy, signal.SIGKILL)
        assert "proxy of the sandbox has ended" in refusals(made)[0]
        assert "refused" in run(made, FETCH, f"http://{site}/")
        made.restart()
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"


def _children(pid: int) -> set[int]:
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_from_no_network_to_a_list_takes_a_restart(site: str) -> None:
    with Sandbox.create(engine="local") as box:
        box.files.write("note", "kept")
        assert (box.info().network, box.exec("echo $http_proxy").stdout) == ("none", "\n")
        assert box.update(network=[site]).restarted
        assert run(box, FETCH, f"http://{site}/") == f"/ of {site}"
        box.restart()
        assert run(box, FETCH, f"http://{site}/") == f"/ of {site}"
        assert box.files.read("note") == "kept"


def test_the_command_takes_a_list(site: str, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["exec", "--engine", "local", "--network", f"other.test,{site}", "python3", "-c", FETCH]
    assert main([*line, f"http://{site}/cli"]) == 0
    assert capfd.readouterr().out == f"/cli of {site}\n"
