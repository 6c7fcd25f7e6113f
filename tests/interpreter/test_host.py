"""What a program's sandboxes share, and what becomes of a sandbox that nobody waits for any more."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandcell.client.blocking.sandbox import Sandbox
from sandcell.client.host import Creation, Host, guest_command, the_host
from sandcell.client.records import find_record, info_of_record
from sandcell_container.end import End
from sandcell_container.engine import Address, Probe, Record
from sandcell_container.engines.partial import PartialEngine
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell_container.spec import Status

SPEC = SandboxSpec(id="one", name="one")


def record(name: str, status: Status = "running") -> Record:
    return Record(
        id=f"sbx_{name}",
        name=name,
        engine="table",
        status=status,
        address=Address(path="/nowhere"),
        token="t",
        created_at=1.0,
        on_release="remove",
    )


class TableEngine(PartialEngine):
    """An engine that is a table: what it lists is what it was given, one list after the other."""

    def __init__(self, *lists: list[Record]) -> None:
        self._lists = list(lists)

    @property
    def name(self) -> str:
        return "table"

    def probe(self) -> Probe:
        return Probe(engine=self.name, usable=True)

    def create(self, spec: SandboxSpec) -> Record:
        return record(spec.name)

    def list(self) -> list[Record]:
        return self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]

    def remove(self, sandbox_id: str) -> None:
        """Nothing to end."""

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        return End(cause="lost")

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    monkeypatch.setenv("SANDCELL_STATE_DIR", str(tmp_path))
    return Host()


def serve_table(host: Host, monkeypatch: pytest.MonkeyPatch, engine: TableEngine) -> None:
    def open_engine(_name: str, _settings: object) -> tuple[TableEngine, list[Probe]]:
        return engine, []

    monkeypatch.setattr("sandcell.client.host.ENGINES", ("table",))
    monkeypatch.setattr("sandcell_container.engines.detect.open_engine", open_engine)


# --- a creation that is given up


def test_a_creation_that_is_given_up_later_removes_what_it_made() -> None:
    removed: list[str] = []
    creation = Creation(lambda _: record("one"), removed.append)
    creation.run(SPEC)
    assert removed == []
    creation.give_up()
    assert removed == ["sbx_one"]


def test_a_creation_that_is_given_up_meanwhile_removes_it_when_it_is_there() -> None:
    removed: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def make(_: SandboxSpec) -> Record:
        begun.set()
        assert go_on.wait(10)
        return record("one")

    creation = Creation(make, removed.append)
    thread = threading.Thread(target=creation.run, args=[SPEC])
    thread.start()
    assert begun.wait(10)
    creation.give_up()
    assert removed == []
    go_on.set()
    thread.join(10)
    assert removed == ["sbx_one"]


# --- finding


def test_a_sandbox_is_found_by_id_and_by_name(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_table(host, monkeypatch, TableEngine([record("one"), record("two")]))
    assert host.find("two").record.id == "sbx_two"
    assert host.find("sbx_one").record.name == "one"
    with pytest.raises(SandcellError) as caught:
        host.find("three")
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert "one, two" in caught.value.hint


def test_one_that_is_being_made_is_waited_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_table(host, monkeypatch, TableEngine([record("one", "creating")], [record("one")]))
    assert host.find("one").record.status == "running"


def test_one_that_is_made_for_ever_is_waited_for_until_the_deadline(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDCELL_START_TIMEOUT", "0.05")
    impatient = Host()
    serve_table(impatient, monkeypatch, TableEngine([record("one", "creating")]))
    with pytest.raises(SandcellError) as caught:
        impatient.find("one")
    assert caught.value.code is ErrorCode.START_TIMEOUT


def test_one_that_is_stopped_is_found(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_table(host, monkeypatch, TableEngine([record("one", "stopped")]))
    assert host.find("one").record.status == "stopped"


def test_nothing_at_all_says_how_to_make_one() -> None:
    with pytest.raises(SandcellError, match=r"Sandbox\.create"):
        find_record([], "x")


def test_a_record_tells_what_it_knows() -> None:
    info = info_of_record(record("one"))
    assert (info.id, info.name, info.status, info.engine) == ("sbx_one", "one", "running", "table")


def test_a_sandbox_that_ends_at_once_was_not_started(host: Host, tmp_path: Path) -> None:
    """Its maker is told that, and not that something it never had is gone."""
    dead = replace(record("one"), address=Address(path=str(tmp_path / "nobody.sock")))
    with pytest.raises(SandcellError) as caught:
        Sandbox._attach(host, TableEngine([dead]), dead, "owner")  # pyright: ignore[reportPrivateUsage]  # the seam
    assert caught.value.code is ErrorCode.START_FAILED
    assert caught.value.hint


# --- the process


def test_there_is_one_host_for_a_process_and_another_for_its_fork() -> None:
    ours = the_host()
    assert the_host() is ours
    child = os.fork()
    if child == 0:
        os._exit(int(the_host() is ours))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_guest_that_engines_are_told_of_is_there() -> None:
    command = guest_command()
    assert (command.module, command.function) == ("sandcell.guest.main", "serve")
    assert os.path.exists(os.path.join(command.runtime_dir, "launch.py"))


def test_an_unknown_engine_is_refused(host: Host) -> None:
    with pytest.raises(SandcellError) as caught:
        host.engine("warp")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
