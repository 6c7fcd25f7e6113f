"""Code that means harm: the machine and other sandboxes go on, somebody says what happened, and nothing is left."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import GuestProcess

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.cli.verbs import main
from sandcell.client.host import the_host
from sandcell_container.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell_container.registry import Entry

MIB = 2**20
WITHIN_S = 2.0
DEADLINE = 30.0


@pytest.fixture(scope="module")
def neighbour() -> Generator[Sandbox]:
    with Sandbox.create(engine="local") as made:
        made.exec("true")
        yield made


@pytest.fixture
def victim() -> Generator[Sandbox]:
    """One with limits, of which nothing may be left afterwards."""
    with Sandbox.create(engine="local", memory="384MiB", pids=120, cpus=1, disk="64MiB") as made:
        found = entry_of(made)
        yield made
    assert_gone(found)


def entry_of(box: Sandbox) -> Entry:
    return Registry(the_host().config.state_path / "sandboxes").entry(box.id)


def assert_gone(found: Entry) -> None:
    assert not found.folder.exists()
    assert all(process.open() is None for process in found.processes)
    if found.group is not None:
        assert not any(Path(path).exists() for path in found.group.paths)
    if found.uid is not None:
        assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and uid_of(pid) == found.uid]


def uid_of(pid: str) -> int | None:
    try:
        return Path("/proc", pid).stat().st_uid
    except FileNotFoundError:
        return None


def assert_others_answer(neighbour: Sandbox) -> None:
    """A command in another sandbox, and the list of them all, come as fast as ever."""
    begun = time.monotonic()
    assert neighbour.exec("true").ok
    assert time.monotonic() - begun < WITHIN_S
    begun = time.monotonic()
    assert main(["ps"]) == 0
    assert time.monotonic() - begun < WITHIN_S


def has_group(box: Sandbox) -> bool:
    return bool(box.info().isolation["cgroup"])


def test_a_fork_bomb(victim: Sandbox, neighbour: Sandbox) -> None:
    bomb = victim.start_process(["python", "-c", _FORK], id="bomb")
    bomb.wait_for_log("refused", timeout=DEADLINE)
    assert_others_answer(neighbour)
    assert victim.status == "running"
    if has_group(victim):
        assert (victim.stats().pids.used or 0) <= 120
    with pytest.raises(SandcellError) as caught:
        victim.start_process("sleep 1")
    assert caught.value.code is ErrorCode.START_FAILED
    assert "process" in str(caught.value)
    report = bomb.kill(grace=0)
    assert report.survived == 0
    assert victim.exec("echo on").stdout == "on\n"


_FORK = """
import os, time
told = False
while True:
    try:
        os.fork()
    except OSError:
        if not told: print("refused", flush=True); told = True
        time.sleep(0.01)
"""


def test_a_memory_bomb(victim: Sandbox, neighbour: Sandbox) -> None:
    for code in ("held = bytearray(4 * 2**30)", "held = []\nwhile True: held.append(bytearray(2**24))"):
        done = victim.exec(["python", "-c", code])
        assert_others_answer(neighbour)
        if has_group(victim):
            assert (done.end.cause, done.end.limit) == ("oom", "memory")
        else:
            assert "MemoryError" in done.stderr
    assert victim.run_code("1").value == 1


def test_a_disk_that_is_filled(victim: Sandbox, neighbour: Sandbox) -> None:
    full = victim.exec("for at in $(seq 40); do head -c 30M /dev/zero > /tmp/$at || exit; done")
    assert not full.ok
    assert "No space left" in full.stderr or full.end.cause == "oom"
    assert_others_answer(neighbour)
    victim.exec("rm -rf /tmp/*")
    large = victim.exec("head -c 1G /dev/zero > large")
    assert (large.ok, large.end.cause, large.end.limit) == (False, "limit", "disk")
    assert victim.files.stat("large").size == 64 * MIB
    assert victim.exec("echo on").stdout == "on\n"


def test_a_gigabyte_of_output(victim: Sandbox, neighbour: Sandbox) -> None:
    guest = GuestProcess(victim)
    flood = victim.start_process("head -c 1G /dev/zero | tr '\\0' x", id="flood")
    assert_others_answer(neighbour)
    assert flood.wait(timeout=DEADLINE).code == 0
    assert guest.peak < 200 * MIB
    told = flood.logs(tail=1)
    assert told.truncated
    done = victim.exec("head -c 100M /dev/zero | tr '\\0' x", max_output="1MiB")
    assert done.truncated["stdout"].total_bytes == 100 * MIB
    assert len(done.stdout) < 2 * MIB


def test_a_process_that_ignores_every_signal(victim: Sandbox, neighbour: Sandbox) -> None:
    stubborn = victim.start_process(["python", "-c", _STUBBORN], id="stubborn")
    stubborn.wait_for_log("on", timeout=DEADLINE)
    assert_others_answer(neighbour)
    assert stubborn.kill(grace=0.2).survived == 0
    assert stubborn.wait(timeout=DEADLINE).cause == "killed"


_STUBBORN = """
import os, signal, time
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(5):
    if os.fork() == 0: os.setsid()
print("on", flush=True)
while True: time.sleep(60)
"""


@contextmanager
def busy(victim: Sandbox) -> Generator[None]:
    """Have the sandbox full of what does not want to end."""
    job = victim.start_process(["python", "-c", _STUBBORN])
    job.wait_for_log("on", timeout=DEADLINE)
    yield


def test_one_that_is_removed_while_it_resists(neighbour: Sandbox) -> None:
    with Sandbox.create(engine="local") as box, busy(box):
        found = entry_of(box)
        begun = time.monotonic()
        box.remove()
        assert time.monotonic() - begun < WITHIN_S
        assert_others_answer(neighbour)
    assert_gone(found)
