"""The life of sandboxes in containers: stop and start, ends of every kind, changes, snapshots, what a crash leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell import Sandbox
from sandcell.client.host import the_host
from sandcell_container.end import End
from sandcell_container.engines import docker_life, docker_start
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place

    from sandcell_container.engine import Record
    from sandcell_container.spec import SandboxSpec

pytestmark = pytest.mark.docker

FILES = "/workspace/a /home/user/b /opt/user/c"


@pytest.fixture
def kept(place: Place) -> Generator[Sandbox]:
    """A sandbox with files in three places, which its owner has let go of."""
    with place.create(on_release="keep") as made:
        made.exec(f"for each in {FILES}; do echo here > $each; done", check=True)
        yield made
    place.engine.remove(made.id)


def files_of(sandbox: Sandbox) -> str:
    return sandbox.exec(f"cat {FILES}").stdout


def look(place: Place, sandbox: Sandbox) -> Record:
    found = place.engine.find(sandbox.id)
    assert found is not None
    return found


# --- stop and start


def test_what_was_set_and_what_is_secret_survive_too(place: Place) -> None:
    with place.create(secrets={"TOKEN": "sk-live-4242"}, on_release="keep") as made:
        try:
            made.set_env(NEW="a 'b'\n\udcff")
            session = made.create_session()
            shows = 'printf %s "$NEW ${#TOKEN} $TOKEN"'
            expected = b"a 'b'\n\xff 12 ***"
            assert [made.exec(shows).stdout_bytes, session.exec(shows).stdout_bytes] == [expected] * 2
            made.restart()
            assert made.exec(shows).stdout_bytes == expected
        finally:
            place.engine.remove(made.id)


def test_a_paused_one_is_told_is_left_alone_and_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandcell.client.blocking.transport._QUIET_S", 0.2)
    with place.create() as box:
        box.run_code("x = 1")
        place.containers(box.id)[0].pause()
        with pytest.raises(SandcellError, match="paused") as caught:
            box.exec("true")
        assert (caught.value.code, box.status) == (ErrorCode.UNREACHABLE, "stopped")
        found = look(place, box)
        assert (found.status, found.end) == ("stopped", None)
        box.start()
        assert (box.run_code("x").value, box.status) == (1, "running")


def test_one_whose_container_somebody_has_removed_is_told_as_removed(place: Place) -> None:
    with place.create(on_release="stop") as box:
        place.containers(box.id)[0].remove(force=True)
        with pytest.raises(SandcellError) as caught:
            box.exec("true")
        assert (caught.value.code, box.status) == (ErrorCode.SANDBOX_GONE, "removed")


def test_a_call_starts_what_is_stopped_and_says_what_is_lost(place: Place) -> None:
    with place.create(env={"STAGE": "test"}) as box:
        box.run_code("x = 1")
        work = box.create_context(id="work")
        box.exec("echo here > a", check=True)
        box.stop()
        assert box.status == "stopped"
        assert box.exec("cat a; echo $STAGE").stdout == "here\ntest\n"
        assert box.info().starts == 2
        assert box.run_code("1").fresh_state
        with pytest.raises(SandcellError) as lost:
            work.run_code("1")
        assert lost.value.code is ErrorCode.LOST


def test_one_that_ends_by_itself_says_why(place: Place) -> None:
    with place.create(on_release="stop") as box:
        pass
    assert look(place, box).status == "stopped"
    place.engine.start(box.id)
    with place.create(on_release="keep", idle_timeout=0.1) as idle:
        pass
    end = place.engine.await_end(idle.id, timeout=20)
    assert end is not None
    assert (end.cause, end.limit) == ("culled", "idle_timeout")
    for each in (box, idle):
        place.engine.remove(each.id)


def test_a_stop_on_purpose_keeps_the_files_of_one_that_ends_with_its_owner(place: Place) -> None:
    with place.create() as made:
        made.files.write("a", "here\n")
        place.engine.stop(made.id)
        assert look(place, made).status == "stopped"
        assert place.engine.restart(made.id).starts == 2
        with Sandbox.connect(made.id) as again:
            assert again.files.read("a") == "here\n"
    assert place.engine.find(made.id) is None


def test_one_that_does_not_start_is_made_anew_from_its_files(
    place: Place, kept: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.engine.stop(kept.id)
    fail_first(monkeypatch)
    assert place.engine.start(kept.id).status == "running"
    with Sandbox.connect(kept.id) as again:
        assert files_of(again) == "here\n" * 3
        assert any("made anew from its files" in each for each in again.info().warnings)
    assert len(place.containers(kept.id)) == 1


def test_one_that_cannot_be_made_anew_either_stays_stopped_with_its_files(
    place: Place, kept: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.engine.stop(kept.id)
    with monkeypatch.context() as patch:
        fail_first(patch, times=2)
        with pytest.raises(SandcellError, match="on purpose"):
            place.engine.start(kept.id)
    assert look(place, kept).status == "stopped"
    assert [each.name for each in place.containers(kept.id)] == [f"sandcell-{kept.name}"]
    place.engine.start(kept.id)
    with Sandbox.connect(kept.id) as again:
        assert files_of(again) == "here\n" * 3


def fail_first(monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> None:
    left, start = [times], docker_start.start_container

    def fail(*args: object) -> None:
        if left[0]:
            left[0] -= 1
            raise SandcellError(ErrorCode.START_FAILED, "it fails on purpose")
        start(*args)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(docker_life, "start_container", fail)


# --- ends


def test_an_end_from_outside_is_heard_at_once_with_its_cause(place: Place, kept: Sandbox) -> None:
    ends = list[End | None]()
    waiting = threading.Thread(target=lambda: ends.append(place.engine.await_end(kept.id, timeout=30)))
    waiting.start()
    place.containers(kept.id)[0].kill()
    waiting.join(20)
    assert [(end.cause, end.signal) for end in ends if end] == [("killed", signal.SIGKILL)]
    record = look(place, kept)
    assert (record.status, record.end and record.end.cause) == ("stopped", "killed")


def test_one_that_never_was_is_lost(place: Place) -> None:
    end = place.engine.await_end("sbx_never", timeout=5)
    assert end is not None
    assert end.cause == "lost"


# --- crashes

MAKER = """
import sys
from sandcell import Sandbox
made = Sandbox.create(engine=sys.argv[1], on_release=sys.argv[2])
made.files.write("a", "here")
print(made.id, flush=True)
sys.stdin.read()
"""


def make_and_crash(place: Place, on_release: str) -> str:
    """Have another program make a sandbox, and kill that program; returns the sandbox's id."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKER, place.name, on_release], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as maker:
        assert maker.stdout is not None
        sandbox_id = maker.stdout.readline().decode().strip()
        maker.kill()
    assert sandbox_id
    return sandbox_id


def test_a_kept_sandbox_whose_program_was_killed_is_found_again(place: Place) -> None:
    sandbox_id = make_and_crash(place, "keep")
    assert sandbox_id in place.engine.prune().live
    with Sandbox.connect(sandbox_id) as again:
        assert again.files.read("a") == "here"
    place.engine.remove(sandbox_id)


def test_one_that_is_to_stop_with_its_program_is_stopped(place: Place) -> None:
    sandbox_id = make_and_crash(place, "stop")
    assert place.engine.await_end(sandbox_id, timeout=20) is not None
    assert sandbox_id in place.engine.prune().stopped
    place.engine.start(sandbox_id)
    with Sandbox.connect(sandbox_id) as again:
        assert again.files.read("a") == "here"
    place.engine.remove(sandbox_id)


def test_halves_of_sandboxes_are_rubbish(place: Place) -> None:
    """A folder without a container, and a container without a folder."""
    state = the_host().config.state_path / place.name
    with place.create(on_release="keep") as first, place.create(on_release="keep") as second:
        place.containers(first.id)[0].remove(force=True)
        subprocess.run(["rm", "-r", str(state / second.id)], check=True)
    assert {first.id, second.id} <= set(place.engine.prune().removed)
    assert place.containers(second.id) == []
    assert not (state / first.id).exists()


def test_a_container_whose_maker_died_before_its_start_is_rubbish(place: Place, kept: Sandbox) -> None:
    """Its name is free again, without anybody having cleaned up."""
    place.engine.stop(kept.id)
    folder = the_host().config.state_path / place.name / kept.id
    record = folder / "record.json"
    record.write_text(record.read_text().replace('"starts": 1', '"starts": 0'))
    with place.create(name=kept.name) as made:
        assert made.id != kept.id
    assert not folder.exists()


# --- changes


def test_memory_and_cores_change_and_files_stay(place: Place, kept: Sandbox) -> None:
    def smaller(spec: SandboxSpec) -> SandboxSpec:
        return replace(spec, limits=replace(spec.limits, memory=2**29, cpus=0.5))

    first = place.engine.update(kept.id, smaller)
    assert first.restarted is True  # from no limit to one: another container
    second = place.engine.update(
        kept.id, lambda spec: replace(spec, limits=replace(spec.limits, memory=2**30))
    )
    assert second.restarted is (place.name == "podman")  # whose interface cannot
    stats = place.engine.stats(kept.id)
    assert (stats.memory.limit, stats.cpus.limit) == (2**30, 0.5)
    with Sandbox.connect(kept.id) as again:
        shown = again.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>&1")
        assert str(2**30) in shown.stdout
        assert files_of(again) == "here\n" * 3


def test_what_a_container_is_changes_and_files_stay(place: Place, kept: Sandbox) -> None:
    assert place.engine.update(kept.id, lambda spec: replace(spec, hostname="other")).restarted
    with Sandbox.connect(kept.id) as again:
        assert again.exec("hostname").stdout == "other\n"
        assert files_of(again) == "here\n" * 3


def test_what_the_guest_is_told_changes_with_a_start(place: Place, kept: Sandbox) -> None:
    assert place.engine.update(kept.id, lambda spec: replace(spec, env={"NEW": "1"})).restarted
    with Sandbox.connect(kept.id) as again:
        assert again.exec("echo $NEW").stdout == "1\n"


def test_what_cannot_change_is_refused_and_nothing_happens(place: Place, kept: Sandbox) -> None:
    with pytest.raises(SandcellError) as refused:
        place.engine.update(kept.id, lambda spec: replace(spec, image="other"))
    assert refused.value.code is ErrorCode.UNSUPPORTED
    assert look(place, kept).starts == 1


def test_a_change_that_fails_leaves_it_as_it_was(
    place: Place, kept: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_first(monkeypatch)
    with pytest.raises(SandcellError, match="on purpose"):
        place.engine.update(kept.id, lambda spec: replace(spec, hostname="other"))
    with Sandbox.connect(kept.id) as again:
        assert again.exec("hostname").stdout == "sandbox\n"
        assert files_of(again) == "here\n" * 3


# --- snapshots and use


def test_a_snapshot_is_an_image_of_the_files(place: Place, kept: Sandbox) -> None:
    name = f"snap-{os.getpid()}"
    taken = place.engine.snapshot(kept.id, name)
    try:
        assert (taken.name, taken.engine) == (name, place.name)
        assert name in [each.name for each in place.engine.snapshots()]
        kept.exec("rm /workspace/a", check=True)
        with place.create(name) as made:
            assert files_of(made) == "here\n" * 3
            assert made.info().image == name
        with pytest.raises(SandcellError) as refused:
            place.engine.snapshot(kept.id, name)
        assert refused.value.code is ErrorCode.EXISTS
    finally:
        place.engine.remove_snapshot(name)
        place.engine.remove_snapshot(name)
    assert name not in [each.name for each in place.engine.snapshots()]


def test_an_image_that_is_no_snapshot_is_not_removed_as_one(place: Place) -> None:
    place.engine.remove_snapshot("sandcell-runtime:slim")
    assert place.engine.probe().usable


def test_what_is_used_is_told_of_what_there_is(place: Place) -> None:
    with place.create(memory="512MiB", pids=300) as made:
        for stats in (
            place.engine.stats(made.id),
            made.stats(),
        ):  # as the daemon says, and as the guest sees it
            assert (stats.memory.limit, stats.pids.limit) == (2**29, 300)
            assert stats.memory.used is not None
            assert 2**20 < stats.memory.used < 2**29
            assert stats.pids.used is not None
            assert 2 <= stats.pids.used < 300
            assert stats.cpu_time is not None
            assert stats.cpu_time > 0


def test_the_folder_of_a_sandbox_is_its_users_alone(place: Place, kept: Sandbox) -> None:
    folder = Path(look(place, kept).address.path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {
        each.name: each.stat().st_mode & 0o777 for each in folder.iterdir() if each.suffix == ".json"
    } == {
        "record.json": 0o600,
        "boot.json": 0o600,
    }
