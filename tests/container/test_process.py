from __future__ import annotations

import os
import select
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from sandcell_container.conformance import Asker, command
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.process import ProcessEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.ids import new_id
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

GUEST = command(str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    settings = EngineSettings(state=tmp_path, first_uid=61200, uid_count=10, guest=GUEST, guest_settings={})
    with pytest.warns(UserWarning, match="without any isolation"):
        made = ProcessEngine(settings)
    yield made
    made.close()


def spec(name: str = "box") -> SandboxSpec:
    return SandboxSpec(id=new_id("sbx"), name=name)


@pytest.mark.short
def test_user_code_runs_as_the_caller_in_folders_of_its_own(engine: ProcessEngine, tmp_path: Path) -> None:
    record = engine.create(spec())
    box, folder = Asker(record), Path(record.address.path).parent
    ran = box.run("bash", "-c", "pwd; echo $HOME $TMPDIR; id -u; command -v python")
    assert ran.output.split() == [
        str(folder / "workspace"),
        str(folder / "home"),
        str(folder / "tmp"),
        str(os.geteuid()),
        str(folder / "home" / ".venv" / "bin" / "python"),
    ]
    assert folder.is_relative_to(tmp_path)


def test_it_keeps_nobody_from_any_host(engine: ProcessEngine) -> None:
    with pytest.raises(SandcellError) as caught:
        engine.create(SandboxSpec(id="sbx_listed", name="listed", network=("a.org",)))
    assert caught.value.code is ErrorCode.UNSUPPORTED
    assert engine.list() == []


def test_it_says_that_it_isolates_nothing(engine: ProcessEngine) -> None:
    boot = Asker(engine.create(spec())).boot()
    assert "without any isolation" in boot["warnings"][0]
    assert boot["isolation"] | {"cgroup": False} == {
        **dict.fromkeys(("pid", "net", "mount", "user", "ipc", "uts", "cgroup"), False),
        "uid": os.geteuid(),
        "runtime": "none",
    }
    assert engine.probe().usable


@pytest.mark.parametrize("ending", ["remove", "close", "spawner", "guest"])
def test_what_user_code_left_behind_ends_with_the_sandbox(engine: ProcessEngine, ending: str) -> None:
    record = engine.create(spec())
    left = "(setsid nohup sleep 60 >/dev/null & echo $!); trap '' TERM; sleep 60 & :"
    pid = int(Asker(record).run("bash", "-c", left).output)
    guest = psutil.Process(Asker(record).process()["pid"])
    zygote = guest.parent()
    assert zygote is not None
    handles = [os.pidfd_open(pid), os.pidfd_open(guest.pid)]
    try:
        match ending:
            case "remove":
                engine.remove(record.id)
            case "close":
                engine.close()
            case "guest":
                guest.kill()
            case _:
                (spawner,) = [child for child in zygote.children() if child != guest]
                spawner.kill()
        assert all(select.select([handle], [], [], 2.0)[0] for handle in handles)
        assert engine.list() == []
    finally:
        for handle in handles:
            os.close(handle)


def test_sandboxes_of_another_engine_are_not_its_own(engine: ProcessEngine, tmp_path: Path) -> None:
    settings = EngineSettings(state=tmp_path, first_uid=61200, uid_count=10, guest=GUEST, guest_settings={})
    engine.create(spec())
    assert LocalEngine(settings).list() == []
