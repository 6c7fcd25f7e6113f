"""Stopped and started again: what survives on the engines of this machine, what does not, and who waits for whom."""

from __future__ import annotations

import os
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from sandcell_container.conformance import Asker, command
from sandcell_container.engine import Record
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.process import ProcessEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.os_process import signal_processes
from sandcell_container.registry import Claim, Registry
from sandcell_container.spec import Limits, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandcell_container.engines.hosted import HostedEngine
    from sandcell_container.os_process import OsProcess
    from sandcell_container.spec import OnRelease

GUEST = command(str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime"))


def open_engine(kind: type[HostedEngine], state: Path) -> HostedEngine:
    settings: Any = EngineSettings(
        state=state, first_uid=61200, uid_count=1000, guest=GUEST, guest_settings={}
    )
    return kind(settings)


@pytest.fixture(params=[LocalEngine, ProcessEngine], ids=["local", "process"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostedEngine]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the engine process isolates nothing
        made = open_engine(request.param, tmp_path)
    yield made
    for each in made.list():
        made.remove(each.id)
    made.close()


def id_of(name: str) -> str:
    """One of this process: another that tests beside it has the same control groups."""
    return f"sbx_{name}{os.getpid()}"


def spec(name: str = "box", **fields: Any) -> SandboxSpec:
    return SandboxSpec(id=id_of(name), name=name, **fields)


def pid_of_guest(box: Asker) -> int:
    pid: int = box.process()["pid"]
    return pid


@pytest.mark.short
@pytest.mark.parametrize("on_release", ["remove", "stop", "keep"])
def test_files_and_variables_survive_a_stop_and_processes_do_not(
    engine: HostedEngine, on_release: OnRelease
) -> None:
    made = engine.create(spec(on_release=on_release, env={"A": "1"}, secrets={"B": "2"}))
    box = Asker(made)
    sleep = f"sleep 6{os.getpid()}"
    box.run("bash", "-c", f"echo kept > file; echo kept > ~/file; (setsid {sleep} >/dev/null &)")
    guest = psutil.Process(pid_of_guest(box))
    engine.stop(made.id)
    assert psutil.wait_procs([guest], timeout=20)[0]  # whoever has to collect it may take a moment
    stopped = engine.find(made.name)
    assert stopped is not None
    assert (stopped.status, stopped.end and stopped.end.cause) == ("stopped", "killed")
    again = engine.start(made.id)
    assert (again.status, again.starts, again.end) == ("running", 2, None)
    assert (again.address, again.token, again.created_at) == (made.address, made.token, made.created_at)
    assert (
        box.run("bash", "-c", f"cat file ~/file; echo $A$B; pgrep -cfx '{sleep}'").output
        == "kept\nkept\n12\n0\n"
    )
    assert box.boot()["starts"] == 2
    assert box.python("import msgspec; print('ok')") == "ok"


def test_twice_is_fine(engine: HostedEngine) -> None:
    made = engine.create(spec())
    assert engine.start(made.id) == engine.find(made.id)
    for _ in range(2):
        engine.stop(made.id)
    assert engine.restart(made.id).starts == 2
    assert engine.restart(made.id).starts == 3


def test_what_is_not_there_is_not_found(engine: HostedEngine) -> None:
    for call in (engine.start, engine.stop, engine.restart):
        with pytest.raises(SandcellError) as caught:
            call("never")
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_all_who_start_it_share_one_start(engine: HostedEngine, tmp_path: Path) -> None:
    made = engine.create(spec(on_release="stop"))
    engine.stop(made.id)
    engines = [engine, open_engine(LocalEngine, tmp_path)] if isinstance(engine, LocalEngine) else [engine]
    with ThreadPoolExecutor(8) as pool:
        starts = [pool.submit(engines[at % len(engines)].start, made.id) for at in range(8)]
        records = [each.result(60) for each in starts]
    assert {each.starts for each in records} == {2}
    assert {each.status for each in records} == {"running"}
    assert Asker(made).run("true").code == 0
    engine.remove(made.id)


def test_one_that_is_being_stopped_is_started_when_that_is_over(
    engine: HostedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine.create(spec(on_release="stop"))
    started = list[Future[Record]]()
    with ThreadPoolExecutor(3) as pool:

        def signal_and_start(processes: Iterable[OsProcess], number: int) -> None:
            started.extend(pool.submit(engine.start, made.id) for _ in range(3))
            signal_processes(processes, number)

        monkeypatch.setattr("sandcell_container.registry.signal_processes", signal_and_start)
        engine.stop(made.id)
        records = [each.result(30) for each in started]
    assert {(each.status, each.starts) for each in records} == {("running", 2)}
    assert Asker(made).run("true").code == 0


def test_a_start_that_fails_leaves_it_stopped_with_its_files(
    engine: HostedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine.create(spec())
    Asker(made).run("touch", "kept")
    engine.stop(made.id)
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('this spawner fails')")
    with monkeypatch.context() as patch:
        for room in ("boot", "process"):
            patch.setattr(f"sandcell_container.engines.{room}.spawner_path", lambda: broken)
        with pytest.raises(SandcellError, match="this spawner fails"):
            engine.start(made.id)
    found = engine.find(made.id)
    assert found is not None and (found.status, found.starts) == ("stopped", 1)
    engine.start(made.id)
    assert Asker(made).run("ls").output == "kept\n"


def test_a_program_that_ends_takes_what_it_had_stopped_along(engine: HostedEngine) -> None:
    for name, on_release in (("a", "remove"), ("b", "stop")):
        engine.create(spec(name, on_release=on_release))
        engine.stop(id_of(name))
    assert [each.name for each in engine.list()] == ["a", "b"]
    engine.close()
    assert [each.name for each in engine.list()] == ["b"]
    engine.remove(id_of("b"))


def test_one_that_ended_by_itself_is_as_its_maker_wished(engine: HostedEngine) -> None:
    for name, on_release in (("a", "remove"), ("b", "stop"), ("c", "keep")):
        made = engine.create(spec(name, on_release=on_release))
        psutil.Process(pid_of_guest(Asker(made))).kill()
        assert engine.await_end(made.id, timeout=10) is not None
    assert [(each.name, each.status) for each in engine.list()] == [("b", "stopped"), ("c", "stopped")]
    for name in ("b", "c"):
        assert engine.start(id_of(name)).starts == 2
        engine.remove(id_of(name))


def test_links_that_user_code_has_left_are_not_followed_at_a_start(
    engine: HostedEngine, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    made = engine.create(spec())
    Asker(made).run("bash", "-c", f"rm -rf ~/.venv && ln -s {outside} ~/.venv")
    engine.restart(made.id)
    assert Asker(made).run("/bin/true").code == 0
    assert list(outside.iterdir()) == []


def test_one_that_lives_is_waited_for_so_long_and_no_longer(engine: HostedEngine) -> None:
    made = engine.create(spec())
    assert engine.await_end(made.id, timeout=0.05) is None
    ended = threading.Event()

    def wait() -> None:
        assert engine.await_end(made.id, timeout=None) is not None
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    engine.remove(made.id)
    assert ended.wait(10)
    waiting.join()


def test_what_it_uses_is_told_also_where_the_guest_is_not_asked(engine: HostedEngine) -> None:
    made = engine.create(spec(limits=Limits(memory=2**29)))
    stats = engine.stats(made.id)
    assert stats.memory.limit == 2**29
    if Asker(made).boot()["isolation"]["cgroup"]:
        assert 0 < (stats.memory.used or 0) < 2**29
        assert (stats.pids.used or 0) >= 1


# --- the table alone


def test_a_program_that_dies_while_it_starts_one_again_loses_nothing(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    first = registry.claim(spec(on_release="stop"), engine="local")
    first.publish([])
    first.close()
    again = registry.claim_again(id_of("box"), deadline=0.0)
    assert isinstance(again, Claim)
    assert registry.entries()[0].record.status == "creating"
    again.close()
    (entry,) = registry.entries()
    assert (entry.record.status, entry.record.starts) == ("stopped", 1)
    assert entry.spec == spec(on_release="stop")


def test_one_that_somebody_starts_for_ever_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    claim = registry.claim(spec(), engine="local")
    with pytest.raises(SandcellError) as caught:
        registry.claim_again(id_of("box"), deadline=0.0)
    assert caught.value.code is ErrorCode.START_TIMEOUT
    with pytest.raises(SandcellError) as caught:
        registry.rest(id_of("box"))
    assert caught.value.code is ErrorCode.BUSY
    claim.close()


def test_what_was_stopped_by_a_program_that_is_gone_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path)
    claim = registry.claim(spec(), engine="local")
    claim.publish([])
    registry.rest(id_of("box"))  # nothing of it runs: the lock is what this program holds
    claim.close()
    assert [entry.record.status for entry in registry.entries()] == ["stopped"]
    monkeypatch.setattr("sandcell_container.entry.boot_id", lambda: "another boot")
    assert registry.entries() == []
