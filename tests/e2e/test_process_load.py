"""Processes in numbers, floods of output, clients that die, and trees that will not: nothing is lost, nothing is left."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import pytest

from sandcell import Sandbox
from sandcell.client.host import the_host
from sandcell.events import Gap, Stdout
from sandcell_container.end import KillReport

if TYPE_CHECKING:
    from sandcell.client.blocking.process import Process

GIB = 2**30
AT_ONCE = 200
IN_A_ROW = 2000
MARKER = "orphan-7f3a"


class Guest(Protocol):
    @property
    def memory(self) -> int: ...
    @property
    def peak(self) -> int: ...
    @property
    def descriptors(self) -> int: ...
    @property
    def threads(self) -> int: ...
    def forget_peak(self) -> None: ...


def test_a_gibibyte_arrives_whole_and_costs_the_guest_little(sandbox: Sandbox, guest: Guest) -> None:
    sandbox.start_process("true").wait(20)
    guest.forget_peak()
    before = guest.memory
    job = sandbox.start_process(["head", "-c", str(GIB), "/dev/zero"], on_full="block")
    arrived = sum(len(event.text) for event in job.follow() if isinstance(event, Stdout))
    assert arrived == GIB
    assert guest.peak - before < 64 * 2**20
    job.remove()


def test_who_follows_is_not_left_behind_for_want_of_a_turn(sandbox: Sandbox) -> None:
    """Without `on_full="block"`: a writer waits a moment for one who reads as fast as they can."""
    job = sandbox.start_process(["head", "-c", str(GIB // 4), "/dev/zero"])
    events = [type(event) for event in job.follow()]
    assert Gap not in events
    job.remove()


def test_many_at_once_each_have_their_own_end_and_output(sandbox: Sandbox) -> None:
    def run(number: int) -> tuple[str, int | None]:
        job = sandbox.start_process(f"sleep 0.1; echo out {number}; exit {number % 100}")
        end = job.wait(50)
        return job.output(), end.code

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(run, range(AT_ONCE)))
    assert found == [(f"out {number}\n", number % 100) for number in range(AT_ONCE)]


@pytest.mark.timeout(240)
def test_many_in_a_row_leave_the_guest_as_it_was(sandbox: Sandbox, guest: Guest) -> None:
    def run(count: int) -> None:
        for number in range(count):
            job = sandbox.start_process(f"echo {number}", stdin=number % 3 == 0)
            assert job.wait(20).code == 0

    run(250)  # as many as are kept, so that each new one takes the place of an old one
    before = (guest.descriptors, guest.threads)
    memory = guest.memory
    run(IN_A_ROW)
    assert (guest.descriptors, guest.threads) == before
    assert guest.memory - memory < 8 * 2**20


# --- clients that die

FOLLOWER = """
import sys
from sandcell import Sandbox
from sandcell.events import Stdout
with Sandbox.connect(sys.argv[1]) as sandbox:
    for event in sandbox.process(sys.argv[2]).follow():
        if isinstance(event, Stdout):
            sys.stdout.write(f"{event.cursor} {len(event.text)}\\n")
            sys.stdout.flush()
"""


@pytest.mark.parametrize("on_full", ["drop_oldest", "block"])
def test_a_client_killed_in_mid_stream_is_followed_by_one_who_gets_exactly_the_rest(
    sandbox: Sandbox, on_full: str
) -> None:
    script = "import sys\nfor n in range(3_000_000): sys.stdout.write(f'{n}\\n')"
    options = {"on_full": "block"} if on_full == "block" else {}
    job = sandbox.start_process([sandbox.info().python, "-c", script], **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- by a parameter
    seen, cursor = 0, ""
    line = [sys.executable, "-c", FOLLOWER, sandbox.name, job.id]
    env = {"SANDCELL_STATE_DIR": str(the_host().config.state_path), "PATH": ""}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as follower:
        assert follower.stdout is not None
        while seen < 2_000_000:
            cursor, size = follower.stdout.readline().split()
            seen += int(size)
        follower.kill()
    rest = [event for event in job.follow(cursor) if isinstance(event, Stdout | Gap)]
    assert not any(isinstance(event, Gap) for event in rest)
    whole = "".join(f"{number}\n" for number in range(3_000_000))
    assert "".join(event.text for event in rest if isinstance(event, Stdout)) == whole[seen:]
    job.remove()


def test_a_process_goes_on_when_its_starter_is_killed(sandbox: Sandbox) -> None:
    script = (
        "import sys, time\nfrom sandcell import Sandbox\nsandbox = Sandbox.connect(sys.argv[1])\n"
        "sandbox.start_process('sleep 50', id='lasting')\nprint('started', flush=True)\ntime.sleep(50)"
    )
    line = [sys.executable, "-c", script, sandbox.name]
    env = {"SANDCELL_STATE_DIR": str(the_host().config.state_path), "PATH": ""}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "started\n"
        starter.kill()
    job = sandbox.process("lasting")
    assert job.refresh().status == "running"
    assert job.kill(0) == KillReport(killed=1)


# --- trees that will not die

STUBBORN = {
    "setsid": "setsid sh -c 'while :; do sleep 1; done # {marker}' & echo up; wait",
    "double fork": "(setsid sh -c '(while :; do sleep 1; done # {marker}) & exit' &) ; echo up; sleep 50",
    "nohup": "nohup sh -c 'while :; do sleep 1; done # {marker}' >/dev/null 2>&1 & echo up; exit 0",
    "ignored signals": "trap '' TERM HUP INT QUIT; sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done # {marker}' & echo up; wait",
    "stopped": "sh -c 'kill -STOP $$; : {marker}' & echo up; sleep 50",
    "closed streams": "sh -c 'while :; do sleep 1; done # {marker}' <&- >&- 2>&- & echo up; sleep 50",
}


def left(sandbox: Sandbox, job: Process) -> str:
    """Return what is still there of its tree, by the words on command lines, and as the sandbox tells whose each is."""
    script = (
        "import os, sys\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "  try: line = open(f'/proc/{pid}/cmdline').read()\n  except OSError: continue\n"
        "  if sys.argv[1] in line and int(pid) != os.getpid(): print(pid, line)"
    )
    owned = [each for each in sandbox.top() if each.owner == job.id]
    return sandbox.exec([sandbox.info().python, "-c", script, MARKER], check=True).stdout + repr(owned or "")


def stubborn(sandbox: Sandbox, how: str, *, timeout: float | None = None) -> Process:
    job = sandbox.start_process(STUBBORN[how].format(marker=MARKER), timeout=timeout)
    job.wait_for_log("up", timeout=20)
    assert job.id in {each.owner for each in sandbox.top()}
    return job


@pytest.mark.parametrize("how", STUBBORN)
def test_nothing_survives_a_kill(sandbox: Sandbox, how: str) -> None:
    job = stubborn(sandbox, how)
    report = job.kill(grace=0.2)
    assert report.killed >= 1
    assert report.survived == 0
    assert job.refresh().status == "ended"
    assert left(sandbox, job) == "''"


@pytest.mark.parametrize("how", STUBBORN)
def test_nothing_survives_a_timeout(sandbox: Sandbox, how: str) -> None:
    job = stubborn(sandbox, how, timeout=0.5)
    job.wait(20)
    assert left(sandbox, job) == "''"


def test_a_fork_loop_ends_with_its_kill_and_its_neighbour_notices_nothing(sandbox: Sandbox) -> None:
    with Sandbox.create(engine="local", pids=64) as looping:
        job = looping.start_process(f"f() {{ f | f & }}; echo up; f; : {MARKER}; sleep 50")
        job.wait_for_log("up", timeout=20)
        began = time.monotonic()
        assert sandbox.exec("echo fine", check=True).stdout == "fine\n"
        assert time.monotonic() - began < 5
        report = job.kill(grace=0.1)
        assert report.survived == 0
        assert job.refresh().status == "ended"
        assert looping.exec("echo fine", check=True).stdout == "fine\n"
        assert left(looping, job) == "''"
