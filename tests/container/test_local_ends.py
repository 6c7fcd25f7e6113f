"""Whatever is killed, everything of a sandbox ends with it, and the next look at the table cleans up."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
import pytest

from sandcell_container.conformance import Asker, command
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import SandcellError
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandcell_container.spec import OnRelease

RUNTIME_DIR = str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime")
GUEST = command(RUNTIME_DIR)
WITHIN = 2.0  # seconds that everything has to be gone after a kill


def open_engine(state: Path) -> LocalEngine:
    settings = EngineSettings(state=state, first_uid=61200, uid_count=1000, guest=GUEST, guest_settings={})
    return LocalEngine(settings)


def id_of(name: str) -> str:
    """One of this process: another that tests beside it has the same control groups."""
    return f"sbx_{name}{os.getpid()}"


def spec(name: str, *, on_release: OnRelease = "remove") -> SandboxSpec:
    return SandboxSpec(id=id_of(name), name=name, on_release=on_release)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    made = open_engine(tmp_path)
    yield made
    made.close()


# Makes one sandbox, says so, and waits. With "fork" there is a child that holds every descriptor it had.
_HOST = """
import os, pathlib, signal, sys
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.conformance import command
from sandcell_container.spec import SandboxSpec
guest = command(sys.argv[4])
settings = EngineSettings(
    state=pathlib.Path(sys.argv[1]), first_uid=61200, uid_count=1000, guest=guest, guest_settings={}
)
engine = LocalEngine(settings)
engine.create(SandboxSpec(id=sys.argv[5], name="box", on_release=sys.argv[2]))
if sys.argv[3] and os.fork() == 0:
    signal.pause()
print("made", flush=True)
signal.pause()
"""
_BUSY = """
sleep 60 &
bash -c "trap '' TERM INT HUP; while :; do sleep 60; done" &
(setsid nohup sleep 60 >/dev/null 2>&1 &)
env -i setsid sleep 60 &
"""


class Host:
    """A host program of its own, with one sandbox in which user code is busy."""

    def __init__(self, state: Path, *, on_release: OnRelease = "remove", fork: bool = False) -> None:
        self._state = state
        arguments = [str(state), on_release, "fork" if fork else "", RUNTIME_DIR, id_of("box")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOST, *arguments], stdout=subprocess.PIPE, start_new_session=True
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"made\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        with suppress(ProcessLookupError):  # ended already, with all that it had forked
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def processes(self) -> dict[str, psutil.Process]:
        """Return what the sandbox consists of, by role; user code's processes by number."""
        (zygote,) = [
            child for child in psutil.Process(self.pid).children() if "zygote" in " ".join(child.cmdline())
        ]
        return roles(zygote)


def roles(zygote: psutil.Process) -> dict[str, psutil.Process]:
    (bubblewrap,) = [child for child in zygote.children() if child.name() == "bwrap"]
    (guest,) = [child for child in zygote.children() if child != bubblewrap]
    (spawner,) = bubblewrap.children()
    users = {str(at): child for at, child in enumerate(spawner.children(recursive=True))}
    return {"zygote": zygote, "bwrap": bubblewrap, "guest": guest, "spawner": spawner, **users}


def busy(state: Path) -> None:
    """Have user code start what does not want to end."""
    (record,) = open_engine(state).list()
    assert Asker(record).run("bash", "-c", _BUSY).code == 0


class Watch:
    """Waits for the ends of processes, known before they end."""

    def __init__(self, pids: list[int]) -> None:
        self._handles = [os.pidfd_open(pid) for pid in pids]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            os.close(handle)

    def all_gone(self, within: float) -> bool:
        deadline = time.monotonic() + within
        left = set(self._handles)
        while left and (rest := deadline - time.monotonic()) > 0:
            left -= set(select.select(left, [], [], rest)[0])
        return not left


def folders(state: Path) -> list[str]:
    return sorted(path.name for path in (state / "sandboxes").iterdir())


@pytest.mark.short
@pytest.mark.parametrize("victim", ["host", "zygote", "bwrap", "spawner", "guest"])
def test_everything_ends_with_any_of_its_parts(tmp_path: Path, victim: str) -> None:
    with Host(tmp_path) as host:
        busy(tmp_path)
        parts = host.processes()
        assert len(parts) >= 8
        surviving = {"zygote"} if victim in ("bwrap", "spawner", "guest") else set[str]()
        with Watch([part.pid for role, part in parts.items() if role not in surviving]) as watch:
            os.kill(host.pid if victim == "host" else parts[victim].pid, signal.SIGKILL)
            assert watch.all_gone(WITHIN)
        assert open_engine(tmp_path).list() == []
        assert folders(tmp_path) == ["table.lock"]


def test_a_forked_child_of_the_host_program_keeps_nothing_alive(tmp_path: Path) -> None:
    with (
        Host(tmp_path, fork=True) as host,
        Watch([part.pid for part in host.processes().values()]) as watch,
    ):
        os.kill(host.pid, signal.SIGKILL)
        assert watch.all_gone(WITHIN)


def test_files_stay_where_they_are_to_stay(tmp_path: Path) -> None:
    with Host(tmp_path, on_release="stop") as host:
        with Watch([part.pid for part in host.processes().values()]) as watch:
            os.kill(host.pid, signal.SIGKILL)
            assert watch.all_gone(WITHIN)
        engine = open_engine(tmp_path)
        assert [record.status for record in engine.list()] == ["stopped"]
        engine.remove(id_of("box"))
        assert engine.list() == []


@pytest.mark.short
def test_another_program_removes_a_sandbox(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        busy(tmp_path)
        parts = host.processes()
        parts.pop("zygote")
        with Watch([part.pid for part in parts.values()]) as watch:
            open_engine(tmp_path).remove(id_of("box"))
            assert watch.all_gone(0.1)
        assert folders(tmp_path) == ["table.lock"]


@pytest.mark.short
def test_one_that_is_kept_outlives_its_host_program(tmp_path: Path) -> None:
    with Host(tmp_path, on_release="keep") as host:
        (record,) = open_engine(tmp_path).list()
        guest = psutil.Process(Asker(record).process()["pid"])
        zygote = guest.parent()
        assert zygote is not None
        with Watch([host.pid]) as watch:
            os.kill(host.pid, signal.SIGKILL)
            assert watch.all_gone(WITHIN)
    engine = open_engine(tmp_path)
    assert [found.status for found in engine.list()] == ["running"]
    assert Asker(record).run("true").code == 0
    with Watch([zygote.pid, *(part.pid for part in roles(zygote).values())]) as watch:
        engine.remove(id_of("box"))
        assert watch.all_gone(WITHIN)
    assert folders(tmp_path) == ["table.lock"]


def test_a_kept_one_whose_start_fails_leaves_no_zygote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('this spawner fails')")
    monkeypatch.setattr("sandcell_container.engines.boot.spawner_path", lambda: broken)
    with pytest.raises(SandcellError, match="this spawner fails"):
        open_engine(tmp_path).create(spec("box", on_release="keep"))
    assert folders(tmp_path) == ["table.lock"]
    assert not [
        each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(each.info["cmdline"])
    ]


def own_mounts() -> list[str]:
    """Return the mounts that are seen here but for those of containers, which come and go meanwhile."""
    others = ("/docker/", "/podman/", "/containers/")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if not any(each in line for each in others)]


@pytest.mark.short
def test_twenty_sandboxes_leave_nothing(tmp_path: Path) -> None:
    mounts = own_mounts()
    engine = open_engine(tmp_path)
    records = [engine.create(spec(f"box{number}")) for number in range(20)]
    assert all(Asker(record).run("true").code == 0 for record in records)
    zygote = psutil.Process(Asker(records[0]).process()["pid"]).parent()
    assert zygote is not None
    with Watch([zygote.pid, *(child.pid for child in zygote.children(recursive=True))]) as watch:
        engine.close()
        assert watch.all_gone(WITHIN)
    assert folders(tmp_path) == ["table.lock"]
    assert own_mounts() == mounts


def test_after_the_zygotes_death_the_next_sandbox_has_a_new_one(engine: LocalEngine, tmp_path: Path) -> None:
    first = engine.create(spec("first"))
    guest = psutil.Process(Asker(first).process()["pid"])
    zygote = guest.parent()
    assert zygote is not None
    with Watch([guest.pid]) as watch:
        zygote.kill()
        assert watch.all_gone(WITHIN)
    second = engine.create(spec("second"))
    assert Asker(second).run("true").code == 0
    assert [record.name for record in engine.list()] == ["second"]


def test_a_guest_that_fails_is_gone_at_the_next_look(tmp_path: Path) -> None:
    guest = command(RUNTIME_DIR, function="fail")
    settings = EngineSettings(state=tmp_path, first_uid=61200, uid_count=1000, guest=guest, guest_settings={})
    engine = LocalEngine(settings)
    record = engine.create(spec("box"))
    log = Path(record.address.path).parent / "log"
    entry = json.loads((Path(record.address.path).parent / "record.json").read_text())
    with suppress(ProcessLookupError), Watch([pid for pid, _ in entry["processes"]]) as watch:
        assert watch.all_gone(WITHIN)
    assert "fails on purpose" in log.read_text()
    assert engine.list() == []
    engine.close()


def test_an_engine_carried_over_a_fork_makes_its_own_zygote(engine: LocalEngine) -> None:
    engine.create(spec("parents"))
    child = os.fork()
    if child == 0:
        try:
            made = engine.create(spec("childs"))
            os._exit(Asker(made).run("true").code)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (record,) = [found for found in engine.list() if found.name == "parents"]
    assert Asker(record).run("true").code == 0
