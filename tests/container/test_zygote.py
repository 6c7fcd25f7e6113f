"""What a zygote does before it has imported everything, and where it cannot."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell_container.conformance import Asker, command
from sandcell_container.engines.bytecode import compile_folder
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.ids import new_id
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

RUNTIME_DIR = str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime")
# Its id is also that of a control group of the machine, where other tests have theirs.
SPEC = SandboxSpec(id=new_id("sbx"), name="box", on_release="remove")
COUNT = """
import os, select, sys

def count_children():
    with open(f"/proc/self/task/{os.getpid()}/children") as listed:
        return len(listed.read().split())
"""
# Imported between two looks at what the host program asks for, by a descriptor that can be read when it has.
AWAIT_REQUEST = f"""{COUNT}
assert count_children() or select.select([int(sys.argv[1])], [], [], 20)[0]
"""
NOTE_CHILDREN = f"""{COUNT}
open(%r, "w").write(str(count_children()))
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that zygotes import from."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def open_engine(state: Path, *preload: str) -> Iterator[LocalEngine]:
    guest = replace(command(RUNTIME_DIR), preload=preload)
    settings = EngineSettings(state=state, first_uid=61200, uid_count=1000, guest=guest, guest_settings={})
    engine = LocalEngine(settings)
    yield engine
    engine.close()


@pytest.fixture
def engine(modules: Path, state: Path) -> Iterator[LocalEngine]:
    yield from open_engine(state, "await_request", "note_children")


def test_a_sandbox_comes_up_while_the_guests_modules_are_imported(
    engine: LocalEngine, modules: Path, tmp_path: Path
) -> None:
    counted = tmp_path / "counted"
    (modules / "await_request.py").write_text(AWAIT_REQUEST)
    (modules / "note_children.py").write_text(NOTE_CHILDREN % str(counted))
    record = engine.create(SPEC)
    assert counted.read_text() == "1"  # its launcher, and no guest yet
    assert Asker(record).run("true").code == 0
    engine.remove(SPEC.id)
    assert (
        Asker(engine.create(SPEC)).run("true").code == 0
    )  # from the same one, which has imported everything


@pytest.mark.parametrize("on_release", ["remove", "keep"])
def test_an_import_that_fails_is_why_a_sandbox_does_not_start(
    engine: LocalEngine, modules: Path, state: Path, on_release: Literal["remove", "keep"]
) -> None:
    (modules / "await_request.py").write_text(AWAIT_REQUEST)
    (modules / "note_children.py").write_text("raise RuntimeError('no such luck')")
    spec = replace(SPEC, on_release=on_release)
    with pytest.raises(SandcellError, match="RuntimeError: no such luck") as failed:
        engine.create(spec)
    assert failed.value.code is ErrorCode.START_FAILED
    assert "note_children.py" in failed.value.details["words"]
    assert os.listdir(state / "sandboxes") == ["table.lock"]
    (modules / "note_children.py").write_text("")
    assert Asker(engine.create(spec)).run("true").code == 0
    engine.remove(spec.id)


def test_what_runs_inside_is_there_as_bytecode(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("answer = 42\n")
    compile_folder(str(tmp_path))
    bytecode = Path(importlib.util.cache_from_source(str(module)))
    first = bytecode.read_bytes()
    os.utime(bytecode, (0, 0))
    compile_folder(str(tmp_path))
    assert bytecode.stat().st_mtime == 0, "it was up to date"
    module.write_text("answer = 'another one'\n")
    os.utime(module, (1, 1))  # an edit of the same second is not seen, as by an import
    compile_folder(str(tmp_path))
    assert bytecode.read_bytes() != first


def test_what_cannot_be_compiled_or_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("this is no Python")
    compile_folder(str(tmp_path))
    compile_folder(str(tmp_path / "not there"))
