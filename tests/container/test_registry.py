from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandcell_container.cgroup import ControlGroup
from sandcell_container.errors import Conflict, ErrorCode, InvalidRequest, Unavailable
from sandcell_container.os_process import OsProcess
from sandcell_container.registry import Claim, Registry
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandcell_container.spec import OnRelease


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "deep" / "state")


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Holds the locks of claims, as sandboxes that live do."""
    with ExitStack() as stack:
        yield stack


def spec(name: str, *, on_release: OnRelease = "remove") -> SandboxSpec:
    return SandboxSpec(
        id=f"sbx_{name}", name=name, on_release=on_release, env={"A": "1\udcff"}, secrets={"B": "2"}
    )


def claim(registry: Registry, held: ExitStack, name: str, *, on_release: OnRelease = "remove") -> Claim:
    made = registry.claim(spec(name, on_release=on_release), engine="local")
    held.callback(made.close)
    return made


def test_an_entry_is_for_its_owner_alone(registry: Registry, held: ExitStack) -> None:
    folder = claim(registry, held, "a").entry.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "record.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_live_sandbox_is_listed_as_it_is(registry: Registry, held: ExitStack) -> None:
    made = claim(registry, held, "a")
    assert [entry.record.status for entry in registry.entries()] == ["creating"]
    me = OsProcess.of(os.getpid())
    published = made.publish([me])
    assert published.record.status == "running"
    assert registry.entries() == [published]
    assert published.processes == (me,)
    assert published.record.address.path == str(published.folder / "guest.sock")


def test_entries_come_in_the_order_of_creation(registry: Registry, held: ExitStack) -> None:
    for name in ("b", "a", "c"):
        claim(registry, held, name)
    assert [entry.record.name for entry in registry.entries()] == ["b", "a", "c"]


def test_a_taken_name_or_id_exists(registry: Registry, held: ExitStack) -> None:
    claim(registry, held, "a")
    with pytest.raises(Conflict) as caught:
        registry.claim(spec("a"), engine="local")
    assert caught.value.code is ErrorCode.EXISTS
    assert caught.value.details["id"] == "sbx_a"


def test_of_concurrent_claims_of_one_name_exactly_one_wins(registry: Registry, held: ExitStack) -> None:
    start, outcomes = threading.Barrier(8), list[str]()

    def try_it() -> None:
        start.wait()
        try:
            claim(registry, held, "a")
            outcomes.append("won")
        except Conflict as refused:
            outcomes.append(refused.code)

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["EXISTS"] * 7 + ["won"]


def test_a_dead_sandbox_and_its_files_are_gone_at_the_next_look(registry: Registry) -> None:
    made = registry.claim(spec("a"), engine="local")
    made.publish([])
    (made.entry.folder / "home").mkdir(mode=0)
    made.close()
    assert registry.entries() == []
    assert not made.entry.folder.exists()


def test_one_that_died_while_being_made_is_removed_whatever_it_was_to_keep(registry: Registry) -> None:
    made = registry.claim(spec("a", on_release="keep"), engine="local")
    made.close()
    assert registry.entries() == []


@pytest.mark.parametrize("on_release", ["stop", "keep"])
def test_one_that_keeps_its_files_is_stopped_when_it_died(registry: Registry, on_release: OnRelease) -> None:
    made = registry.claim(spec("a", on_release=on_release), engine="local")
    made.publish([])
    made.close()
    assert [entry.record.status for entry in registry.entries()] == ["stopped"]
    assert made.entry.folder.exists()
    with pytest.raises(Conflict, match="stopped"):
        registry.claim(spec("a"), engine="local")
    registry.remove("sbx_a")
    assert registry.entries() == []


def test_processes_left_of_a_dead_sandbox_are_ended_before_its_files(registry: Registry) -> None:
    with subprocess.Popen(["sleep", "60"]) as left:
        made = registry.claim(spec("a"), engine="local")
        made.publish([OsProcess.of(left.pid)])
        made.close()
        registry.reap()
        assert left.wait(5) == -9


def test_processes_of_another_boot_are_not_touched(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as unrelated:
        made = registry.claim(spec("a"), engine="local")
        made.publish([OsProcess.of(unrelated.pid)])
        made.close()
        monkeypatch.setattr("sandcell_container.registry.boot_id", lambda: "another")
        assert registry.entries() == []
        assert unrelated.poll() is None
        unrelated.kill()


def test_removing_ends_a_live_sandbox(registry: Registry, held: ExitStack) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        made = claim(registry, held, "a")
        made.publish([OsProcess.of(process.pid)])
        registry.remove("sbx_a")
        assert process.wait(5) == -9
    assert registry.entries() == []
    registry.remove("sbx_a")


@pytest.mark.parametrize("name", ["never", "..", ".", "", "table.lock", "../state", ".gone-x"])
def test_removing_what_does_not_exist_is_fine_and_touches_nothing(
    registry: Registry, held: ExitStack, name: str
) -> None:
    made = claim(registry, held, "a")
    registry.remove(name)
    assert [entry.record.name for entry in registry.entries()] == ["a"]
    assert made.entry.folder.exists()


def test_one_being_made_cannot_be_removed(registry: Registry, held: ExitStack) -> None:
    claim(registry, held, "a")
    with pytest.raises(Conflict) as caught:
        registry.remove("sbx_a")
    assert caught.value.code is ErrorCode.BUSY


def test_an_abandoned_claim_leaves_nothing(registry: Registry) -> None:
    made = registry.claim(spec("a"), engine="local")
    made.abandon()
    made.close()
    assert [path.name for path in made.entry.folder.parent.iterdir()] == ["table.lock"]


def test_an_abandoned_claim_stays_as_long_as_its_control_group_does(
    registry: Registry, tmp_path: Path
) -> None:
    group = tmp_path / "group"
    group.mkdir()
    made = registry.claim(spec("a"), engine="local")
    made.plan(ControlGroup(version=2, folders={"memory": str(group)}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sandcell_container.cgroup.os.rmdir", _refuse)
        made.abandon()
    made.close()
    assert registry.entries() == []
    assert not group.exists()
    assert [path.name for path in made.entry.folder.parent.iterdir()] == ["table.lock"]


def _refuse(_path: str) -> None:
    raise OSError(errno.EBUSY, "in use")


def test_rubbish_is_taken_away(registry: Registry, tmp_path: Path) -> None:
    registry.reap()
    state = tmp_path / "deep" / "state"
    (state / "sbx_half").mkdir()  # killed before its record was written
    (state / ".gone-sbx_old-1").mkdir()  # killed before its files were removed
    assert registry.entries() == []
    assert [path.name for path in state.iterdir()] == ["table.lock"]


SPOILT = [
    b"",
    b"{}",
    b'{"record":{}}',
    b"no JSON",
    b"\xff",
    b"[]",
    b'{"record":{"id":1},"uid":"x","processes":3,"boot":null}',
    b'{"record":null,"uid":null,"processes":[],"boot":""}',
]


@pytest.mark.parametrize("text", SPOILT)
def test_a_dead_sandbox_whose_record_is_spoilt_is_taken_away(
    registry: Registry, held: ExitStack, text: bytes
) -> None:
    claim(registry, held, "good")
    for name, look in (("a", registry.entries), ("b", lambda: registry.remove("sbx_b"))):
        bad = registry.claim(spec(name), engine="local")
        (bad.entry.folder / "record.json").write_bytes(text)
        bad.close()
        look()
        assert not bad.entry.folder.exists()
    assert [entry.record.name for entry in registry.entries()] == ["good"]


@pytest.mark.parametrize("text", SPOILT)
def test_a_live_sandbox_whose_record_is_spoilt_is_left_alone(
    registry: Registry, held: ExitStack, text: bytes
) -> None:
    bad = claim(registry, held, "bad")
    (bad.entry.folder / "record.json").write_bytes(text)
    claim(registry, held, "good")
    assert [entry.record.name for entry in registry.entries()] == ["good"]
    registry.await_end("sbx_bad", timeout=0)
    with pytest.raises(Conflict) as caught:
        registry.remove("sbx_bad")
    assert caught.value.code is ErrorCode.BUSY
    assert bad.entry.folder.exists()


def test_each_sandbox_has_a_uid_of_its_own(registry: Registry, held: ExitStack) -> None:
    uids = range(3_000_000_000, 3_000_000_003)
    given = set[int | None]()
    for name in ("a", "b", "c"):
        made = registry.claim(spec(name), engine="local", uids=uids)
        held.callback(made.close)
        given.add(made.entry.uid)
    assert given == set(uids)
    with pytest.raises(Unavailable, match="3 uids"):
        registry.claim(spec("d"), engine="local", uids=uids)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_uid_of_a_live_sandbox_whose_record_is_spoilt_stays_taken(
    registry: Registry, held: ExitStack
) -> None:
    bad = claim(registry, held, "bad").entry.folder
    (bad / "home").mkdir()
    os.chown(bad / "home", 61001, 61001)
    (bad / "record.json").write_text("")
    with pytest.raises(Unavailable, match="1 uids"):
        registry.claim(spec("a"), engine="local", uids=range(61001, 61002))


def test_a_state_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable) as caught:
        Registry(tmp_path / "file" / "state").entries()
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "SANDCELL_STATE_DIR" in caught.value.hint


@pytest.mark.parametrize("wrong", ["../up", "", "a/b", "UPPER", ".hidden"])
def test_a_name_that_is_no_name_is_refused(registry: Registry, wrong: str) -> None:
    for fields in (replace(spec("a"), id=wrong), replace(spec("a"), name=wrong)):
        with pytest.raises(InvalidRequest) as caught:
            registry.claim(fields, engine="local")
        assert caught.value.code is ErrorCode.INVALID_NAME


def test_a_grave_whose_processes_do_not_end_is_left_for_the_next_time(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = registry.claim(spec("a"), engine="local")
    made.publish([])
    made.close()
    stuck = [OsProcess(1, 1)]

    def end(_processes: object, *, timeout: float) -> list[OsProcess]:
        return stuck

    monkeypatch.setattr("sandcell_container.registry.end_processes", end)
    assert registry.entries() == []
    assert len(list(made.entry.folder.parent.iterdir())) == 2
    stuck.clear()
    assert registry.entries() == []
    assert len(list(made.entry.folder.parent.iterdir())) == 1


def test_what_a_guest_said_last_is_known_after_its_sandbox_is_gone(registry: Registry) -> None:
    made = registry.claim(spec("a"), engine="local")
    made.publish([])
    (made.entry.folder / "log").write_text("first\n" * 10_000 + "no module named none\n")
    assert registry.last_words("sbx_a").endswith("no module named none\n")
    made.close()
    registry.reap()
    assert not made.entry.folder.exists()
    assert registry.last_words("sbx_a").endswith("first\nno module named none\n")
    assert len(registry.last_words("sbx_a")) <= 4096
    for unknown in ("sbx_b", "../a", ".", ""):
        assert registry.last_words(unknown) == ""
