"""What may be changed of a sandbox that exists, and copies of its files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

MIB = 2**20


@pytest.fixture
def box() -> Generator[Sandbox]:
    with Sandbox.create(engine="local", on_release="remove") as made:
        yield made


def refused(call: Callable[[], object]) -> SandcellError:
    with pytest.raises(SandcellError) as caught:
        call()
    return caught.value


def test_memory_may_be_changed_while_it_runs(box: Sandbox) -> None:
    box.run_code("x = 1")
    has_group = box.info().isolation["cgroup"]
    done = box.update(memory="300MiB", idle_timeout=None)
    assert done.restarted is not has_group
    assert box.info().limits["memory"] == 300 * MIB
    assert box.stats().memory.limit == 300 * MIB
    if has_group:
        assert box.run_code("x").value == 1
        assert box.exec(["python", "-c", "x = bytearray(600 * 2**20)"]).end.cause == "oom"
        box.update(memory=None)
        assert box.exec(["python", "-c", "x = bytearray(600 * 2**20)"]).ok
    box.restart()
    assert box.stats().memory.limit == (None if has_group else 300 * MIB)


def test_less_memory_than_is_used_ends_what_uses_it_and_no_more(box: Sandbox) -> None:
    box.files.write("kept", "kept")
    box.run_code("x = bytearray(300 * 2**20)")
    box.update(memory="200MiB", cpus=1)
    assert (box.info().limits["memory"], box.info().limits["cpus"]) == (200 * MIB, 1)
    assert box.run_code("1").value == 1
    assert box.files.read("kept") == "kept"


def test_what_takes_a_restart_says_what_that_has_ended(box: Sandbox) -> None:
    box.files.write("kept", "kept")
    box.create_context(id="work")
    box.start_process("sleep 600", id="job")
    box.start_process("true", id="over").wait(timeout=20)
    done = box.update(disk="100MiB")
    assert done.restarted
    assert {tuple(each) for each in done.lost} >= {("context", "work"), ("process", "job")}
    assert ("process", "over") not in {tuple(each) for each in done.lost}
    assert "disk is limited for each file" in done.warnings[0]
    assert box.files.read("kept") == "kept"
    assert box.info().limits["disk"] == 100 * MIB


def test_one_that_is_stopped_is_changed_for_its_next_start(box: Sandbox) -> None:
    box.stop()
    assert box.update(pids=50) == type(box.update())(restarted=False)
    assert box.status == "stopped"
    assert box.info().limits["pids"] == 50


def test_from_remove_to_keep_it_outlives_its_owner() -> None:
    with Sandbox.create(engine="local", name="changed") as box:
        assert box.update(on_release="keep").restarted
    assert the_host().find("changed").record.status == "running"
    the_host().find("changed").engine.remove(box.id)


def test_what_cannot_be_is_refused_and_changes_nothing(box: Sandbox) -> None:
    wrong: list[Any] = [{"memory": "1KiB"}, {"idle_timeout": -1}, {"on_release": "burn"}, {"cpus": "many"}]
    wrong += [{"pids": 10**9}, {"cpus": 1e12}, {"memory": 2**70}, {"disk": 2**63}]
    for options in wrong:
        assert refused(partial(box.update, **options)).code is ErrorCode.INVALID_ARGUMENT
    assert refused(lambda: box.update(network="wide")).code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TypeError):
        box.update(colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # on purpose
    with Sandbox.connect(box.name) as other:
        assert refused(lambda: other.update(pids=50)).code is ErrorCode.FORBIDDEN
    assert box.info().starts == 1


def test_a_strict_one_stays_so() -> None:
    with Sandbox.create(engine="local", strict=True) as box:
        assert refused(lambda: box.update(disk="1GiB")).code is ErrorCode.UNSUPPORTED
        assert box.info().limits["disk"] is None


# --- snapshots


def test_a_snapshot_begins_another_sandbox(box: Sandbox) -> None:
    box.files.write("data/f", "then")
    box.exec("pip install --quiet --no-index . || true; echo kept > ~/.note; ln -s /etc/passwd link")
    image = box.snapshot("then")
    box.files.write("data/f", "now")
    try:
        with Sandbox.create(image, engine="local") as other:
            assert other.files.read("data/f") == "then"
            assert other.exec("cat ~/.note; readlink link").stdout == "kept\n/etc/passwd\n"
            assert other.run_code("import msgspec; 1").value == 1
            other.files.write("data/f", "mine")
            with Sandbox.create(image, engine="local") as third:
                assert third.files.read("data/f") == "then"
        assert box.files.read("data/f") == "now"
        assert refused(lambda: box.snapshot("then")).code is ErrorCode.EXISTS
        assert "then" in [each.name for each in the_host().snapshots()]
    finally:
        the_host().remove_snapshot("then")
    assert refused(lambda: Sandbox.create("then", engine="local")).code is ErrorCode.IMAGE_NOT_FOUND
    assert refused(lambda: the_host().remove_snapshot("then")).code is ErrorCode.NOT_FOUND


async def test_of_one_that_is_stopped_too() -> None:
    async with await AsyncSandbox.create(engine="local") as box:
        await box.files.write("f", "kept")
        await box.stop()
        await box.snapshot("asleep")
        assert box.status == "stopped"
    try:
        async with await AsyncSandbox.create("asleep", engine="local") as other:
            assert await other.files.read("f") == "kept"
    finally:
        the_host().remove_snapshot("asleep")


def test_a_name_that_is_none_is_refused(box: Sandbox) -> None:
    for name in ("", "../up", "UPPER", ".draft-x"):
        assert refused(partial(box.snapshot, name)).code in {
            ErrorCode.INVALID_NAME,
            ErrorCode.INVALID_ARGUMENT,
        }
