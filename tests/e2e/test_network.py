"""What a sandbox of the engine local reaches: nothing, or the hosts of a list; never anything by another way."""

from __future__ import annotations

import http.server
import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import GuestProcess
from tests.e2e.wheels import write_wheel

from sandcell import Sandbox
from sandcell.cli.verbs import main

if TYPE_CHECKING:
    from collections.abc import Generator

_HERE = "127.0.0.2"  # of this machine's loopback; what the sandbox's own NO_PROXY has not


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = f"{self.path} of {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def site() -> Generator[str]:
    """A server of the host; yields its HOST:PORT."""
    with http.server.ThreadingHTTPServer((_HERE, 0), _Site) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"{_HERE}:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def sandbox(site: str) -> Generator[Sandbox]:
    """A sandbox that may reach `site`, and a name that never resolves."""
    with Sandbox.create(engine="local", network=[site, "no-such-name.invalid"]) as made:
        yield made


_FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except OSError as problem:
    print(getattr(problem, "read", lambda: str(problem).encode())().decode())
"""

_TUNNEL = """
import http.client, sys
host, _, port = sys.argv[1].partition(":")
line = http.client.HTTPConnection("127.0.0.1", 3128, timeout=20)
line.set_tunnel(host, int(port))
try:
    line.request("GET", "/tunnel", headers={"Host": "x"})
    print(line.getresponse().read().decode())
except OSError as problem:
    print(problem)
"""


def run(sandbox: Sandbox, program: str, argument: str) -> str:
    return sandbox.exec(["python3", "-c", program, argument], timeout=60).stdout.strip()


def test_a_listed_host_is_reached_by_the_usual_variables(sandbox: Sandbox, site: str) -> None:
    assert run(sandbox, _FETCH, f"http://{site}/page") == f"/page of {site}"
    assert run(sandbox, _TUNNEL, site) == "/tunnel of x"
    read = f"import urllib.request; urllib.request.urlopen('http://{site}/c', timeout=20).read().decode()"
    assert sandbox.run_code(read).value == f"/c of {site}"


def test_another_host_is_refused_by_name_with_the_way_to_allow_it(sandbox: Sandbox) -> None:
    for said in (run(sandbox, _FETCH, "http://other.test/"), run(sandbox, _TUNNEL, "other.test:443")):
        assert "HOST_NOT_ALLOWED" in said
        assert "other.test" in said
        assert 'update(network=[..., "other.test"])' in said.replace("\\", "")


@pytest.mark.parametrize("host", ["127.0.0.1:22", "169.254.169.254:80", "10.0.0.1:80", "[::1]:22"])
def test_addresses_that_are_not_listed_are_refused(sandbox: Sandbox, host: str) -> None:
    ask = (  # by hand: for the sandbox's own loopback the usual variables name no proxy
        "import socket, sys\ns = socket.create_connection(('127.0.0.1', 3128), 20)\n"
        "s.sendall(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n'.encode())\nprint(s.makefile().readline())"
    )
    assert "HOST_NOT_ALLOWED" in run(sandbox, ask, host)


def test_there_is_no_other_way(sandbox: Sandbox, site: str) -> None:
    direct = (
        "import socket, sys; h, p = sys.argv[1].split(':'); print(socket.socket().connect_ex((h, int(p))))"
    )
    assert run(sandbox, direct, site) in {"101", "111"}  # no route, or nobody listens on this loopback
    name = "import socket, sys\ntry: socket.getaddrinfo(sys.argv[1], 80)\nexcept OSError: print('none')"
    assert run(sandbox, name, "example.org") == "none"
    routes = sandbox.exec("cat /proc/net/route; ls /sys/class/net 2>/dev/null || true").stdout
    assert [line.split()[0] for line in routes.splitlines()[1:] if line.split()] in ([], ["lo"])


def test_the_port_of_the_proxy_cannot_be_taken(sandbox: Sandbox) -> None:
    bind = (
        "import socket, sys\nfor host in ('127.0.0.1', '0.0.0.0'):\n s = socket.socket()\n"
        " for o in (socket.SO_REUSEADDR, socket.SO_REUSEPORT): s.setsockopt(socket.SOL_SOCKET, o, 1)\n"
        " try: s.bind((host, 3128)); s.listen(); print('taken')\n except OSError as e: print(e.errno)"
    )
    assert "taken" not in run(sandbox, bind, "")


def test_what_was_refused_is_an_event(sandbox: Sandbox) -> None:
    assert "HOST_NOT_ALLOWED" in run(sandbox, _FETCH, "http://for-the-log.test/")
    told = (event.reason or "" for event in sandbox.events() if event.status == "refused")
    assert next(reason for reason in told if "for-the-log.test" in reason)


def test_a_listed_name_that_does_not_resolve_is_no_refusal(sandbox: Sandbox) -> None:
    assert "UNREACHABLE" in run(sandbox, _FETCH, "http://no-such-name.invalid/")


def test_a_living_sandbox_changes_its_network_and_keeps_its_files(site: str) -> None:
    with Sandbox.create(engine="local") as box:
        box.files.write("note", "kept")
        assert (box.info().network, box.exec("echo $http_proxy").stdout) == ("none", "\n")
        assert box.update(network=["other.test"]).restarted
        assert "HOST_NOT_ALLOWED" in run(box, _FETCH, f"http://{site}/")
        box.run_code("x = 1")
        assert not box.update(network=[site]).restarted
        assert list(box.info().network) == [site]
        assert run(box, _FETCH, f"http://{site}/") == f"/ of {site}"
        assert box.run_code("x").value == 1
        box.restart()
        assert run(box, _FETCH, f"http://{site}/") == f"/ of {site}"
        assert box.update(network="none").restarted
        assert (box.info().network, box.files.read("note")) == ("none", "kept")
        assert box.exec("echo $http_proxy").stdout == "\n"


def test_the_proxy_is_powerless_and_ends_with_its_sandbox(guest: GuestProcess, site: str) -> None:
    zygote = int(_status(guest.pid)["PPid"])
    before = _children(zygote)
    with Sandbox.create(engine="local", network=[site]) as made:
        assert run(made, _FETCH, f"http://{site}/") == f"/ of {site}"
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
        told = (event.reason or "" for event in made.events() if event.status == "refused")
        assert "proxy of the sandbox has ended" in next(told)
        assert "refused" in run(made, _FETCH, f"http://{site}/")
        made.restart()
        assert run(made, _FETCH, f"http://{site}/") == f"/ of {site}"


def _children(pid: int) -> set[int]:
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_command_takes_a_list(site: str, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["exec", "--engine", "local", "--network", f"other.test,{site}", "python3", "-c", _FETCH]
    assert main([*line, f"http://{site}/cli"]) == 0
    assert capfd.readouterr().out == f"/cli of {site}\n"


class _Folder(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@contextmanager
def serving(folder: Path) -> Generator[str]:
    """Serve the files of `folder` on the host; yields HOST:PORT."""
    with http.server.ThreadingHTTPServer((_HERE, 0), partial(_Folder, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{_HERE}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_pip_and_git_find_the_way(tmp_path: Path) -> None:
    index = tmp_path / "simple" / "lintel"
    index.mkdir(parents=True)
    write_wheel(index, "lintel")
    make = (
        "git init -q work && cd work && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
        " && git clone -q --bare . ../repo.git && cd ../repo.git && git update-server-info"
    )
    subprocess.run(["sh", "-c", make], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]})
    with serving(tmp_path) as host, Sandbox.create(engine="local", network=[host]) as made:
        source = f"--index-url http://{host}/simple --trusted-host {_HERE}"
        done = made.exec(f"pip install --quiet --no-cache-dir {source} lintel", timeout=50)
        assert done.exit_code == 0, done.stderr
        assert made.run_code("import lintel; 1").value == 1
        done = made.exec(f"git clone -q http://{host}/repo.git && git -C repo log --format=%s", timeout=50)
        assert done.stdout == "first\n", done.stderr


# --- in a network of the test's own, where every address answers


_ANSWERED = {
    "http://site.example.org": "93.184.215.14",
    "tunnel://site.example.org": "93.184.215.14",
    "http://a.wild.example.org": "93.184.215.14",
    "tunnel://a.wild.example.org": "93.184.215.14",
    "http://listed.wild.example.org": "10.9.8.6",  # private, and listed
    "http://10.9.8.6": "10.9.8.6",
}
_REFUSED = (
    "http://other.example.net",
    "tunnel://other.example.net",
    "http://example.org",
    "http://93.184.215.14",  # by its address a host is not the one of the list
    "tunnel://93.184.215.14",
    "http://inside.wild.example.org",
    "tunnel://inside.wild.example.org",
    "http://metadata.wild.example.org",
    "http://169.254.169.254",
    "http://loop.wild.example.org",
    "tunnel://loop.wild.example.org",
    "http://localhost",
    "http://127.0.0.1",
    "http://[::ffff:169.254.169.254]",
)


def test_names_lead_to_public_addresses_and_to_those_that_are_listed(tmp_path: Path) -> None:
    identity = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    program = [sys.executable, "-m", "tests.e2e.network_world", str(tmp_path)]
    done = subprocess.run(
        ["unshare", *identity, "--net", "--mount", *program, *_ANSWERED, *_REFUSED],
        env={**os.environ, "SANDCELL_STATE_DIR": str(tmp_path / "state")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {target: found[target] for target in _ANSWERED} == _ANSWERED
    for target in _REFUSED:
        assert "HOST_NOT_ALLOWED" in found[target], (target, found[target])
