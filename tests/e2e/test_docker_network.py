"""The proxy of a container: a process of this machine that belongs to the container."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.e2e.network_site import FETCH, run, serve_site

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place

    from sandcell import Sandbox

pytestmark = pytest.mark.docker

DEADLINE = 30.0


@pytest.fixture(scope="module")
def site() -> Generator[str]:
    """A server of the host; yields its HOST:PORT."""
    with serve_site() as host:
        yield host


def proxies() -> set[psutil.Process]:
    """Return the proxies of containers that there are on this machine."""
    lines = ((each, " ".join(each.info["cmdline"] or ())) for each in psutil.process_iter(["cmdline"]))
    return {each for each, line in lines if "docker_way" in line}


def create(place: Place, network: list[str]) -> tuple[Sandbox, psutil.Process]:
    before = proxies()
    made = place.create(network=network)
    (proxy,) = proxies() - before
    return made, proxy


def test_it_is_powerless_and_ends_with_its_container(place: Place, site: str) -> None:
    made, proxy = create(place, [site])
    with made:
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{proxy.pid}/status").read_text().splitlines()
        )
        assert status["CapEff"] == status["CapPrm"] == "0" * 16
        if os.geteuid() == 0:
            assert "0" not in status["Uid"].split()
        assert run(made, "import os; print(os.path.exists('/run/sandcell/host/way.sock'))", "") == "False"
    assert psutil.wait_procs([proxy], timeout=DEADLINE)[1] == []


def test_without_it_a_container_goes_on_and_reaches_nothing(place: Place, site: str) -> None:
    made, proxy = create(place, [site])
    with made:
        proxy.send_signal(signal.SIGKILL)
        told = (event.reason or "" for event in made.events() if event.status == "refused")
        assert "proxy of the sandbox has ended" in next(told)
        assert "refused" in run(made, FETCH, f"http://{site}/")
        made.restart()
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"
