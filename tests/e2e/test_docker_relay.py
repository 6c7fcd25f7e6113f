"""The guest of a container, reached through its daemon: where that is wished, and where its folder takes no socket."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.e2e.network_site import serve_site

from sandcell.cli.check import GuestRunner
from sandcell.client.host import engine_settings, guest_command, the_host
from sandcell_container.conformance import CHECKS, Check, Subject
from sandcell_container.engines.detect import open_engine
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tests.e2e.conftest import Place

pytestmark = pytest.mark.docker

DEADLINE = 30.0
CHECKED = {"runs-programs", "tells-of-an-end", "finds-no-way-to-its-guest"}
FETCH_MANY = """
import concurrent.futures, urllib.request
def fetch(_):
    return urllib.request.urlopen("http://{site}/", timeout=40).read().decode()
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    print(set(pool.map(fetch, range(3))))
"""
REFUSED = """
import urllib.request, urllib.error
try:
    urllib.request.urlopen("http://other.test/", timeout=40)
except urllib.error.HTTPError as problem:
    print(problem.read().decode())
"""
MAKER = """
import sys
from sandcell import Sandbox
made = Sandbox.create(engine=sys.argv[1])
made.run_code("x = 1")
print(made.id, flush=True)
made.exec("sleep 600")
"""


@contextmanager
def open_subject(place: Place, state: Path, *, relay: bool) -> Generator[Subject]:
    settings = engine_settings(the_host().config, guest_command(), {})
    engine, _ = open_engine(place.name, replace(settings, state=state, relay=relay))
    with closing(engine), closing(Subject(engine, GuestRunner)) as made:
        yield made


@pytest.fixture
def subject(place: Place, tmp_path: Path) -> Iterator[Subject]:
    with open_subject(place, tmp_path, relay=True) as made:
        yield made


def relays_of(sandbox_id: str, module: str = "docker_relay") -> list[psutil.Process]:
    """Return the processes that listen for the guest of a sandbox."""
    lines = ((each, " ".join(each.info["cmdline"] or ())) for each in psutil.process_iter(["cmdline"]))
    return [each for each, line in lines if module in line and sandbox_id in line]


def assert_gone(relays: list[psutil.Process]) -> None:
    assert psutil.wait_procs(relays, timeout=DEADLINE)[1] == []


@pytest.mark.parametrize(
    "check", [each for each in CHECKS if each.name in CHECKED], ids=lambda check: check.name
)
def test_what_an_engine_has_to_do_it_does(subject: Subject, check: Check) -> None:
    check.run(subject)


def test_it_ends_with_its_container_and_another_one_follows_it(subject: Subject) -> None:
    with subject.sandbox() as box:
        (first,) = relays_of(box.id)
        first.kill()
        assert_gone([first])
        assert subject.engine.start(box.id).starts == 1  # it runs: only the way to it is gone
        assert box.output("echo", "on") == "on"
        (second,) = relays_of(box.id)
    assert_gone([second])


def test_the_hosts_of_a_list_are_reached_through_the_daemon(subject: Subject) -> None:
    with serve_site() as site, subject.sandbox(network=(site,)) as box:
        assert box.python(FETCH_MANY.format(site=site)) == f"{{'/ of {site}'}}"
        assert "HOST_NOT_ALLOWED" in box.python(REFUSED)
        (first,) = relays_of(box.id, "docker_carrier")
        first.kill()
        assert_gone([first])
        subject.engine.start(box.id)  # it runs: only its way out is gone
        (second,) = relays_of(box.id, "docker_carrier")
        subject.engine.update(box.id, lambda spec: replace(spec, network=("other.test",)))
        assert "UNREACHABLE" in box.python(REFUSED)
    assert_gone([second])


def test_a_container_reached_through_its_daemon_cannot_be_opened(subject: Subject) -> None:
    with pytest.raises(SandcellError) as caught, subject.sandbox(network="open"):
        pass
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert subject.engine.list() == []


def test_a_program_that_is_killed_leaves_nothing(place: Place) -> None:
    line = [sys.executable, "-c", MAKER, place.name]
    with subprocess.Popen(
        line, env={**os.environ, "SANDCELL_RELAY": "always"}, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        sandbox_id = maker.stdout.readline().strip()
        relays = relays_of(sandbox_id)
        maker.kill()
    assert len(relays) == 1
    assert place.engine.await_end(sandbox_id, timeout=DEADLINE) is not None
    place.engine.prune()
    assert place.containers(sandbox_id) == []
    assert_gone(relays)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes where nobody may write")
def test_a_folder_that_takes_no_socket_is_noticed(place: Place, tmp_path: Path) -> None:
    with open_subject(place, tmp_path, relay=False) as subject, subject.sandbox() as box:
        assert relays_of(box.id) == []
        box.output("sh", "-c", "echo kept > file")
        subject.engine.stop(box.id)
        (tmp_path / place.name / box.id).chmod(0o500)
        subject.engine.start(box.id)
        assert len(relays_of(box.id)) == 1
        assert box.output("cat", "file") == "kept"
