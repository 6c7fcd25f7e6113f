"""Contexts and their queue, over a real spawner and real kernels."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.interpreter.house import (
    CONFIG,
    House,
    Listener,
    a_house,
    cell,
    events_of,
    late_text,
    seen,
    submit,
)

from sandcell.api import CreateContext
from sandcell.config import Config
from sandcell.events import (
    Ended,
    ErrorRaised,
    InputRequested,
    Stdout,
)
from sandcell.execution import DIED
from sandcell.runs import Request, Routes
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_kernel.wire import Message, new_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


pytestmark = pytest.mark.asyncio(loop_scope="module")

SPIN = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
STRIKE_FIRST = """
import signal
events = get_ipython().events
def strike():
    events.unregister("pre_execute", strike)
    signal.raise_signal(signal.SIGINT)
events.register("pre_execute", strike)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncGenerator[House]:
    async with a_house() as house:
        yield house


def is_there(*path: object) -> bool:
    return Path(*map(str, path)).exists()


# --- runs


async def test_a_run_gives_what_its_code_gave(house: House) -> None:
    run = await house.run("import sys; print('out'); print('err', file=sys.stderr); {'a': (1, 2)}")
    assert (run.stdout, run.stderr, run.text, run.value) == ("out\n", "err\n", "{'a': (1, 2)}", {"a": [1, 2]})
    assert run.ok
    assert run.context_id == "python"


async def test_state_stays_between_runs_and_counts(house: House) -> None:
    first = await house.run("kept = 41")
    second = await house.run("kept + 1")
    assert second.value == 42
    assert first.execution_count is not None
    assert second.execution_count == first.execution_count + 1
    assert house.contexts.get("python").info().execution_count == second.execution_count


async def test_an_exception_is_data(house: House) -> None:
    run = await house.run("x = 1\nraise ValueError('no')")
    assert run.error is not None
    assert (run.error.name, run.error.value, run.error.line) == ("ValueError", "no", 2)
    assert (run.end.cause, run.end.code, run.end.state) == ("exited", 1, "kept")


async def test_a_syntax_error_is_an_error(house: House) -> None:
    run = await house.run("ok = 1\n1 +")
    assert run.error is not None
    assert (run.error.name, run.error.line) == ("SyntaxError", 2)


async def test_output_comes_as_it_is_made(house: House) -> None:
    execution = house.start("print('first'); answer = input(); print(answer)", allow_stdin=True)
    assert await seen(execution, Stdout) is not None
    assert execution.info().status == "running"
    await seen(execution, InputRequested)
    execution.send_input("second")
    assert (await house.result(execution)).stdout == "first\nsecond\n"


async def test_late_output_belongs_to_its_run_and_is_marked(house: House) -> None:
    code = (
        "import asyncio\ngate = asyncio.Event()\n"
        "async def late():\n    await gate.wait()\n    print('late')\n"
        "task = asyncio.ensure_future(late())"
    )
    first = house.start(code)
    await house.result(first)
    second = await house.run("gate.set(); await task")
    assert await late_text(first) == "late\n"
    assert second.stdout == ""


async def test_folder_and_environment_of_one_run(house: House) -> None:
    code = "import os; (os.getcwd(), os.environ.get('NAME'))"
    assert (await house.run(code, cwd="/usr", env={"NAME": "it's"})).value == ["/usr", "it's"]
    assert (await house.run(code)).value == [house.folder, None]
    await house.run("os.mkdir('sub dir')")
    assert (await house.run(code, cwd="sub dir")).value == [f"{house.folder}/sub dir", None]


async def test_a_missing_folder_fails_the_run(house: House) -> None:
    with pytest.raises(SandcellError) as raised:
        await house.run("1", cwd="missing")
    assert raised.value.code is ErrorCode.CWD_NOT_FOUND
    assert (await house.run("1")).ok


# --- the queue


async def test_runs_wait_for_their_turn_and_know_their_place(house: House) -> None:
    first = house.start("order = ['first']; input()", allow_stdin=True)
    waiting = [house.start(f"order.append({number})") for number in range(3)]
    await seen(first, InputRequested)
    assert [run.info().position for run in waiting] == [0, 1, 2]
    assert {run.info().status for run in waiting} == {"queued"}
    first.send_input("")
    await house.result(waiting[-1])
    assert (await house.run("order")).value == ["first", 0, 1, 2]
    assert [run.info().position for run in waiting] == [None] * 3


async def test_a_queue_has_a_bound(house: House) -> None:
    first = house.start("input()", allow_stdin=True)
    waiting = [house.start("1") for _ in range(CONFIG.max_queue)]
    await seen(first, InputRequested)
    with pytest.raises(SandcellError) as raised:
        house.start("1", id="run_once_more")
    assert raised.value.code is ErrorCode.QUOTA_EXCEEDED
    first.send_input("")
    await house.result(waiting[-1])
    assert (await house.run("'again'", id="run_once_more")).value == "again"


async def test_a_run_may_refuse_to_wait(house: House) -> None:
    first = house.start("input()", allow_stdin=True, origin="notebook:n")
    await seen(first, InputRequested)
    with pytest.raises(SandcellError) as raised:
        house.start("1", on_busy="reject")
    assert raised.value.code is ErrorCode.BUSY
    assert raised.value.details == {"origin": "notebook:n", "queued": 0}
    first.send_input("")
    await house.result(first)
    assert (await house.run("1", on_busy="reject")).ok


async def test_waiting_may_have_an_end(house: House) -> None:
    first = house.start("input()", allow_stdin=True)
    await seen(first, InputRequested)
    waiting = house.start("1", queue_timeout=0.05)
    with pytest.raises(SandcellError) as raised:
        await house.result(waiting)
    assert raised.value.code is ErrorCode.BUSY
    first.send_input("")
    assert (await house.result(first)).ok


# --- time, and interrupts


async def test_a_run_over_its_time_is_interrupted_and_its_state_kept(house: House) -> None:
    run = await house.run("before = 1\nimport time; time.sleep(60)", timeout=0.2)
    assert run.timed_out
    assert run.error is not None
    assert (run.error.name, run.end.state) == ("KeyboardInterrupt", "kept")
    assert run.stdout == ""
    assert (await house.run("before")).value == 1


async def test_output_before_the_time_was_over_is_there(house: House) -> None:
    run = await house.run("print('so far')\nawait __import__('asyncio').sleep(60)", timeout=0.3)
    assert run.timed_out
    assert run.stdout == "so far\n"


@pytest.mark.parametrize("timeout", [0.0001, 0.001, 0.002, 0.005])
async def test_a_very_short_time_costs_no_state(house: House, timeout: float) -> None:
    # What draws tracebacks is imported with the first one, which may take longer than the grace here.
    await house.run("raise KeyboardInterrupt")
    run = await house.run("import time; time.sleep(60)", timeout=timeout)
    assert run.timed_out
    assert run.end.state == "kept"


async def test_an_interrupt_that_comes_before_the_code_begins_is_heeded(house: House) -> None:
    await house.run(STRIKE_FIRST)
    run = await house.run("began = True")
    assert run.error is not None
    assert run.error.name == "KeyboardInterrupt"
    assert (await house.run("'began' in globals()")).value is False


async def test_an_interrupt_that_comes_before_the_code_draws_nothing_of_the_machinery(house: House) -> None:
    await house.context("struck")
    strike = "import functools, signal\nstrike = functools.partial(signal.raise_signal, signal.SIGINT)\n"
    await house.run(f"{strike}get_ipython().events.register('pre_execute', strike)", context="struck")
    run = await house.run("1", context="struck")
    assert run.error is not None
    assert (run.error.name, run.error.traceback) == ("KeyboardInterrupt", ["KeyboardInterrupt"])
    await house.contexts.delete("struck")


async def test_a_run_that_does_not_heed_is_killed(house: House) -> None:
    context = await house.context("stubborn")
    await house.run("lost = 1", context="stubborn")
    run = await house.run(SPIN, context="stubborn", timeout=0.2)
    assert (run.end.cause, run.end.signal, run.end.state) == ("timeout", 9, "lost")
    assert run.error is not None
    assert run.error.name == "TimeoutError"
    after = await house.run("'lost' in globals()", context="stubborn")
    assert after.value is False
    assert after.fresh_state is not None
    assert "did not stop" in after.fresh_state
    assert context.info().starts == 2
    await house.contexts.delete("stubborn")


async def test_a_run_can_be_interrupted(house: House) -> None:
    execution = house.start("print('go')\nimport time; time.sleep(60)")
    await seen(execution, Stdout)
    await execution.interrupt(who="sdk")
    run = await house.result(execution)
    assert (run.end.cause, run.end.who, run.end.state) == ("interrupted", "sdk", "kept")
    await execution.interrupt(who="sdk")


async def test_a_run_interrupted_before_it_began_never_runs(house: House) -> None:
    first = house.start("input()", allow_stdin=True)
    waiting = house.start("began = 1")
    await seen(first, InputRequested)
    await waiting.interrupt(who="sdk")
    run = await house.result(waiting)
    assert (run.end.cause, run.end.who, run.started_at) == ("interrupted", "sdk", None)
    first.send_input("")
    assert (await house.run("'began' in globals()")).value is False


async def test_an_interrupt_of_the_context_is_for_what_runs(house: House) -> None:
    execution = house.start("print('go')\nimport time; time.sleep(60)")
    await seen(execution, Stdout)
    context = house.contexts.get("python")
    assert context.info().status == "busy"
    await context.interrupt(who="front")
    assert (await house.result(execution)).end.who == "front"
    await context.interrupt(who="front")
    assert context.info().status == "idle"
    assert (await house.run("1")).ok


# --- input


async def test_input_is_refused_unless_it_is_asked_for(house: House) -> None:
    run = await house.run("input('name? ')")
    assert run.error is not None
    assert run.error.name == "StdinNotImplementedError"


async def test_input_can_be_answered(house: House) -> None:
    execution = house.start(
        "name = input('name? '); import getpass; (name, getpass.getpass('word? '))", allow_stdin=True
    )
    asked = list[tuple[str, bool]]()
    async with asyncio.timeout(20):
        async for event in events_of(execution):
            if isinstance(event, InputRequested):
                asked.append((event.prompt, event.password))
                execution.send_input(f"answer {len(asked)}")
    assert asked == [("name? ", False), ("word? ", True)]
    assert (await house.result(execution)).value == ["answer 1", "answer 2"]


async def test_an_answer_to_no_question_is_refused(house: House) -> None:
    execution = house.start("1")
    await house.result(execution)
    with pytest.raises(SandcellError) as raised:
        execution.send_input("x")
    assert raised.value.code is ErrorCode.BUSY


# --- deaths


@pytest.mark.parametrize(
    ("code", "cause", "number"),
    [
        ("os._exit(3)", "exited", 3),
        ("os.kill(os.getpid(), 11)", "signaled", 11),
        ("os.kill(os.getpid(), 9)", "signaled", 9),
    ],
)
async def test_a_death_ends_the_run_and_those_that_wait(
    house: House, code: str, cause: str, number: int
) -> None:
    name = f"dies_of_{number}"
    await house.context(name)
    listener = Listener()
    running = house.start(
        f"import os; print('last', flush=True); input(); {code}", context=name, allow_stdin=True
    )
    waiting = house.start("1", context=name)
    await seen(running, InputRequested)
    question = new_message("complete_request", {"code": "", "cursor_pos": 0}, session="front")
    house.contexts.get(name).send("shell", question, listener)
    running.send_input("")
    async with asyncio.timeout(1):
        await running.wait()
        await waiting.wait()
    run, after = await house.result(running), await house.result(waiting)
    assert (run.end.cause, run.end.code or run.end.signal, run.end.state) == (cause, number, "lost")
    assert run.stdout == "last\n"
    assert run.error is not None
    assert (run.error.name, run.ok) == (DIED, False)
    assert after.end.cause == "lost"
    assert after.error is not None
    assert after.error.name == DIED
    assert [(msg_id, ended.replied, ended.end.state) for msg_id, ended in listener.ends] == [
        (question.msg_id, False, "lost")
    ]
    assert house.contexts.get(name).info().status == "dead"
    fresh = await house.run("'fresh'", context=name)
    assert fresh.value == "fresh"
    assert fresh.fresh_state is not None
    assert (await house.run("1", context=name)).fresh_state is None
    await house.contexts.delete(name)


async def test_a_run_for_an_interpreter_that_is_dead_already_begins_in_the_next(house: House) -> None:
    context = await house.context("dead")
    await house.run("1", context="dead")
    pid = context.info().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # Nobody could tell us of it yet.
    runs = [house.start(code, context="dead") for code in ("1 + 1", "2 + 2")]
    first, second = [await house.result(run) for run in runs]
    assert (first.value, second.value) == (2, 4)
    assert (
        first.fresh_state == "the interpreter was started anew: the interpreter ended with signal 9 (SIGKILL)"
    )
    assert second.fresh_state is None
    await house.contexts.delete("dead")


async def test_an_error_of_half_a_character_is_shown(house: House) -> None:
    run = await house.run(r"raise ValueError('\ud800')")
    assert run.error is not None
    assert (run.error.name, run.error.value) == ("ValueError", r"\ud800")


async def test_a_crash_tells_where_it_was(house: House) -> None:
    await house.context("crashes")
    run = await house.run("import ctypes\nctypes.string_at(0)", context="crashes")
    assert run.error is not None
    assert run.error.value == "the interpreter ended with signal 11 (SIGSEGV)"
    assert run.error.traceback[0] == "Fatal Python error: Segmentation fault"
    assert (
        await house.run("1", context="crashes")
    ).fresh_state == f"the interpreter was started anew: {run.error.value}"
    await house.contexts.delete("crashes")


async def test_an_interpreter_that_exits_lets_the_next_run_begin_anew(house: House) -> None:
    await house.context("leaves")
    left = house.start("get_ipython().ask_exit()", context="leaves")
    next_one = await house.run("2", context="leaves")
    run = await house.result(left)
    assert run.ok
    assert run.end.state == "lost"
    assert next_one.value == 2
    assert next_one.fresh_state is not None
    await house.contexts.delete("leaves")


async def test_a_kernel_that_sends_too_much_is_cut_off_with_a_cause() -> None:
    async with a_house(Config(max_message=2**20, kill_grace=0.1)) as house:
        run = await house.run("get_ipython().kernel.session.max_frame = 2**40; 'x' * 2**21")
        assert (run.end.cause, run.end.limit, run.end.state) == ("limit", "max_message", "lost")
        assert (await house.run("1")).value == 1


async def test_a_large_result_is_left_out_and_told(house: House) -> None:
    run = await house.run("'x' * (2**20 + 1)")
    assert "is too large to show" in (run.text or "")
    assert run.truncated["text/plain"].total_bytes == 2**20 + 3
    assert run.value is None


async def test_processes_that_a_dead_kernel_left_are_ended(house: House) -> None:
    await house.context("parent")
    run = await house.run("import subprocess; subprocess.Popen(['sleep', '1000']).pid", context="parent")
    await house.contexts.delete("parent")
    assert not is_there("/proc", run.value)


# --- starts that fail


async def test_an_interpreter_that_cannot_start_fails_all_that_waits() -> None:
    async with a_house(python="/bin/false") as house:
        runs = [house.start("1"), house.start("2")]
        for execution in runs:
            with pytest.raises(SandcellError) as raised:
                await house.result(execution)
            assert raised.value.code is ErrorCode.START_FAILED
            assert "exit status 1" in raised.value.message
        assert house.contexts.get("python").info().starts == 1
        with pytest.raises(SandcellError):
            await house.contexts.get("python").kernel_info()


async def test_a_program_that_says_nothing_is_given_up() -> None:
    async with a_house(python="/bin/true") as house:
        with pytest.raises(SandcellError) as raised:
            await house.contexts.create(CreateContext(id="none", cwd="."))
        assert raised.value.code is ErrorCode.START_FAILED
        assert house.contexts.list() == []


async def test_a_program_that_never_gets_ready_is_given_up_in_time() -> None:
    async with a_house(python="/usr/bin/yes", start_timeout=0.2) as house:
        with pytest.raises(SandcellError) as raised:
            await house.run("1")
        assert raised.value.code is ErrorCode.START_TIMEOUT


async def test_waiting_for_the_interpreter_is_waiting() -> None:
    """So it is `queue_timeout` that bounds it; `timeout` counts from when the run runs."""
    async with a_house(python="/usr/bin/yes") as house:
        waiting = house.start("1", timeout=0.01, queue_timeout=0.2)
        with pytest.raises(SandcellError) as raised:
            await house.result(waiting)
        assert raised.value.code is ErrorCode.BUSY
        assert waiting.info().started_at is None


async def test_a_start_that_fails_tells_what_was_said() -> None:
    async with a_house(python="/bin/sh") as house:
        with pytest.raises(SandcellError) as raised:
            await house.run("1")
        assert "launch.py" in raised.value.details["stderr"]


async def test_a_context_in_a_missing_folder_is_not_made(house: House) -> None:
    with pytest.raises(SandcellError) as raised:
        await house.contexts.create(CreateContext(id="nowhere", cwd="/no/such/folder"))
    assert raised.value.code is ErrorCode.CWD_NOT_FOUND
    with pytest.raises(SandcellError):
        house.contexts.get("nowhere")


# --- contexts


async def test_a_context_has_its_own_folder_environment_and_state(house: House) -> None:
    request = CreateContext(id="own", cwd="/usr", env={"NAME": "own", "HOME": None})
    context = await house.contexts.create(request)
    assert await house.contexts.create(request) is context
    code = "import os; (os.getcwd(), os.environ.get('NAME'), 'HOME' in os.environ, 'kept' in globals())"
    assert (await house.run(code, context="own")).value == ["/usr", "own", False, False]
    info = context.info()
    assert (info.id, info.language, info.status, info.cwd, info.starts) == (
        "own",
        "python",
        "idle",
        "/usr",
        1,
    )
    await house.contexts.delete("own")


async def test_a_restart_keeps_the_id_and_ends_what_runs_and_waits(house: House) -> None:
    context = await house.context("again")
    running = house.start("gone = 1; print('go')\nimport time; time.sleep(60)", context="again")
    waiting = house.start("1", context="again")
    await seen(running, Stdout)
    await context.restart(who="front")
    for execution in (running, waiting):
        run = await house.result(execution)
        assert (run.end.cause, run.end.who) == ("replaced", "front")
    after = await house.run("'gone' in globals()", context="again")
    assert after.value is False
    assert after.fresh_state == "front restarted the context"
    assert (context.info().starts, context.info().status) == (2, "idle")
    await house.contexts.delete("again")


async def test_a_restart_of_an_idle_context_runs_its_exit_handlers(house: House) -> None:
    context = await house.context("polite")
    await house.run("import atexit; atexit.register(lambda: open('handled', 'w').close())", context="polite")
    await context.restart(who="front")
    assert is_there(house.folder, "handled")
    await house.contexts.delete("polite")


async def test_deleting_ends_everything(house: House) -> None:
    context = await house.context("short")
    running = house.start("print('go')\nimport time; time.sleep(60)", context="short")
    waiting = house.start("1", context="short")
    await seen(running, Stdout)
    pid = context.info().pid
    await house.contexts.delete("short", who="sdk")
    for execution in (running, waiting):
        assert (await house.result(execution)).end.cause == "killed"
    assert context.info().status == "deleted"
    assert not is_there("/proc", pid)
    for attempt in (lambda: house.start("1", context="short"), lambda: house.contexts.get("short")):
        with pytest.raises(SandcellError) as raised:
            attempt()
        assert raised.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(SandcellError) as raised:
        submit(house, context, cell("1"), Listener())
    assert raised.value.code is ErrorCode.LOST


async def test_deleting_a_context_that_starts_leaves_nobody_waiting(house: House) -> None:
    listener = Listener()
    running = house.start("1", fresh=True)
    context = house.contexts.get(running.context_id)
    context.send(
        "shell", new_message("complete_request", {"code": "", "cursor_pos": 0}, session="f"), listener
    )
    await house.contexts.delete(context.id)
    assert (await house.result(running)).end.cause == "killed"
    assert len(listener.ends) == 1


@pytest.mark.parametrize("steps", [0, 1, 5, 50])
async def test_deleting_a_context_while_it_is_made_ends_both(house: House, steps: int) -> None:
    """However far the start has come: who waits for it is told, and no interpreter is left or started again."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        making = group.create_task(_problem_of(house.context("hasty")))
        await asyncio.sleep(0)
        context = house.contexts.get("hasty")
        for _ in range(steps):
            await asyncio.sleep(0)
        await house.contexts.delete("hasty")
    assert making.result() in {ErrorCode.CONTEXT_DIED, ErrorCode.LOST}
    with pytest.raises(SandcellError) as raised:
        await context.ready()
    assert raised.value.code is ErrorCode.LOST
    assert context.info().pid is None


async def test_a_fresh_run_has_a_context_of_its_own_that_goes() -> None:
    async with a_house() as house:
        await house.run("shared = 1")
        execution = house.start("'shared' in globals()", fresh=True)
        context = house.contexts.get(execution.context_id)
        run = await house.result(execution)
        assert run.value is False
        assert run.context_id == context.id != "python"
    assert [each.id for each in house.contexts.list()] == ["python"]


async def test_contexts_run_side_by_side(house: House) -> None:
    names = ["side_a", "side_b"]
    for name in names:
        await house.context(name)
    runs = [house.start("print('go'); input()", context=name, allow_stdin=True) for name in names]
    for execution in runs:
        await seen(execution, InputRequested)
    for execution in runs:
        execution.send_input("")
        assert (await house.result(execution)).ok
    for name in names:
        await house.contexts.delete(name)


# --- ids and requests


async def test_a_repeated_id_is_the_same_run(house: House) -> None:
    first = house.start("times = globals().get('times', 0) + 1; times", id="run_once")
    assert house.start("times = globals().get('times', 0) + 1; times", id="run_once") is first
    assert (await house.result(first)).value == 1
    assert house.executions.get("run_once") is first
    with pytest.raises(SandcellError) as raised:
        house.start("other", id="run_once")
    assert raised.value.code is ErrorCode.EXISTS


async def test_only_so_many_ended_runs_are_kept(house: House) -> None:
    first = house.start("1")
    await house.result(first)
    for _ in range(CONFIG.max_records + 1):
        await house.result(house.start("1"))
    assert len(house.executions.list()) <= CONFIG.max_records
    with pytest.raises(SandcellError) as raised:
        house.executions.get(first.id)
    assert raised.value.code is ErrorCode.NOT_FOUND


async def test_runs_that_are_refused_push_no_others_out(house: House) -> None:
    kept = house.start("1")
    await house.result(kept)
    busy = house.start("input()", allow_stdin=True)
    await seen(busy, InputRequested)
    for _ in range(CONFIG.max_records + 1):
        with pytest.raises(SandcellError):
            house.start("2", on_busy="reject")
    assert house.executions.get(kept.id) is kept
    busy.send_input("")
    await house.result(busy)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"timeout": -1.0}, ErrorCode.INVALID_ARGUMENT),
        ({"timeout": float("nan")}, ErrorCode.INVALID_ARGUMENT),
        ({"queue_timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"language": "ruby"}, ErrorCode.UNKNOWN_LANGUAGE),
        ({"context": "none"}, ErrorCode.NOT_FOUND),
        ({"context": "python", "fresh": True}, ErrorCode.INVALID_ARGUMENT),
        ({"id": "Bad Id"}, ErrorCode.INVALID_NAME),
        ({"env": {"A=B": "1"}}, ErrorCode.INVALID_ENV_NAME),
        ({"env": {"A": "\0"}}, ErrorCode.INVALID_ENV_NAME),
        ({"cwd": "a\0b"}, ErrorCode.INVALID_PATH),
    ],
)
async def test_a_bad_request_is_refused_before_anything_runs(
    house: House, options: dict[str, Any], code: ErrorCode
) -> None:
    known, contexts = house.executions.list(), house.contexts.list()
    with pytest.raises(SandcellError) as raised:
        house.start("1", **options)
    assert raised.value.code is code
    assert house.executions.list() == known
    assert house.contexts.list() == contexts


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (CreateContext(language="ruby"), ErrorCode.UNKNOWN_LANGUAGE),
        (CreateContext(id="No"), ErrorCode.INVALID_NAME),
        (CreateContext(env={"": "x"}), ErrorCode.INVALID_ENV_NAME),
        (CreateContext(memory=2**20), ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_a_bad_context_is_refused(house: House, request_: CreateContext, code: ErrorCode) -> None:
    known = house.contexts.list()
    with pytest.raises(SandcellError) as raised:
        await house.contexts.create(request_)
    assert raised.value.code is code
    assert house.contexts.list() == known


# --- fronts


async def test_a_front_gets_every_message_of_its_request_and_then_the_end(house: House) -> None:
    context, listener = await house.contexts.default("py"), Listener()
    message = cell("print('hi'); 1 + 1")
    execution = submit(house, context, message, listener)
    await execution.wait()
    assert listener.kinds("shell") == ["execute_reply"]
    assert listener.kinds("iopub") == ["status", "execute_input", "stream", "execute_result", "status"]
    assert {answer.parent_id for _, answer in listener.messages} == {message.msg_id}
    ((msg_id, ended),) = listener.ends
    assert msg_id == message.msg_id
    assert (ended.replied, ended.idle, ended.aborted, ended.end.cause) == (True, True, False, "exited")


async def test_the_request_of_a_front_arrives_as_it_was_sent(house: House) -> None:
    message = cell("get_ipython().kernel.get_parent()")
    odd = Message(
        message.header.replace(b'"session":"front"', b'"session":"front", "odd" : [1,  2]'),
        metadata=b'{ "cellId":"c" }',
        content=message.content,
    )
    context, listener = await house.contexts.default("python"), Listener()
    await submit(house, context, odd, listener).wait()
    (result,) = [answer for _, answer in listener.messages if answer.msg_type == "execute_result"]
    text = result.body()["data"]["text/plain"]
    assert "'odd': [1, 2]" in text
    assert "'cellId': 'c'" in text
    assert list(result.body()["data"]) == ["text/plain"]


def named(message: Message, msg_id: str, *, session: str = "front") -> Message:
    """Return the request with an id that its client chose."""
    head = message.head
    header = message.header.replace(head.msg_id.encode(), msg_id.encode())
    header = header.replace(b'"session":"front"', f'"session":"{session}"'.encode())
    return Message(header, metadata=message.metadata, content=message.content)


async def test_clients_may_choose_the_same_id(house: House) -> None:
    """Two runs one after another, and a question while the first one runs, all called "1"."""
    context = await house.contexts.default("python")
    await house.run("import os")
    first, second, asking = Listener(), Listener(), Listener()
    runs = [
        submit(house, context, named(cell("print('a'); input(); 'A'", allow_stdin=True), "1"), first),
        submit(house, context, named(cell("print('b'); os.system('echo b'); 'B'"), "1"), second),
    ]
    await first.until(lambda: first.kinds("stdin"))
    question = new_message("complete_request", {"code": "os.getc", "cursor_pos": 7}, session="front")
    context.send("shell", named(question, "1"), asking)
    await seen(runs[0], InputRequested)
    runs[0].send_input("")
    results = [await house.result(run) for run in runs]
    assert [run.stdout for run in results] == ["a\n", "b\nb\n"]
    assert [run.text for run in results] == ["'A'", "'B'"]
    await asking.until(lambda: asking.kinds("shell"))
    assert asking.kinds("shell") == ["complete_reply"]
    assert [listener.kinds("shell") for listener in (first, second)] == [["execute_reply"]] * 2


async def test_questions_of_one_id_are_answered_in_their_order(house: House) -> None:
    context = await house.contexts.default("python")
    await house.run("import os, sys")
    codes = ["os.getc", "sys.getref", "os.getp"]
    asking = [Listener() for _ in codes]
    for code, listener, session in zip(codes, asking, ("front", "front", "other"), strict=True):
        question = new_message("complete_request", {"code": code, "cursor_pos": len(code)}, session="front")
        context.send("shell", named(question, "q", session=session), listener)
    for code, listener in zip(codes, asking, strict=True):
        await listener.until(lambda listener=listener: listener.kinds("shell"))
        (reply,) = [message.body() for channel, message in listener.messages if channel == "shell"]
        assert reply["matches"]
        assert all(code.partition(".")[2] in match for match in reply["matches"])


async def test_a_second_reply_that_comes_before_the_first_idle_is_the_second_ones() -> None:
    routes, asking = Routes(), [Listener(), Listener()]
    question = named(new_message("complete_request", {}, session="front"), "q", session="front")
    for listener in asking:
        routes.open(Request("shell", question, listener))
    for match in ("one", "two"):
        reply = new_message("complete_reply", {"matches": [match]}, session="k", parent=question.header)
        routes.deliver("shell", reply)
    for _ in asking:
        idle = new_message("status", {"execution_state": "idle"}, session="k", parent=question.header)
        routes.deliver("iopub", idle)
    matches = [
        [message.body()["matches"] for channel, message in each.messages if channel == "shell"]
        for each in asking
    ]
    assert matches == [[["one"]], [["two"]]]
    assert routes.count == 0


@pytest.mark.parametrize(
    ("kind", "content"),
    [("history_request", {"hist_access_type": "none", "unknown": 1}), ("strange_request", {})],
)
async def test_a_request_that_the_kernel_leaves_unanswered_is_answered(
    house: House, kind: str, content: dict[str, Any]
) -> None:
    context, listener = await house.contexts.default("python"), Listener()
    context.send("shell", new_message(kind, content, session="front"), listener)
    await listener.until(lambda: listener.kinds("shell"))
    (reply,) = [message for channel, message in listener.messages if channel == "shell"]
    assert reply.msg_type == kind.replace("request", "reply")
    assert reply.body()["status"] == "error"
    assert listener.ends == []
    assert (await house.run("1")).ok


async def test_an_error_aborts_waiting_runs_of_the_same_origin_only(house: House) -> None:
    context = await house.contexts.default("python")
    mine, others = Listener(), Listener()
    messages = [cell("input()", allow_stdin=True), cell("mine = 1")]
    blocker = house.start("input()", allow_stdin=True)
    runs = [submit(house, context, cell("1/0"), mine), submit(house, context, messages[1], mine)]
    other = submit(house, context, cell("other = 1"), others, origin="another")
    await seen(blocker, InputRequested)
    blocker.send_input("")
    for execution in (*runs, other):
        await execution.wait()
    assert [(ended.aborted, ended.replied, ended.end.cause) for _, ended in mine.ends] == [
        (False, True, "exited"),
        (True, False, "interrupted"),
    ]
    assert [ended.end.cause for _, ended in others.ends] == ["exited"]
    assert (await house.run("('mine' in globals(), other)")).value == [False, 1]


async def test_a_front_answers_input_itself(house: House) -> None:
    context, listener = await house.contexts.default("python"), Listener()
    execution = submit(house, context, cell("input('? ')", allow_stdin=True), listener)
    await listener.until(lambda: listener.kinds("stdin"))
    (asked,) = [message for channel, message in listener.messages if channel == "stdin"]
    answer = new_message("input_reply", {"value": "hello"}, session="front", parent=asked.header)
    context.send("stdin", answer, listener)
    assert (await house.result(execution)).text == "'hello'"


async def test_questions_do_not_wait_for_the_queue(house: House) -> None:
    context, listener = await house.contexts.default("python"), Listener()
    await house.run("import os")
    context.send(
        "shell",
        new_message("complete_request", {"code": "os.getc", "cursor_pos": 7}, session="front"),
        listener,
    )
    await listener.until(lambda: "complete_reply" in listener.kinds("shell"))
    (reply,) = [message.body() for channel, message in listener.messages if channel == "shell"]
    assert any(match.endswith("getcwd") for match in reply["matches"])
    assert listener.ends == []


async def test_a_question_of_a_context_that_does_not_run_starts_it(house: House) -> None:
    listener = Listener()
    context = house.contexts.get(house.start("1", fresh=True).context_id)
    context.send("shell", new_message("is_complete_request", {"code": "1+"}, session="front"), listener)
    await listener.until(lambda: listener.kinds("shell") or listener.ends)
    assert listener.kinds("shell") == ["is_complete_reply"]


async def test_a_run_is_not_sent_as_a_question(house: House) -> None:
    context = await house.contexts.default("python")
    with pytest.raises(SandcellError) as raised:
        context.send("shell", cell("1"), Listener())
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT


async def test_the_kernel_tells_what_it_is_while_a_cell_runs(house: House) -> None:
    context = await house.context("told")
    execution = house.start("input()", context="told", allow_stdin=True)
    await seen(execution, InputRequested)
    info = await context.kernel_info()
    assert info["language_info"]["name"] == "python"
    assert await context.kernel_info() is info
    execution.send_input("")
    await house.result(execution)
    await house.contexts.delete("told")


async def test_a_ticket_waits_for_its_turn_and_moves_the_counter(house: House) -> None:
    context = await house.contexts.default("python")
    before = await house.run("1")
    assert before.execution_count is not None
    assert await context.take_ticket("front") == before.execution_count + 1
    assert (await house.run("1")).execution_count == before.execution_count + 2
    assert context.info().execution_count == before.execution_count + 2


async def test_a_ticket_of_a_context_that_dies_is_an_error(house: House) -> None:
    context = await house.context("doomed")
    execution = house.start("input(); import os; os._exit(1)", context="doomed", allow_stdin=True)
    await seen(execution, InputRequested)
    async with asyncio.TaskGroup() as group:
        ticket = group.create_task(_problem_of(context.take_ticket("front")))
        await asyncio.sleep(0)
        execution.send_input("")
    assert ticket.result() is ErrorCode.CONTEXT_DIED
    await house.contexts.delete("doomed")


async def _problem_of(work: Any) -> ErrorCode | None:
    try:
        await work
    except SandcellError as problem:
        return problem.code
    return None


async def test_a_silent_run_leaves_the_counter_alone(house: House) -> None:
    context, listener = await house.contexts.default("python"), Listener()
    before = (await house.run("1")).execution_count
    await submit(house, context, cell("x = 1", silent=True, store_history=False), listener).wait()
    assert "execute_input" not in listener.kinds("iopub")
    assert (await house.run("1")).execution_count == (before or 0) + 1


# --- the end of it all


async def test_nothing_is_left_when_the_house_is_closed() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    async with a_house() as house:
        running = house.start("print('go')\nimport time; time.sleep(60)")
        await seen(running, Stdout)
        idle = await house.context("idle")
        pids = [context.info().pid for context in house.contexts.list()]
        journal = running.journal
        assert None not in pids
        assert idle.info().status == "idle"
    assert journal.ended
    assert [pid for pid in pids if is_there("/proc", pid)] == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_the_end_of_the_spawner_ends_every_run() -> None:
    async with a_house() as house:
        execution = house.start("import os; print(os.getppid())\nimport time; time.sleep(60)")
        await seen(execution, Stdout)
        context = house.contexts.get("python")
        assert context.info().pid
        await context.delete(who="sdk")
        kinds = [type(event) async for event in events_of(execution)]
        assert kinds[-2:] == [ErrorRaised, Ended]
