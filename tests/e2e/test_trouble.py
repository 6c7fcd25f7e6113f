"""A killed client, a killed guest, a killed context: every wait ends, with the right code, and says what is next."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.client.blocking.files import Files
from sandcell.client.blocking.transport import Transport
from sandcell.client.host import the_host
from sandcell_container.os_process import OsProcess, end_processes
from sandcell_container.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

DEADLINE = 10.0  # seconds in which a wait has to notice a death
SLEEP = "print('go', flush=True)\nimport time; time.sleep(60)"


@pytest.fixture
def doomed() -> Generator[Sandbox]:
    """A sandbox for one test, which may end it."""
    with Sandbox.create(engine="local") as made:
        yield made


def processes_of(sandbox_id: str) -> tuple[OsProcess, ...]:
    """Return what stands for a sandbox on this machine: launcher, guest, first process."""
    registry = Registry(the_host().config.state_path / "sandboxes")
    return next(each.processes for each in registry.entries() if each.record.id == sandbox_id)


class Waiting:
    """A call in a thread, and what became of it. The call is given what to call when it has begun."""

    def __init__(self, call: Callable[[Callable[[str], object]], object]) -> None:
        self.outcome: object = None
        self.problem: SandcellError | None = None
        self._begun = threading.Event()
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._begun.wait(DEADLINE)

    def join(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "it still waits"

    def _run(self) -> None:
        try:
            self.outcome = self._call(lambda _: self._begun.set())
        except SandcellError as problem:
            self.problem = problem
        finally:
            self._begun.set()


# --- the guest


@pytest.mark.parametrize("whom", range(3), ids=["launcher", "guest", "first"])
def test_calls_end_when_a_process_of_the_sandbox_is_killed(doomed: Sandbox, whom: int) -> None:
    run = Waiting(lambda begun: doomed.run_code(SLEEP, on_stdout=begun))
    command = Waiting(lambda begun: doomed.exec("echo go; sleep 60", on_stdout=begun))
    doomed.exec("truncate -s 1T endless")

    def fetch_all(begun: Callable[[str], object]) -> None:
        begun("")
        doomed.files.download("endless", os.devnull)

    download = Waiting(fetch_all)
    assert end_processes(processes_of(doomed.id)[whom : whom + 1], timeout=DEADLINE) == []
    for each in (run, command, download):
        each.join()
        assert each.problem is not None
        assert each.problem.code is ErrorCode.SANDBOX_GONE
        assert each is download or each.problem.details["admitted"] is True  # what was begun took effect
    assert doomed.status == "removed"
    with pytest.raises(SandcellError) as caught:
        doomed.exec("true")
    assert caught.value.code is ErrorCode.SANDBOX_GONE
    # A guest on its way out may still have been there to refuse it.
    assert caught.value.details["admitted"] in (False, "unknown")
    assert caught.value.details["end"]["signal"] == 9
    assert caught.value.hint
    doomed.close()
    assert doomed.id not in {each.id for each in Sandbox.list()}


def test_a_guest_that_stands_still_is_unreachable(doomed: Sandbox) -> None:
    """Nothing tells a stopped process from a busy one but time, which is made short here."""
    record = the_host().find(doomed.id).record
    transport = Transport(record.address, record.token, connect_timeout=5.0, reply_timeout=0.2)
    guest = processes_of(doomed.id)[1]
    os.kill(guest.pid, signal.SIGSTOP)
    try:
        with pytest.raises(SandcellError) as caught:
            Files(transport).read("/etc/passwd")
    finally:
        os.kill(guest.pid, signal.SIGCONT)
        transport.close()
    assert caught.value.code is ErrorCode.UNREACHABLE
    assert caught.value.details == {"admitted": "unknown"}
    assert doomed.files.exists("/etc/passwd")


# --- the context


def test_a_killed_context_ends_its_run_with_the_cause(doomed: Sandbox) -> None:
    doomed.run_code("kept = 1")
    run = doomed.run_code("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert not run.ok
    assert (run.end.cause, run.end.signal, run.end.state) == ("signaled", signal.SIGKILL, "lost")
    after = doomed.run_code("'kept' in globals()")
    assert after.value is False
    assert after.fresh_state


def test_a_context_that_exits_says_with_what(doomed: Sandbox) -> None:
    run = doomed.run_code("import os; os._exit(7)")
    assert (run.end.cause, run.end.code, run.end.state) == ("exited", 7, "lost")
    assert not run.ok
    assert doomed.run_code("1").value == 1


def test_runs_that_wait_for_a_killed_context_end_too(doomed: Sandbox) -> None:
    context = doomed.create_context(id="doomed")
    first = context.start_code("input()")
    second = context.start_code("2")
    context.delete()
    for each in (first, second):
        run = each.wait(timeout=DEADLINE)
        assert not run.ok
        assert run.end.cause in {"killed", "lost"}


def test_a_restart_ends_what_runs(doomed: Sandbox) -> None:
    context = doomed.create_context(id="again")
    live = context.start_code("input()")
    context.restart()
    assert live.wait(timeout=DEADLINE).end.state == "lost"
    assert context.run_code("5").value == 5


# --- the client

CLIENT = """
import sys
from sandcell import Sandbox
sandbox = Sandbox.create(engine="local", **eval(sys.argv[1]))
print(sandbox.id, flush=True)
sandbox.run_code("import os, time; os.system('setsid -f sleep 600'); print('go', flush=True); time.sleep(600)",
                 on_stdout=lambda text: print(text, end="", flush=True))
"""


def start_client(options: str) -> tuple[subprocess.Popen[str], str]:
    """Start a program that makes a sandbox and waits in it; returns it and the sandbox's id."""
    process = subprocess.Popen([sys.executable, "-c", CLIENT, options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    sandbox_id = process.stdout.readline().strip()
    assert process.stdout.readline() == "go\n"
    return process, sandbox_id


def kill_client(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def await_ends(processes: tuple[OsProcess, ...], timeout: float) -> list[OsProcess]:
    """Return those of `processes` that are still there after `timeout` seconds."""
    left = list[OsProcess]()
    for process in processes:
        handle = process.open()
        if handle is None:
            continue
        if not select.select([handle], [], [], timeout)[0]:
            left.append(process)
        os.close(handle)
    return left


@pytest.mark.short
def test_nothing_is_left_of_a_client_that_was_killed() -> None:
    process, sandbox_id = start_client("{}")
    processes = processes_of(sandbox_id)
    folder = Path(the_host().find(sandbox_id).record.address.path).parent
    kill_client(process)
    assert await_ends(processes, timeout=2.0) == []
    assert sandbox_id not in {each.id for each in Sandbox.list()}
    assert not folder.exists()


def test_one_to_keep_goes_on_without_its_client() -> None:
    process, sandbox_id = start_client("{'on_release': 'keep'}")
    kill_client(process)
    with Sandbox.connect(sandbox_id) as sandbox:
        (run,) = sandbox.executions()
        assert run.status == "running"
        assert sandbox.exec("pgrep -c sleep").stdout == "1\n"
        run.interrupt()
        assert run.wait(timeout=DEADLINE).end.cause == "interrupted"
    found = the_host().find(sandbox_id)
    found.engine.remove(found.record.id)


def test_a_command_ends_with_its_client(doomed: Sandbox) -> None:
    marker = "sleep 599"
    program = f"""
from sandcell import Sandbox
Sandbox.connect({doomed.id!r}).exec("echo go; {marker}", on_stdout=lambda text: print(text, end="", flush=True))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    kill_client(process)
    gone = doomed.exec(f"while pgrep -f '^{marker}' >/dev/null; do sleep 0.02; done", timeout=DEADLINE)
    assert gone.ok


def test_a_run_goes_on_without_its_client_and_is_found_again(doomed: Sandbox) -> None:
    program = f"""
from sandcell import Sandbox
Sandbox.connect({doomed.id!r}).run_code("print('go', flush=True); answer = input()", id="left-alone",
    on_stdout=lambda text: print(text, end="", flush=True), on_input=lambda prompt: __import__("time").sleep(60))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    kill_client(process)
    live = doomed.execution("left-alone")
    assert live.status == "running"
    live.send_input("later")
    assert live.wait(timeout=DEADLINE).ok
    assert doomed.run_code("answer").value == "later"


def test_a_run_may_end_with_its_client(doomed: Sandbox) -> None:
    program = f"""
from sandcell import Sandbox
Sandbox.connect({doomed.id!r}).run_code({SLEEP!r}, id="tied", on_disconnect="interrupt",
    on_stdout=lambda text: print(text, end="", flush=True))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    kill_client(process)
    assert doomed.execution("tied").wait(timeout=DEADLINE).end.cause == "interrupted"
