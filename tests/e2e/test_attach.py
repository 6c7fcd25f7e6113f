"""Who started a run and who reads it are two things: clients come, go and come back, and each gets all of it, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.events import Ended, Event, Stdout

if TYPE_CHECKING:
    from collections.abc import Iterable

DEADLINE = 20.0


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Stdout))


def test_every_cursor_leads_to_exactly_the_rest(sandbox: Sandbox) -> None:
    live = sandbox.start_code(
        "import sys\nfor i in range(10):\n    print(i, flush=True); print('e', file=sys.stderr, flush=True)\ni"
    )
    events = list(live)
    assert isinstance(events[-1], Ended)
    again = sandbox.execution(live.id)
    for at, event in enumerate(events):
        assert list(again.follow(event.cursor)) == events[at + 1 :]


def test_a_client_may_come_while_it_runs_and_after(sandbox: Sandbox) -> None:
    live = sandbox.start_code("import time\nfor i in range(300): print(i, flush=True); time.sleep(0.001)")
    whole = "".join(f"{number}\n" for number in range(300))
    with Sandbox.connect(sandbox.id) as other, ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(lambda: text_of(other.execution(live.id).follow())) for _ in range(3)]
        assert text_of(live) == whole
        assert [reader.result(DEADLINE) for reader in readers] == [whole] * 3
        assert text_of(other.execution(live.id)) == whole


def test_one_that_reads_a_little_at_a_time_gets_it_once_and_in_order(sandbox: Sandbox) -> None:
    live = sandbox.start_code("for i in range(200): print(i, flush=True)")
    got, cursor = list[Event](), None
    while not got or not isinstance(got[-1], Ended):
        for event in sandbox.execution(live.id).follow(cursor):
            got.append(event)
            cursor = event.cursor
            break  # the connection is given up with events under way
    assert text_of(got) == "".join(f"{number}\n" for number in range(200))


def test_more_than_memory_holds_is_read_from_any_place(sandbox: Sandbox) -> None:
    live = sandbox.start_code("for i in range(6): print(str(i) * 999_999)")
    live.wait(timeout=DEADLINE)
    events = list(live.follow())
    text = text_of(events)
    assert len(text) == 6_000_000
    assert text == "".join(str(number) * 999_999 + "\n" for number in range(6))
    middle = events[len(events) // 2]
    assert list(live.follow(middle.cursor)) == events[len(events) // 2 + 1 :]


CLIENT = """
from sandcell import Sandbox
Sandbox.connect({sandbox!r}).run_code({code!r}, id={id!r}, on_disconnect={on_disconnect!r},
    on_stdout=lambda text: print("heard", flush=True))
"""


def start_client(sandbox: Sandbox, code: str, run_id: str, on_disconnect: str) -> subprocess.Popen[str]:
    """Start a program that runs code in `sandbox`; return when it has heard the first output."""
    program = CLIENT.format(sandbox=sandbox.id, code=code, id=run_id, on_disconnect=on_disconnect)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "heard\n"
    return process


@pytest.mark.parametrize(("on_disconnect", "cause"), [("continue", "exited"), ("interrupt", "interrupted")])
def test_a_client_that_vanishes_leaves_its_run_going_or_interrupts_it(
    sandbox: Sandbox, on_disconnect: str, cause: str
) -> None:
    run_id = f"left-{on_disconnect}"
    code = "import os, time; print('go', flush=True)\nwhile not os.path.exists('over'): time.sleep(0.01)\nprint('end')"
    sandbox.files.remove("over") if sandbox.files.exists("over") else None
    with start_client(sandbox, code, run_id, on_disconnect) as process:
        process.kill()
    live = sandbox.execution(run_id)
    if on_disconnect == "continue":
        assert live.refresh().status == "running"
        sandbox.files.write("over", "")
    run = live.wait(timeout=DEADLINE)
    assert run.end.cause == cause
    assert run.stdout == ("go\nend\n" if cause == "exited" else "go\n")
    assert sandbox.run_code("'next'").value == "next"


def test_a_run_that_nobody_follows_from_its_start_has_no_client_to_miss(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.start_code("1", id="untied", on_disconnect="interrupt")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "untied" not in {each.id for each in sandbox.executions()}


def test_a_client_that_reads_nothing_any_more_holds_up_nobody(sandbox: Sandbox) -> None:
    """Stopped and not killed: its connection stays open, and what is sent to it goes nowhere."""
    code = "print('go', flush=True)\nfor i in range(200): print('x' * 100_000)"
    with start_client(sandbox, code, "unread", "continue") as process:
        os.kill(process.pid, signal.SIGSTOP)
        try:
            run = sandbox.execution("unread").wait(timeout=DEADLINE)
            assert run.ok
            assert sandbox.run_code("'next'").value == "next"
        finally:
            process.kill()
