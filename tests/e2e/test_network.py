"""What a sandbox reaches, on each engine: nothing, or the hosts of a list; never anything by another way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.network_site import FETCH, HERE, TUNNEL, run, serve_folder, serve_site
from tests.e2e.wheels import write_wheel

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import EnginePlace

    from sandcell import Sandbox


@pytest.fixture(scope="module")
def site() -> Generator[str]:
    """A server of the host; yields its HOST:PORT."""
    with serve_site() as host:
        yield host


@pytest.fixture(scope="module")
def sandbox(any_place: EnginePlace, site: str) -> Generator[Sandbox]:
    """A sandbox that may reach `site`, and a name that never resolves."""
    with any_place.create(network=[site, "no-such-name.invalid"]) as made:
        yield made


def test_a_listed_host_is_reached_by_the_usual_variables(sandbox: Sandbox, site: str) -> None:
    assert run(sandbox, FETCH, f"http://{site}/page") == f"/page of {site}"
    assert run(sandbox, TUNNEL, site) == "/tunnel of x"
    read = f"import urllib.request; urllib.request.urlopen('http://{site}/c', timeout=20).read().decode()"
    assert sandbox.run_code(read).value == f"/c of {site}"


def test_another_host_is_refused_by_name_with_the_way_to_allow_it(sandbox: Sandbox) -> None:
    for said in (run(sandbox, FETCH, "http://other.test/"), run(sandbox, TUNNEL, "other.test:443")):
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
    assert "HOST_NOT_ALLOWED" in run(sandbox, FETCH, "http://for-the-log.test/")
    with closing(sandbox.events()) as events:
        told = (event.reason or "" for event in events if event.status == "refused")
        assert next(reason for reason in told if "for-the-log.test" in reason)


def test_a_listed_name_that_does_not_resolve_is_no_refusal(sandbox: Sandbox) -> None:
    assert "UNREACHABLE" in run(sandbox, FETCH, "http://no-such-name.invalid/")


def test_a_living_sandbox_changes_its_network_and_keeps_its_files(any_place: EnginePlace, site: str) -> None:
    with any_place.create(network=["other.test"]) as box:
        box.files.write("note", "kept")
        assert "HOST_NOT_ALLOWED" in run(box, FETCH, f"http://{site}/")
        box.run_code("x = 1")
        assert not box.update(network=[site]).restarted
        assert list(box.info().network) == [site]
        assert run(box, FETCH, f"http://{site}/") == f"/ of {site}"
        assert box.run_code("x").value == 1
        assert box.update(network="none").restarted
        assert (box.info().network, box.files.read("note")) == ("none", "kept")
        assert box.exec("echo $http_proxy").stdout == "\n"


def test_pip_and_git_find_the_way(sandbox: Sandbox, site: str, tmp_path: Path) -> None:
    index = tmp_path / "simple" / "lintel"
    index.mkdir(parents=True)
    write_wheel(index, "lintel")
    make = (
        "git init -q work && cd work && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
        " && git clone -q --bare . ../repo.git && cd ../repo.git && git update-server-info"
    )
    subprocess.run(["sh", "-c", make], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]})
    with serve_folder(tmp_path) as host:
        assert not sandbox.update(network=[site, host]).restarted
        source = f"--index-url http://{host}/simple --trusted-host {HERE}"
        done = sandbox.exec(f"pip install --quiet --no-cache-dir {source} lintel", timeout=50)
        assert done.exit_code == 0, done.stderr
        assert sandbox.run_code("import lintel; 1").value == 1
        done = sandbox.exec(f"git clone -q http://{host}/repo.git && git -C repo log --format=%s", timeout=50)
        assert done.stdout == "first\n", done.stderr


# --- in a network of the test's own, where every address answers


_ANSWERED = {
    "http://site.example.org": "93.184.215.14",
    "tunnel://site.example.org": "93.184.215.14",
    "http://a.wild.example.org": "93.184.215.14",
    "tunnel://a.wild.example.org": "93.184.215.14",
    "http://listed.wild.example.org": "10.9.8.6",  # private, and listed
    "http://10.9.8.6": "10.9.8.6",
    "http://rebind.wild.example.org": "93.184.215.14",
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
    "http://machine.wild.example.org",  # a public address, and this machine's own
    "tunnel://rebind.wild.example.org",  # by now it is private
    "http://localhost",
    "http://127.0.0.1",
    "http://[::ffff:169.254.169.254]",
)
_BY_OTHER_WAYS = ("resolve://site.example.org", "resolve://secret.example.net", "datagram://10.9.8.53")


def test_names_lead_to_public_addresses_and_to_those_that_are_listed(
    any_place: EnginePlace, tmp_path: Path
) -> None:
    identity = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    program = [sys.executable, "-m", "tests.e2e.network_world", any_place.name, str(tmp_path)]
    done = subprocess.run(
        ["unshare", *identity, "--net", "--mount", *program, *_ANSWERED, *_REFUSED, *_BY_OTHER_WAYS],
        env={**os.environ, "SANDCELL_STATE_DIR": str(tmp_path / "state")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    found = said["found"]
    assert {target: found[target] for target in _ANSWERED} == _ANSWERED
    for target in _REFUSED:
        assert "HOST_NOT_ALLOWED" in found[target], (target, found[target])
    for target in _BY_OTHER_WAYS:
        assert "rrno" in found[target], found[target]
    # What is not listed is not even looked up: names could carry data out.
    assert all(name == "site.example.org" or name.endswith(".wild.example.org") for name in said["asked"])
    assert set(said["arrived"]) == {"10.9.8.53:53", "10.9.8.6:80", "93.184.215.14:443", "93.184.215.14:80"}


_FLOOD = """
import socket, sys, urllib.request
lines = [socket.create_connection(("127.0.0.1", 3128), 50) for _ in range(300)]
print(sum(b"RATE_LIMITED" in line.recv(100) for line in lines[-20:]))
lines[0].sendall(b"CONNECT 127.0.0.1:3128 HTTP/1.1\\r\\n\\r\\n")  # the proxy by itself
print(b"HOST_NOT_ALLOWED" in lines[0].recv(100))
for line in lines:
    line.close()
while True:  # until it has heard of these ends
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=50).read().decode())
        break
    except urllib.error.HTTPError as problem:
        assert problem.code == 503, problem
"""


def test_a_flood_of_connections_is_bounded_and_over_when_they_end(sandbox: Sandbox, site: str) -> None:
    assert run(sandbox, _FLOOD, f"http://{site}/after").split("\n") == ["20", "True", f"/after of {site}"]
