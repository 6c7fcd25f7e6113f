"""What ends a run before its own end: interrupts and timeouts, whatever the code is doing, and what is left of it."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.events import InputRequested, Stdout

if TYPE_CHECKING:
    from sandcell.client.blocking.execution import Execution

DEADLINE = 20.0
GRACE = 1.0  # as the sandboxes of these tests have it


class Wait(NamedTuple):
    """Code that waits for ever. `child` is the command line of a process that it starts and that has to end too.

    Such a process says "up" first. One that ignores the interrupt is Python's to kill, which it does once `Popen` has
    returned: so it says "up" only when it was sent a line.
    """

    code: str
    child: str = ""


WAITS = {
    "loop": Wait("while True: pass"),
    "sleep": Wait("import time; time.sleep(600)"),
    "C sleep": Wait("import ctypes; ctypes.CDLL(None).sleep(600)"),
    "C pause": Wait("import ctypes; ctypes.CDLL(None).pause()"),
    "lock": Wait("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    "thread": Wait("import threading; t = threading.Thread(target=threading.Event().wait, daemon=True); t.start(); t.join()"),
    "fifo": Wait("import os; os.path.exists('f') or os.mkfifo('f'); open('f')"),
    "socket": Wait("import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()"),
    "regex": Wait("import re; re.match('(a+)+$', 'a' * 50 + 'b')"),
    "subprocess.run": Wait("import subprocess; subprocess.run(['sh', '-c', 'echo up; exec sleep 6001'])", "sleep 6001"),
    "Popen.wait": Wait("import subprocess; subprocess.Popen('echo up; exec sleep 6002', shell=True).wait()", "sleep 6002"),
    "grandchild": Wait("import subprocess; subprocess.run('echo up; sleep 6003; true', shell=True)", "sleep 6003"),
    "deaf child": Wait(
        "import subprocess; subprocess.run('read x; echo up; exec env --ignore-signal=INT sleep 6004', shell=True, input=b'x\\n')",
        "sleep 6004",
    ),
    "own session": Wait("import subprocess; subprocess.run(['setsid', '-w', 'sleep', '6005'])"),
    "pool": Wait("import concurrent.futures as c\nwith c.ThreadPoolExecutor() as p: p.submit(time.sleep, 0.5).result()"),
    "top-level await": Wait("import asyncio; await asyncio.sleep(600)"),
    "asyncio.run": Wait("import asyncio; asyncio.run(asyncio.sleep(600))"),
    "blocking after await": Wait("import asyncio; await asyncio.sleep(0); time.sleep(600)"),
    "asyncio.run after await": Wait("import asyncio; await asyncio.sleep(0); asyncio.run(asyncio.sleep(600))"),
    "await in thread": Wait("import asyncio; await asyncio.to_thread(time.sleep, 1.5)"),
}  # fmt: skip

# What never gets round to the interrupt: swallowed, masked, or inside C code that does not look.
DEAF = {
    "swallowed": """
        while True:
            try: print('up', flush=True); time.sleep(600)
            except KeyboardInterrupt: print('no')
        """,
    "swallowed all": """
        while True:
            try: print('up', flush=True); time.sleep(600)
            except BaseException: pass
        """,
    "ignored": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
    "masked": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {2}); print('up', flush=True); time.sleep(600)",
    "stopped": "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP)",
    "C code": "print('up', flush=True); sum(range(10**12))",
    "swallowed in a coroutine": """
        import asyncio
        while True:
            try: print('up', flush=True); await asyncio.sleep(600)
            except BaseException: pass
        """,
}


def begin(sandbox: Sandbox, code: str, *, until: str = "so far", **options: float) -> Execution:
    """Start code that prints a line and then waits; return when it has printed it, or `until`."""
    first = "import sys, time; kept = 'kept'; sys.stdout.write('so far\\n')"  # print would write twice
    whole = f"{first}\n{textwrap.dedent(code)}"
    live = sandbox.start_code(whole, **options)  # type: ignore[arg-type]
    heard = ""
    for event in live.follow():
        heard += event.text if isinstance(event, Stdout) else ""
        if f"{until}\n" in heard.replace(
            "\r", ""
        ):  # a print is two writes: an interrupt could come between them
            return live
    raise AssertionError(f"it ended without {until!r}")


def await_end(sandbox: Sandbox, command: str) -> None:
    """Return when no process of this command line is there: one that was killed takes a moment to be gone."""
    assert sandbox.exec(f"while pgrep -fx '{command}' > /dev/null; do sleep 0.01; done", timeout=DEADLINE).ok


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupt_reaches_what_the_code_waits_for(sandbox: Sandbox, name: str) -> None:
    wait = WAITS[name]
    live = begin(sandbox, wait.code, until="up" if wait.child else "so far")
    live.interrupt()
    run = live.wait(timeout=DEADLINE)
    assert (run.end.cause, run.end.who, run.end.state) == ("interrupted", "sdk", "kept")
    assert not run.ok
    assert run.stdout.startswith("so far\n")
    if wait.child:
        await_end(sandbox, wait.child)
    after = sandbox.run_code("kept")
    assert (after.value, after.fresh_state) == ("kept", None)


@pytest.mark.parametrize("name", ["loop", "C sleep", "subprocess.run", "top-level await", "asyncio.run"])
def test_a_timeout_ends_the_same_with_the_output_so_far(sandbox: Sandbox, name: str) -> None:
    live = begin(sandbox, WAITS[name].code, timeout=0.5)
    run = live.wait(timeout=DEADLINE)
    assert (run.timed_out, run.end.cause, run.end.state) == (True, "timeout", "kept")
    assert run.stdout.startswith("so far\n")
    assert sandbox.run_code("kept").value == "kept"


@pytest.mark.parametrize("name", DEAF)
def test_what_does_not_heed_an_interrupt_is_killed_and_told(sandbox: Sandbox, name: str) -> None:
    live = begin(sandbox, DEAF[name], until="up")
    asked = time.monotonic()
    live.interrupt()
    run = live.wait(timeout=DEADLINE)
    assert time.monotonic() - asked < GRACE + 2
    assert (run.end.cause, run.end.signal, run.end.who, run.end.state) == ("killed", 9, "sdk", "lost")
    assert run.error is not None
    assert run.error.name == "KeyboardInterrupt"
    assert "did not stop" in run.error.value
    assert run.stdout.startswith("so far\n")
    after = sandbox.run_code("'kept' in globals()")
    assert after.value is False
    assert "did not stop" in (after.fresh_state or "")


def test_what_does_not_heed_its_time_is_killed_and_told(sandbox: Sandbox) -> None:
    run = begin(sandbox, DEAF["swallowed"], until="up", timeout=0.5).wait(timeout=DEADLINE)
    assert (run.end.cause, run.end.signal, run.end.state) == ("timeout", 9, "lost")
    assert run.error is not None
    assert run.error.name == "TimeoutError"
    assert run.stdout.startswith("so far\n")


def test_the_sandboxs_own_timeout_holds_for_runs_that_name_none_and_none_for_those_that_say_so() -> None:
    with Sandbox.create(engine="local", default_timeout=0.3) as hasty:
        code = "import time; time.sleep(0.6); 'done'"
        assert hasty.run_code(code).timed_out
        assert hasty.run_code(code, timeout=None).value == "done"
        assert hasty.run_code(code, timeout=20).value == "done"
        with pytest.raises(SandcellError) as caught:
            hasty.run_code("1", timeout=0)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_second_interrupt_does_not_shorten_the_grace(sandbox: Sandbox) -> None:
    """Code that cleans up after the first one gets the whole of it."""
    live = begin(
        sandbox,
        "try: print('up', flush=True); time.sleep(600)\n"
        "finally: print('cleaning', flush=True); time.sleep(0.3); print('clean')",
        until="up",
    )
    live.interrupt()
    run = live.wait(timeout=DEADLINE)
    assert run.stdout == "so far\nup\ncleaning\nclean\n"
    assert (run.end.cause, run.end.state) == ("interrupted", "kept")


def test_code_that_handles_an_interrupt_and_ends_has_ended_by_itself(sandbox: Sandbox) -> None:
    code = "try: print('up', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('handled')"
    live = begin(sandbox, code, until="up")
    live.interrupt()
    run = live.wait(timeout=DEADLINE)
    assert (run.end.cause, run.ok, run.stdout) == ("exited", True, "so far\nup\nhandled\n")


def test_an_interrupt_ends_the_command_of_a_line_magic(sandbox: Sandbox) -> None:
    """IPython answers it with ^C to the command, and goes on with the cell."""
    live = begin(sandbox, "!echo up; sleep 6006\nprint('next')", until="up")
    live.interrupt()
    run = live.wait(timeout=DEADLINE)
    assert (run.end.cause, run.end.state) == ("exited", "kept")
    assert run.stdout.endswith("next\n")
    await_end(sandbox, "sleep 6006")


def test_an_interrupt_reaches_a_question(sandbox: Sandbox) -> None:
    live = sandbox.start_code("kept = 'kept'; input('? ')")
    next(event for event in live.follow() if isinstance(event, InputRequested))
    live.interrupt()
    run = live.wait(timeout=DEADLINE)
    assert (run.end.cause, run.end.state) == ("interrupted", "kept")
    assert run.error is not None
    assert run.error.name == "KeyboardInterrupt"
    assert sandbox.run_code("kept").value == "kept"


def test_an_interrupt_leaves_background_work_alone(sandbox: Sandbox) -> None:
    """Threads and processes in the background are not what runs, as with ^C at a terminal."""
    sandbox.run_code(
        "import subprocess, threading; gate = threading.Event()\n"
        "thread = threading.Thread(target=gate.wait, daemon=True); thread.start()\n"
        "job = subprocess.Popen(['sleep', '6007'], start_new_session=True)"
    )
    live = begin(sandbox, "time.sleep(600)")
    live.interrupt()
    assert live.wait(timeout=DEADLINE).end.cause == "interrupted"
    assert sandbox.run_code("(thread.is_alive(), job.poll())").value == [True, None]
    assert sandbox.run_code("job.kill(); gate.set(); job.wait()").ok


def test_an_interrupt_of_nothing_hits_nothing(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.run_code("kept = 1")
    for _ in range(20):
        context.interrupt()
    assert context.run_code("kept").value == 1
    context.delete()


def test_interrupts_at_any_moment_harm_no_later_run(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.run_code("kept = 1")
    for number in range(25):
        live = context.start_code(f"for i in range({number} * 40): i")
        live.interrupt()
        assert live.wait(timeout=DEADLINE).end.state == "kept"
    after = context.run_code("kept")
    assert (after.value, after.fresh_state) == (1, None)
    context.delete()
