"""Ends that come from outside, and ways in from inside, the same on every engine that isolates: the others answer meanwhile,
somebody says what happened, and nothing is left."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import GuestProcess, Place

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.cli.verbs import main

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.e2e.conftest import EnginePlace

WITHIN_S = 2.0
DEADLINE = 30.0
STUBBORN = """
import os, signal, sys, time
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0: os.setsid()
print("here", flush=True)
while True: time.sleep(60)
"""
MAKER = """
import sys
from sandcell import Sandbox
made = Sandbox.create(engine=sys.argv[1])
job = made.start_process(["python", "-c", sys.argv[2], sys.argv[3]])
job.wait_for_log("here", timeout=30)
print(made.id, flush=True)
made.exec("sleep 600")
"""


@pytest.fixture(scope="module")
def neighbour(any_place: EnginePlace) -> Generator[Sandbox]:
    """Somebody who wants to be served meanwhile."""
    with any_place.create() as made:
        made.exec("true")
        yield made


@pytest.fixture
def mark() -> str:
    """What tells the processes of a test from all others of this machine, which sees those of its sandboxes."""
    return f"mark-{secrets.token_hex(8)}"


def answer_times(neighbour: Sandbox) -> list[float]:
    """Return how many seconds a command in another sandbox takes, and the list of them all."""
    asks: tuple[Callable[[], bool], ...] = (lambda: neighbour.exec("true").ok, lambda: main(["ps"]) == 0)
    times = list[float]()
    for ask in asks:
        begun = time.monotonic()
        assert ask()
        times.append(time.monotonic() - begun)
    return times


def assert_others_answer(neighbour: Sandbox) -> None:
    """They do so within 2 s, on a machine where they do so anyway."""
    times = answer_times(neighbour)
    if max(times) >= WITHIN_S:
        usual = answer_times(neighbour)
        assert all(one < WITHIN_S + 2 * other for one, other in zip(times, usual, strict=True)), (
            times,
            usual,
        )


def marked(mark: str) -> list[str]:
    """Return the command lines of this machine's processes that have the mark."""
    found = list[str]()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return [line for line in found if mark in line]


@contextmanager
def call_that_waits(box: Sandbox) -> Generator[list[SandcellError]]:
    """Have a call wait for code in `box` during the block, and yield where its error will be when the block is left."""
    caught, running = list[SandcellError](), threading.Event()

    def wait() -> None:
        try:
            box.run_code("print('here'); import time; time.sleep(600)", on_stdout=lambda _: running.set())
        except SandcellError as problem:
            caught.append(problem)

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        assert running.wait(DEADLINE)
        yield caught
    finally:
        waiting.join(DEADLINE)
    assert not waiting.is_alive()


def kill(place: EnginePlace, box: Sandbox) -> None:
    """Kill a sandbox as somebody would who knows nothing of Sandcell."""
    if isinstance(place, Place):
        place.containers(box.id)[0].kill()
    else:
        os.kill(GuestProcess(box).launcher, signal.SIGKILL)


def test_one_that_is_killed_from_outside(any_place: EnginePlace, neighbour: Sandbox, mark: str) -> None:
    with any_place.create() as box:
        box.start_process(["python", "-c", STUBBORN, mark]).wait_for_log("here", timeout=DEADLINE)
        assert marked(mark)
        with call_that_waits(box) as caught:
            kill(any_place, box)
            end = any_place.engine.await_end(box.id, timeout=DEADLINE)
            assert end is not None
            assert (end.cause in ("killed", "signaled"), end.signal) == (True, signal.SIGKILL)
            assert_others_answer(neighbour)
        assert caught[0].code is ErrorCode.SANDBOX_GONE
        assert caught[0].details["end"]["cause"] == end.cause
        with pytest.raises(SandcellError) as later:
            box.exec("true")
        assert later.value.code is ErrorCode.SANDBOX_GONE
    assert_nothing_left(any_place, box.id, mark)


def test_one_whose_program_is_killed(any_place: EnginePlace, neighbour: Sandbox, mark: str) -> None:
    line = [sys.executable, "-c", MAKER, any_place.name, STUBBORN, mark]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        sandbox_id = maker.stdout.readline().strip()
        maker.kill()
    assert_others_answer(neighbour)
    assert any_place.engine.await_end(sandbox_id, timeout=DEADLINE) is not None
    assert_others_answer(neighbour)
    assert_nothing_left(any_place, sandbox_id, mark)


def assert_nothing_left(place: EnginePlace, sandbox_id: str, mark: str) -> None:
    assert sandbox_id in place.engine.prune().removed or place.engine.find(sandbox_id) is None
    assert marked(mark) == []
    if isinstance(place, Place):
        assert place.containers(sandbox_id) == []


def test_a_poisoned_environment_does_not_reach_the_guest(any_place: EnginePlace) -> None:
    """User code writes into its own environment and home what every Python of it would import; each import notes by whom.

    The guest has another uid in a container, and on this machine another PID namespace than the /proc that it would see.
    """
    poison = "import os\nwith open('/tmp/poisoned', 'a') as f: print(os.getuid(), os.path.exists('/proc/self'), file=f)\n"
    with any_place.create() as made:
        site = str(made.run_code("import sysconfig; sysconfig.get_path('purelib')", check=True).value)
        for folder in (site, "/home/user", "/workspace"):
            for name in ("sitecustomize.py", "usercustomize.py", "tornado.py", "msgspec.py"):
                made.files.write(f"{folder}/{name}", poison)
        made.files.write(f"{site}/a.pth", "import msgspec\n")
        made.restart()
        done = made.exec("python -c 1; cat /tmp/poisoned")
        assert set(done.stdout.splitlines()) == {"1000 True"}
