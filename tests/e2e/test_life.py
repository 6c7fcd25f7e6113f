"""The life of a sandbox as its users see it: left, closed, stopped, started, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import GuestProcess

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandcell_container.spec import OnRelease

DEADLINE = 20.0


@pytest.fixture
def box() -> Generator[Sandbox]:
    with Sandbox.create(engine="local", env={"A": "1"}) as made:
        yield made


def names() -> dict[str, str]:
    return {each.name: each.status for each in Sandbox.list()}


def remove(name: str) -> None:
    found = the_host().find(name)
    found.engine.remove(found.record.id)


def refused(call: Callable[[], object]) -> SandcellError:
    with pytest.raises(SandcellError) as caught:
        call()
    return caught.value


# --- stop and start


def test_files_and_env_survive_a_stop_and_state_does_not(box: Sandbox) -> None:
    box.files.write("kept.txt", "kept")
    box.run_code("x = 1")
    context, job = box.create_context(id="mine"), box.start_process("sleep 600", id="job")
    terminal = box.create_terminal(id="screen")
    box.stop()
    assert (box.status, names()[box.name]) == ("stopped", "stopped")
    assert box.exec("cat kept.txt; echo $A").stdout == "kept1\n"
    assert (box.status, names()[box.name]) == ("running", "running")
    assert box.info().starts == 2
    run = box.run_code("'x' in globals()")
    assert (run.value, run.fresh_state) == (False, "the sandbox was stopped and started again")
    assert box.run_code("1").fresh_state is None
    lost: list[Callable[[], object]] = [
        lambda: context.run_code("1"),
        lambda: box.context("mine"),
        job.refresh,
        lambda: box.process("job"),
        terminal.refresh,
        lambda: box.terminal("screen"),
    ]
    assert {refused(call).code for call in lost} == {ErrorCode.LOST}
    assert refused(lambda: box.context("never")).code is ErrorCode.NOT_FOUND
    assert box.create_context(id="mine").run_code("2").value == 2


def test_a_restart_is_both(box: Sandbox) -> None:
    box.run_code("x = 1")
    box.restart()
    assert box.status == "running"
    assert box.run_code("'x' in globals()").value is False
    box.start()
    assert box.info().starts == 2


def test_all_who_call_a_stopped_sandbox_share_one_start(box: Sandbox) -> None:
    box.stop()
    with ThreadPoolExecutor(6) as pool:
        called = [pool.submit(box.exec, f"echo {at}") for at in range(6)]
        assert [each.result(DEADLINE).stdout for each in called] == [f"{at}\n" for at in range(6)]
    assert box.info().starts == 2


async def test_so_do_tasks() -> None:
    async with await AsyncSandbox.create(engine="local") as box:
        await box.stop()
        done = await asyncio.gather(*(box.exec(f"echo {at}") for at in range(6)))
        assert [each.stdout for each in done] == [f"{at}\n" for at in range(6)]
        assert (await box.info()).starts == 2


def test_who_waits_when_it_is_stopped_is_told(box: Sandbox) -> None:
    live = box.start_code("import time; print('on', flush=True); time.sleep(600)")
    next(event for event in live.follow() if getattr(event, "text", "") == "on\n")
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(lambda: refused(lambda: live.wait(timeout=DEADLINE))),
            pool.submit(lambda: refused(lambda: box.exec("sleep 600"))),
        ]
        box.exec("while ! pgrep -fx 'sleep 600' >/dev/null; do sleep 0.01; done")
        box.stop()
        problems = [each.result(DEADLINE) for each in waiting]
    for problem in problems:
        assert problem.code is ErrorCode.SANDBOX_GONE, problem
        assert "stopped" in problem.message
    assert box.status == "stopped"


def test_attached_handles_start_it_and_never_stop_it(box: Sandbox) -> None:
    with Sandbox.connect(box.name) as other:
        for call in (other.stop, other.restart, other.remove):
            assert refused(call).code is ErrorCode.FORBIDDEN
        box.stop()
        assert other.exec("echo on").stdout == "on\n"
    assert box.exec("echo on").stdout == "on\n"
    box.stop()
    with Sandbox.connect(box.name) as other:
        assert other.info().starts in {3, 4}  # whether it had ended when it was called


# --- left, closed, died


@pytest.mark.parametrize(
    ("on_release", "after"), [("remove", None), ("stop", "stopped"), ("keep", "running")]
)
def test_an_owner_that_leaves(on_release: OnRelease, after: str | None) -> None:
    with Sandbox.create(engine="local", name="left", on_release=on_release) as box:
        box.files.write("f", "kept")
    assert names().get("left") == after
    if after != "running":
        assert refused(lambda: box.exec("true")).code is ErrorCode.SANDBOX_GONE
    if after is not None:
        with Sandbox.connect("left") as again:
            assert again.files.read("f") == "kept"
        remove("left")


_OWNER = """
import sys, signal
from sandcell import Sandbox
box = Sandbox.create(engine="local", name="orphan", on_release=sys.argv[1])
box.files.write("f", "kept")
print("made", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("on_release", "after"), [("remove", None), ("stop", "stopped"), ("keep", "running")]
)
def test_an_owner_that_dies(on_release: OnRelease, after: str | None) -> None:
    line = [sys.executable, "-c", _OWNER, on_release]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "made\n"
        found = the_host().find("orphan")
        owner.kill()
        if after != "running":
            assert found.engine.await_end(found.record.id, timeout=DEADLINE) is not None
    assert names().get("orphan") == after
    if after is not None:
        with Sandbox.connect("orphan") as again:
            assert again.files.read("f") == "kept"
        remove("orphan")


# --- names


def test_a_taken_name_exists_unless_it_is_reused() -> None:
    with Sandbox.create(engine="local", name="taken", on_release="stop") as box:
        assert refused(lambda: Sandbox.create(engine="local", name="taken")).code is ErrorCode.EXISTS
        box.stop()
        assert refused(lambda: Sandbox.create(engine="local", name="taken")).code is ErrorCode.EXISTS
        with Sandbox.create(engine="local", name="taken", reuse=True) as again:
            assert again.id == box.id
            assert again.info().starts == 2
    remove("taken")


# --- death from outside


@pytest.mark.parametrize("part", ["guest", "launcher"])
def test_a_death_from_outside_ends_every_wait_with_its_cause(box: Sandbox, part: str) -> None:
    guest = GuestProcess(box)
    box.exec("true")
    live = box.start_code("import time; time.sleep(600)")
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(lambda: refused(lambda: live.wait(timeout=DEADLINE))),
            pool.submit(lambda: refused(lambda: box.exec("sleep 600"))),
        ]
        box.exec("while ! pgrep -fx 'sleep 600' >/dev/null; do sleep 0.01; done")
        os.kill(guest.pid if part == "guest" else guest.launcher, signal.SIGKILL)
        problems = [each.result(DEADLINE) for each in waiting]
    for problem in (*problems, refused(lambda: box.exec("true"))):
        assert problem.code is ErrorCode.SANDBOX_GONE, problem
    assert all("signal 9" in problem.message for problem in problems), problems
    assert box.status == "removed"


def test_one_to_keep_its_files_starts_again_after_a_death() -> None:
    with Sandbox.create(engine="local", name="phoenix", on_release="stop") as box:
        box.files.write("f", "kept")
        os.kill(GuestProcess(box).pid, signal.SIGKILL)
        assert the_host().engine("local").engine.await_end(box.id, timeout=DEADLINE) is not None
        assert box.files.read("f") == "kept"
    remove("phoenix")
