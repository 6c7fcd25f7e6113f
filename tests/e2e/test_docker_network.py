"""The proxy of a container: a process of this machine that belongs to the container."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.e2e.network_site import FETCH, refusals, run, serve_site

from sandcell import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place

    from sandcell import Sandbox

pytestmark = pytest.mark.docker

DEADLINE = 30.0
ASK_SERVER = """
import socket, sys
try:
    socket.socket(type=socket.SOCK_DGRAM).sendto(b"?", (sys.argv[1], 53))
    print("sent")
except OSError as problem:
    print(problem)
"""


@pytest.fixture(scope="module")
def site() -> Generator[str]:
    """A server of the host; yields its HOST:PORT."""
    with serve_site() as host:
        yield host


def way_of(sandbox: Sandbox) -> psutil.Process:
    """Return the process that is the way out of a sandbox: its words go to the log of that one."""
    return next(each for each in psutil.process_iter() if f"{sandbox.id}/proxy.log" in _output_of(each))


def _output_of(process: psutil.Process) -> str:
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1")
    except OSError:  # it has gone
        return ""


def status_of(process: psutil.Process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


def devices(sandbox: Sandbox) -> set[str]:
    lines = sandbox.exec("cat /proc/net/dev").stdout.splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


def test_a_proxy_is_powerless_and_a_container_without_reaches_nothing(place: Place, site: str) -> None:
    with place.create(network=[site]) as made:
        proxy = way_of(made)
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"
        status = status_of(proxy)
        assert status["CapEff"] == status["CapPrm"] == "0" * 16
        if os.geteuid() == 0:
            assert "0" not in status["Uid"].split()
        assert run(made, "import os; print(os.path.exists('/run/sandcell/host/way.sock'))", "") == "False"
        proxy.send_signal(signal.SIGKILL)
        assert "proxy of the sandbox has ended" in refusals(made)[0]
        assert "refused" in run(made, FETCH, f"http://{site}/")
        made.restart()
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"
        proxy = way_of(made)
    assert psutil.wait_procs([proxy], timeout=DEADLINE)[1] == []


@pytest.mark.usefixtures("tunnel")
def test_an_open_network_has_a_powerless_process_and_may_be_closed(place: Place, site: str) -> None:
    with place.create(network="open", dns=["10.9.8.53"], publish=["0:8000"]) as made:
        tunnel = way_of(made)
        assert tunnel.name() == "slirp4netns"
        made.files.write("note", "kept")
        status = status_of(tunnel)
        assert int(status["CapEff"], 16) & ~(1 << 10) == 0  # nothing, or to listen below 1024
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert sorted(each.name for each in Path(f"/proc/{tunnel.pid}/root").iterdir()) == ["etc", "run"]
        assert (made.info().network, devices(made)) == ("open", {"lo", "tap0"})
        assert made.files.read("/etc/resolv.conf") == "nameserver 10.9.8.53\n"
        assert run(made, ASK_SERVER, "10.9.8.53") == "sent"
        assert "Errno" in run(made, ASK_SERVER, "10.9.8.54")
        (told,) = [each for each in made.info().warnings if "port 8000 is published at" in each]
        address = told.split()[5].rstrip(",")
        made.start_process("python3 -m http.server 8000").wait_for_port(8000, timeout=DEADLINE)
        assert "note" in urllib.request.urlopen(f"http://{address}/", timeout=DEADLINE).read().decode()
        tunnel.kill()
        assert "may not reach 10.9.8.54:53" in refusals(made)[0]
        assert "slirp4netns of the sandbox has ended" in refusals(made, 2)[1]
        made.restart()
        assert devices(made) == {"lo", "tap0"}
        tunnel = way_of(made)
        assert made.update(network=[site]).restarted
        assert (devices(made), made.files.read("note")) == ({"lo"}, "kept")
        assert run(made, FETCH, f"http://{site}/") == f"/ of {site}"
    assert psutil.wait_procs([tunnel], timeout=DEADLINE)[1] == []


@pytest.mark.usefixtures("tunnel")
def test_who_is_not_root_cannot_open_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SandcellError) as caught:
        place.create(network="open")
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "network=[" in caught.value.hint


@pytest.mark.usefixtures("tunnel")
def test_a_port_that_is_taken_is_not_published_and_leaves_nothing(place: Place, site: str) -> None:
    before = {each.id for each in place.client.containers.list(all=True)}
    with pytest.raises(SandcellError) as caught:
        place.create(network="open", publish=[f"{site}:8000"])
    assert caught.value.code is ErrorCode.START_FAILED
    assert f"{site} cannot be published" in caught.value.message
    assert {each.id for each in place.client.containers.list(all=True)} <= before
