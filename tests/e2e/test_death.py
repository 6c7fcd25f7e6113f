"""Interpreters that die: told within a second and with the cause, to the run, to those that wait, and to the next."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sandcell.events import InputRequested

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell import Sandbox
    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution

DEADLINE = 10.0


class Way(NamedTuple):
    """Code that ends its interpreter, and the cause, code and signal that it has to be told with."""

    code: str
    cause: str
    exit_code: int | None
    signal: int | None


WAYS = {
    "os._exit": Way("os._exit(3)", "exited", 3, None),
    "segfault": Way("import ctypes; ctypes.string_at(0)", "signaled", None, signal.SIGSEGV),
    "abort": Way("os.abort()", "signaled", None, signal.SIGABRT),
    "kill -9": Way("os.kill(os.getpid(), 9)", "signaled", None, signal.SIGKILL),
    "kill -9 by a child": Way(
        "import subprocess; subprocess.run('kill -9 $PPID; sleep 60', shell=True)", "signaled", None, signal.SIGKILL
    ),
    "term": Way("os.kill(os.getpid(), 15); time.sleep(60)", "signaled", None, signal.SIGTERM),
    "in a thread": Way("import threading; threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(60)", "exited", 4, None),
    "by faulty C code": Way("import ctypes; ctypes.CDLL(None).free(ctypes.c_void_p(8))", "signaled", None, signal.SIGSEGV),
}  # fmt: skip


@pytest.fixture
def context(sandbox: Sandbox) -> Generator[Context]:
    made = sandbox.create_context()
    yield made
    made.delete()


def until_question(live: Execution) -> None:
    next(event for event in live.follow() if isinstance(event, InputRequested))


@pytest.mark.parametrize("name", WAYS)
def test_a_death_is_told_within_a_second_with_its_cause(context: Context, name: str) -> None:
    way = WAYS[name]
    dying = context.start_code(f"import os, time; kept = 1; print('last', flush=True); input()\n{way.code}")
    waiting = [context.start_code(str(number)) for number in range(2)]
    until_question(dying)
    sent = time.time()
    dying.send_input("")
    run, *others = [each.wait(timeout=DEADLINE) for each in (dying, *waiting)]
    assert run.end.at - sent < 1.0
    assert (run.end.cause, run.end.code, run.end.signal, run.end.state) == (
        way.cause,
        way.exit_code,
        way.signal,
        "lost",
    )
    assert (run.ok, run.stdout) == (False, "last\n")
    assert run.error is not None
    assert (run.error.name, "the interpreter ended with" in run.error.value) == ("ContextDied", True)
    assert (run.end.peak_memory or 0) > 2**20
    for other in others:
        assert (other.end.cause, other.ok, other.started_at) == ("lost", False, None)
        assert other.error is not None
        assert run.error.value in other.error.value
        assert other.end.at - sent < 1.0
    after = context.run_code("'kept' in globals()")
    assert after.value is False
    assert run.error.value in (after.fresh_state or "")
    assert context.run_code("1").fresh_state is None


def test_an_idle_interpreter_that_dies_is_seen_and_started_again(sandbox: Sandbox, context: Context) -> None:
    pid = context.run_code("import os; kept = 1; os.getpid()").value
    sandbox.exec(["kill", "-9", str(pid)])
    while context.refresh().status != "dead":  # each look is a round trip, in which the guest may hear of it
        pass
    after = context.run_code("'kept' in globals()")
    assert after.value is False
    assert "signal 9" in (after.fresh_state or "")


def test_a_child_that_dies_is_the_codes_own_business(context: Context) -> None:
    run = context.run_code("import subprocess; subprocess.run(['sh', '-c', 'kill -9 $$']).returncode")
    assert (run.value, run.end.state) == (-9, "kept")


def test_children_of_a_dead_interpreter_are_ended(sandbox: Sandbox, context: Context) -> None:
    context.run_code("import os, subprocess; subprocess.Popen(['setsid', 'sleep', '6010'])")
    context.run_code("os._exit(0)")
    left = sandbox.exec("while pgrep -fx 'sleep 6010' > /dev/null; do sleep 0.02; done", timeout=DEADLINE)
    assert left.ok


def test_a_farewell_ends_the_interpreter_and_lets_others_go_on(context: Context) -> None:
    leaving = context.start_code("kept = 1; input(); get_ipython().ask_exit()")
    following = context.start_code("'kept' in globals()")
    until_question(leaving)
    leaving.send_input("")
    run, after = leaving.wait(timeout=DEADLINE), following.wait(timeout=DEADLINE)
    assert (run.ok, run.end.cause, run.end.state) == (True, "exited", "lost")
    assert after.value is False
    assert after.fresh_state


def test_sys_exit_is_an_error_that_costs_nothing(context: Context) -> None:
    run = context.run_code("import sys; kept = 1; sys.exit(4)")
    assert run.error is not None
    assert (run.error.name, run.error.value, run.end.state) == ("SystemExit", "4", "kept")
    assert context.run_code("kept").value == 1


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("exit", "None"),
        ("exit(3)", "3"),
        ("if True:\n    quit(4)\nkept = 2", "4"),
        ("def leave():\n    exit()\nleave()\nkept = 2", "None"),
        ("import builtins; builtins.exit('why')", "why"),
    ],
)
def test_exit_and_quit_stop_as_sys_exit_does(context: Context, code: str, value: str) -> None:
    context.run_code("kept = 1")
    run = context.run_code(code)
    assert run.error is not None
    assert (run.error.name, run.error.value, run.end.state) == ("SystemExit", value, "kept")
    assert context.run_code("kept").value == 1


def test_a_context_says_how_it_died(sandbox: Sandbox) -> None:
    context = sandbox.create_context(id="mortal")
    context.run_code("import os; os._exit(5)")
    info = context.refresh()
    assert (info.status, info.end and info.end.code) == ("dead", 5)
    assert context.run_code("1").ok
    assert context.refresh().status == "idle"
    context.delete()
