from __future__ import annotations

import errno
import getpass
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from sandcell_container.conformance import Asker, command
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.ids import new_id
from sandcell_container.registry import Claim
from sandcell_container.spec import GuestCommand, Limits, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandcell_container.engines.sandbox_host import Blueprint
    from sandcell_container.registry import Entry

GUEST = command(str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime"))


def settings(state: Path, *, guest: GuestCommand = GUEST) -> EngineSettings:
    return EngineSettings(
        state=state, first_uid=61200, uid_count=1000, guest=guest, guest_settings={"max_body": "1000"}
    )


def spec(name: str = "box", **fields: Any) -> SandboxSpec:
    return SandboxSpec(id=new_id("sbx"), name=name, **fields)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    made = LocalEngine(settings(tmp_path))
    yield made
    made.close()


@pytest.fixture
def box(engine: LocalEngine) -> Asker:
    return Asker(engine.create(spec()))


@pytest.mark.short
def test_it_works_here(engine: LocalEngine) -> None:
    probe = engine.probe()
    assert probe.usable, probe
    assert engine.list() == []


def test_places_to_write_are_there_and_bounded(box: Asker) -> None:
    for folder in ("/workspace", "/home/user", "/tmp", "/dev/shm", "/var/tmp"):
        assert box.run("touch", f"{folder}/file").code == 0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder in ("/tmp", "/dev/shm"):
        size = int(box.python(f"import os; s = os.statvfs({folder!r}); print(s.f_blocks * s.f_frsize)"))
        assert 0 < size <= memory // 7


def test_tools_of_everyday_work(box: Asker) -> None:
    program = "import multiprocessing as m; print(m.get_context('fork').Value('i', 7).value); m.Lock()"
    assert box.python(program) == "7"
    assert box.run("bash", "-c", "ps -e | wc -l").code == 0
    assert box.python("import ssl, sqlite3, zoneinfo; print('ok')") == "ok"


def test_pip_installs_for_the_user_and_base_packages_stay(box: Asker) -> None:
    assert box.python("import sys; print(sys.prefix)") == "/home/user/.venv"
    assert (
        box.run("bash", "-c", "command -v python pip").output
        == "/home/user/.venv/bin/python\n/home/user/.venv/bin/pip\n"
    )
    assert "outside environment" in box.run("pip", "uninstall", "-y", "msgspec").output
    assert box.python("import msgspec; print('ok')") == "ok"


class Hurried(LocalEngine):
    """Has guests that wait for no spawner."""

    def _draw(self, entry: Entry) -> Blueprint:
        drawn = super()._draw(entry)
        return replace(drawn, launch=replace(drawn.launch, timeout=0.0))


def test_a_spawner_that_is_late_is_told_as_such(tmp_path: Path) -> None:
    engine = Hurried(settings(tmp_path))
    try:
        with pytest.raises(SandcellError) as caught:
            engine.create(spec())
        assert caught.value.code is ErrorCode.START_TIMEOUT
        assert "spawner" in caught.value.details["reason"]
    finally:
        engine.close()


@pytest.mark.short
def test_boot_tells_the_guest_the_truth(engine: LocalEngine) -> None:
    record = engine.create(
        spec(
            "told",
            env={"A": "1", "LANG": "de"},
            limits=Limits(memory=2**30, pids=100, disk=2**30),
            hostname="box",
            idle_timeout=None,
        )
    )
    boot = Asker(record).boot()
    assert boot["token"] == record.token
    assert (boot["sandbox_id"], boot["name"], boot["engine"]) == (record.id, "told", "local")
    assert boot["base_env"]["A"] == "1" and boot["base_env"]["LANG"] == "de"
    assert boot["limits"] == {"cpus": None, "memory": 2**30, "disk": 2**30, "pids": 100}
    assert len(boot["warnings"]) == (1 if boot["isolation"]["cgroup"] else 2)
    assert boot["settings"] == {"max_body": "1000"}
    isolation = boot["isolation"]
    assert all(isolation[name] for name in ("pid", "net", "mount", "user", "ipc", "uts"))
    assert isolation["runtime"] == "bwrap"
    assert (isolation["uid"] == os.geteuid()) == (os.geteuid() != 0)
    assert boot["hostname"] == Asker(record).run("hostname").output.strip() == "box"


def test_limits_hold(engine: LocalEngine) -> None:
    box = Asker(engine.create(spec(limits=Limits(memory=2**29, pids=40, cpus=1))))
    greedy = box.run("python", "-c", "x = bytearray(2**30)")
    if box.boot()["isolation"]["cgroup"]:
        assert greedy.code == -9
    else:
        assert "MemoryError" in greedy.output
        assert box.python("import os; print(len(os.sched_getaffinity(0)))") == "1"
    assert box.python(_BOMB) == "refused"


def test_one_file_is_no_larger_than_the_disk(engine: LocalEngine) -> None:
    box = Asker(engine.create(spec(limits=Limits(disk=2**20))))
    assert "File too large" in box.run("python", "-c", "open('f', 'wb').write(bytes(2**21))").output
    assert box.run("stat", "-c", "%s", "f").output == f"{2**20}\n"


def test_the_limits_are_those_of_all_together(engine: LocalEngine) -> None:
    box = Asker(engine.create(spec(limits=Limits(memory=2**28, pids=60, cpus=0.5))))
    if not box.boot()["isolation"]["cgroup"]:
        pytest.skip("no control group may be made here")
    assert box.python(_FILL) == "killed"
    assert box.run("true").code == 0


# Three children, each of which alone has room: all of them together have not.
_FILL = """
import os, signal
def fill():
    held = bytearray(110 * 2**20)
    os.write(ready, b".")
    os.read(go, 1)
    os._exit(0)
came, ready = os.pipe()
go, let = os.pipe()
children = [os.fork() or fill() for _ in range(3)]
pid, status = os.wait()  # nobody ends by himself before he is let
print("killed" if status == signal.SIGKILL else status)
for child in children:
    if child != pid: os.kill(child, signal.SIGKILL)
"""


def test_a_control_group_goes_with_its_sandbox(engine: LocalEngine, tmp_path: Path) -> None:
    record = engine.create(spec())
    written = json.loads((Path(record.address.path).parent / "record.json").read_text())
    if written["group"] is None:
        pytest.skip("no control group may be made here")
    folders = [Path(each) for each in written["group"]["folders"].values()]
    assert all(each.is_dir() for each in folders)
    engine.stop(record.id)
    assert not any(each.exists() for each in folders)
    engine.start(record.id)
    assert all(each.is_dir() for each in folders)
    engine.remove(record.id)
    assert not any(each.exists() for each in folders)


_BOMB = """
import os, signal
children = []
try:
    while len(children) < 100:
        if (child := os.fork()) == 0:
            signal.pause()
        children.append(child)
except BlockingIOError:
    print("refused")
for child in children:
    os.kill(child, signal.SIGKILL)
"""


def test_a_strict_limit_that_cannot_hold_makes_nothing(engine: LocalEngine) -> None:
    with pytest.raises(SandcellError) as caught:
        engine.create(spec(limits=Limits(disk=2**30), strict=True))
    assert caught.value.code is ErrorCode.UNSUPPORTED
    assert engine.list() == []


def test_another_environment_is_shown_beside_the_guests(engine: LocalEngine) -> None:
    box = Asker(engine.create(spec(python="/usr/bin/python3")))
    assert box.python("import sys; print(sys.base_prefix)") == "/usr"
    assert box.see(sys.prefix) != []


def test_a_secret_in_a_sandbox_of_root_is_nobody_elses(engine: LocalEngine) -> None:
    first, second = engine.create(spec("a")), engine.create(spec("b"))
    uids = {Asker(each).boot()["isolation"]["uid"] for each in (first, second)}
    assert len(uids) == (2 if os.geteuid() == 0 else 1)
    assert getpass.getuser() != "user" or os.geteuid() != 0


def test_a_sandbox_is_started_from_a_thread_that_ends(engine: LocalEngine) -> None:
    thread = threading.Thread(target=lambda: engine.create(spec()))
    thread.start()
    thread.join()
    (record,) = engine.list()
    assert Asker(record).run("true").code == 0


def test_many_threads_make_sandboxes_and_one_name_goes_once(engine: LocalEngine) -> None:
    outcomes = list[str]()

    def create(name: str) -> None:
        try:
            outcomes.append(engine.create(spec(name)).name)
        except SandcellError as refused:
            outcomes.append(refused.code)

    threads = [threading.Thread(target=create, args=(name,)) for name in ("a", "a", "a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["EXISTS", "EXISTS", "a", "b", "c"]
    assert sorted(record.name for record in engine.list()) == ["a", "b", "c"]


def test_removing_leaves_nothing(engine: LocalEngine, tmp_path: Path) -> None:
    record = engine.create(spec())
    Asker(record).run(
        "bash",
        "-c",
        "mkdir -p /workspace/a/b && chmod 0 /workspace/a && (setsid nohup sleep 60 >/dev/null 2>&1 &)",
    )
    engine.remove(record.id)
    assert engine.list() == []
    assert [path.name for path in (tmp_path / "sandboxes").iterdir()] == ["table.lock"]
    engine.remove(record.id)


def test_files_outlive_a_sandbox_that_stops(engine: LocalEngine, tmp_path: Path) -> None:
    record = engine.create(spec(on_release="stop"))
    Asker(record).run("touch", "/workspace/kept")
    engine.close()
    assert [found.status for found in engine.list()] == ["stopped"]
    assert (Path(record.address.path).parent / "workspace" / "kept").exists()
    engine.remove(record.id)
    assert engine.list() == []


def test_long_paths_are_fine(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30) / ("path" * 30)
    engine = LocalEngine(settings(state))
    try:
        record = engine.create(spec())
        assert len(record.address.path) > 107
        assert Asker(record).run("true").code == 0
    finally:
        engine.close()


# --- starts that fail


def test_a_guest_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    guest = GuestCommand(
        module="sandcell_container.no_such_guest", function="serve", runtime_dir=GUEST.runtime_dir
    )
    engine = LocalEngine(settings(tmp_path, guest=guest))
    with pytest.raises(SandcellError) as caught:
        engine.create(spec())
    assert caught.value.code is ErrorCode.START_FAILED
    assert "no_such_guest" in caught.value.details["words"]
    assert engine.list() == []


def test_a_spawner_that_fails_is_told_and_leaves_nothing(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('this spawner fails')")
    monkeypatch.setattr("sandcell_container.engines.boot.spawner_path", lambda: broken)
    with pytest.raises(SandcellError, match="this spawner fails") as caught:
        engine.create(spec())
    assert caught.value.code is ErrorCode.START_FAILED
    assert [path.name for path in (tmp_path / "sandboxes").iterdir()] == ["table.lock"]


def test_a_spawner_that_never_speaks_is_not_waited_for(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import signal; signal.pause()")
    engine.create(spec("first"))
    monkeypatch.setattr("sandcell_container.engines.boot.spawner_path", lambda: silent)
    with pytest.raises(SandcellError) as caught:
        engine.create(spec(start_timeout=0.3))
    assert caught.value.code is ErrorCode.START_TIMEOUT
    assert [record.name for record in engine.list()] == ["first"]
    # Where its control group has not emptied yet, it lies beside for the next look.
    kept = [path for path in (tmp_path / "sandboxes").iterdir() if not path.name.startswith(".gone-")]
    assert len(kept) == 2


def test_a_machine_without_namespaces_is_named_with_remedies(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    folder.chmod(0o755)
    refusing = folder / "bwrap"
    refusing.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\n'
        "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    probe = engine.probe()
    assert not probe.usable and "AppArmor" in probe.reason and probe.remedies
    with pytest.raises(SandcellError, match="AppArmor") as caught:
        engine.create(spec())
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert caught.value.hint


def test_a_record_that_cannot_be_written_ends_what_was_started(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote = psutil.Process(Asker(engine.create(spec("first"))).process()["pid"]).parent()
    assert zygote is not None
    before = set(zygote.children(recursive=True))

    def fail(_claim: Claim, _processes: object, **_facts: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Claim, "publish", fail)
    with pytest.raises(SandcellError) as caught:
        engine.create(spec())
    assert caught.value.code is ErrorCode.NO_SPACE
    assert len(list((tmp_path / "sandboxes").iterdir())) == 2
    assert all(is_over(child) for child in set(zygote.children(recursive=True)) - before)


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_guest_whose_import_starts_a_thread_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded_guest.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    guest = GuestCommand(module="threaded_guest", function="serve", runtime_dir=GUEST.runtime_dir)
    engine = LocalEngine(settings(tmp_path, guest=guest))
    with pytest.raises(SandcellError, match="started 1 thread") as caught:
        engine.create(spec())
    assert caught.value.code is ErrorCode.START_FAILED
