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
    lines = box.run_code("x = 1")
    context, job = box.create_context(id="mine"), box.start_process("sleep 600", id="job")
    terminal = box.create_terminal(id="screen")
    live = box.start_code("2", id="run")
    live.wait()
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
        lambda: box.execution(live.id),
        lambda: box.execution(lines.id),
    ]
    assert {refused(call).code for call in lost} == {ErrorCode.LOST}
    assert refused(lambda: box.context("never")).code is ErrorCode.NOT_FOUND
    assert box.create_context(id="mine").run_code("2").value == 2


_FORK_SERVER = "grep -aqs 'fork-serve[r]' /proc/[0-9]*/cmdline"


def test_what_ran_code_before_its_stop_prepares_for_more_and_nothing_else_does(box: Sandbox) -> None:
    assert box.exec(_FORK_SERVER).exit_code != 0
    box.stop()
    assert box.exec(_FORK_SERVER).exit_code != 0
    box.run_code("1")
    box.stop()
    assert box.exec(f"until {_FORK_SERVER}; do :; done", timeout=20).exit_code == 0


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


def test_who_removed_a_sandbox_is_told_that_it_is_gone_for_good() -> None:
    removed, left = (
        Sandbox.create(engine="local"),
        Sandbox.create(engine="local", name="left", on_release="stop"),
    )
    removed.remove()
    left.close()
    assert "it was removed" in refused(lambda: removed.exec("true")).hint
    assert "Sandbox.connect" in refused(lambda: left.exec("true")).hint
    remove("left")


def test_what_somebody_else_has_removed_is_given_back_like_any_other() -> None:
    with Sandbox.create(engine="local", name="taken", on_release="stop") as box:
        box.exec("true")
        remove("taken")
    assert refused(lambda: box.exec("true")).code is ErrorCode.SANDBOX_GONE


def test_one_to_keep_its_files_starts_again_after_a_death() -> None:
    with Sandbox.create(engine="local", name="phoenix", on_release="stop") as box:
        box.files.write("f", "kept")
        os.kill(GuestProcess(box).pid, signal.SIGKILL)
        assert the_host().engine("local").engine.await_end(box.id, timeout=DEADLINE) is not None
        assert box.files.read("f") == "kept"
    remove("phoenix")


# --- news


def test_who_follows_hears_of_a_stop() -> None:
    with Sandbox.create(engine="local", on_release="stop", name="heard") as box:
        heard = list[str]()
        with ThreadPoolExecutor(1) as pool, Sandbox.connect("heard") as other:
            events = other.events()
            first = next(events)
            assert first.status == "running"
            following = pool.submit(lambda: heard.extend(event.status for event in events))
            box.stop()
            following.result(DEADLINE)
        assert heard == ["stopping"]
    remove("heard")


def test_a_cull_is_told_ahead_to_every_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program of its own, whose sandboxes have short times."""
    program = """
import sys, time
from sandcell import Sandbox
from sandcell.client.blocking.news import follow_status
from sandcell.client.blocking.transport import Transport
from sandcell.client.host import the_host
from sandcell.client.protocol import Request
with Sandbox.create(engine="local", on_release=sys.argv[1], name="idle", idle_timeout=1.2, env={"A": "1"}) as box:
    pass
found = the_host().find("idle")
way = Transport(found.record.address, found.record.token, connect_timeout=5, reply_timeout=5)
events = list(follow_status(way, Request(method="GET", path="/v1/events")))
assert [event.status for event in events] == ["running", "stopping", "stopping"], events
told, over = events[1:]
assert told.reason == over.reason == "idle", events
assert 0.5 < over.time - told.time < 1.1 and abs(told.at - over.time) < 0.3, events
end = found.engine.await_end(found.record.id, timeout=10)
assert (end.cause, end.limit) == ("culled", "idle_timeout"), end
print([each.status for each in Sandbox.list()])
found.engine.remove(found.record.id)
"""
    monkeypatch.setenv("SANDCELL_CULL_WARNING", "0.8")
    done = subprocess.run(
        [sys.executable, "-c", program, "keep"], capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("['stopped']\n"), done.stdout + done.stderr
