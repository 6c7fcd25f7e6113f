"""What a sandbox uses of its limits, and how it is told when it wants more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell import Sandbox

if TYPE_CHECKING:
    from collections.abc import Generator

MIB = 2**20
FILL = "import sys; held = bytearray({} * 2**20); print('full', flush=True); sys.stdin.read()"


@pytest.fixture(scope="module")
def small() -> Generator[Sandbox]:
    """One that may have 384 MiB and 64 processes."""
    with Sandbox.create(engine="local", memory="384MiB", pids=64, disk="64MiB", cpus=1) as made:
        yield made


def has_group(box: Sandbox) -> bool:
    return bool(box.info().isolation["cgroup"])


def test_stats_are_of_the_sandbox_alone(small: Sandbox) -> None:
    before = small.stats()
    assert (before.memory.limit, before.pids.limit, before.disk.limit, before.cpus.limit) == (
        384 * MIB,
        64,
        64 * MIB,
        1,
    )
    small.files.write("ballast", b"x" * (3 * MIB))
    job = small.start_process(["python", "-c", FILL.format(100)], stdin=True)
    job.wait_for_log("full", timeout=20)
    now = small.stats()
    assert now.memory.used is not None and before.memory.used is not None
    assert 90 * MIB < now.memory.used - before.memory.used < 160 * MIB
    assert now.disk.used is not None and before.disk.used is not None
    assert 3 * MIB <= now.disk.used - before.disk.used < 4 * MIB
    assert now.pids.used is not None and 1 <= now.pids.used < 64
    assert (now.cpu_time or 0) > (before.cpu_time or 0)
    info = small.info()
    assert info.memory["limit"] == 384 * MIB
    assert (info.memory["used"] or 0) > 90 * MIB
    assert info.disk == {"limit": 64 * MIB, "used": now.disk.used}
    job.kill()
    job.remove()


def test_without_limits_there_is_none_in_it() -> None:
    with Sandbox.create(engine="local") as box:
        stats = box.stats()
        assert (stats.memory.limit, stats.disk.limit, stats.pids.limit, stats.cpus.limit) == (None,) * 4
        assert stats.memory.used is not None and stats.disk.used is not None


def test_a_command_that_wants_more_than_there_is_ends_as_oom(small: Sandbox) -> None:
    if not has_group(small):
        pytest.skip("no control group may be made here")
    done = small.exec(["python", "-c", FILL.format(1000)])
    assert (done.ok, done.signal, done.end.cause, done.end.limit) == (False, 9, "oom", "memory")
    assert (done.end.peak_memory or 0) > 200 * MIB
    assert small.exec("echo on").stdout == "on\n"
    assert (small.stats().oom_kills or 0) >= 1


def test_a_run_that_wants_more_than_there_is_ends_as_oom(small: Sandbox) -> None:
    if not has_group(small):
        pytest.skip("no control group may be made here")
    run = small.run_code("held = bytearray(1000 * 2**20)")
    assert (run.ok, run.end.cause, run.end.limit, run.end.state) == (False, "oom", "memory", "lost")
    assert run.error is not None and "memory" in run.error.value
    assert small.run_code("1").value == 1


def test_a_process_that_wants_more_than_there_is_ends_as_oom(small: Sandbox) -> None:
    if not has_group(small):
        pytest.skip("no control group may be made here")
    job = small.start_process(["python", "-c", FILL.format(1000)])
    assert job.wait(timeout=20).cause == "oom"
    killed = small.start_process("sleep 60")
    killed.kill(grace=0)
    assert killed.wait(timeout=20).cause == "killed"
