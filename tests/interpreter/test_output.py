"""What runs write: whole, in order, live, and in the name of the run that wrote it, whoever wrote it and when."""

from __future__ import annotations

import ast
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from tests.interpreter.house import House, Listener, a_house, cell, events_of, late_text, seen, submit

from sandcell.events import Event, ResultAdded, Stderr, Stdout
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandcell.context import Execution

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncGenerator[House]:
    async with a_house() as house:
        await house.run("import asyncio, ctypes, os, subprocess, sys, threading, time")
        yield house


async def events(execution: Execution) -> list[Event]:
    return [event async for event in events_of(execution)]


def told(found: list[Event]) -> list[str]:
    """Return output and results in order, text that follows text of the same stream joined."""
    parts: list[tuple[str, str]] = []
    for event in found:
        match event:
            case Stdout() | Stderr():
                kind, text = type(event).__name__, event.text
            case ResultAdded():
                kind, text = "result", f"<{event.data['text/plain']}>"
            case _:
                continue
        if parts and parts[-1][0] == kind != "result":
            text = parts.pop()[1] + text
        parts.append((kind, text))
    return [text for _, text in parts]


# --- whoever writes


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("print('a'); os.write(1, b'b\\n'); print('c')", "a\nb\nc\n"),
        ("print('a', end=''); os.system('echo b'); print('c')", "ab\nc\n"),
        ("print('a'); subprocess.run(['echo', 'b']); print('c')", "a\nb\nc\n"),
        ("print('a'); subprocess.run('echo b >&2', shell=True, stderr=subprocess.STDOUT); print('c')", "a\nb\nc\n"),
        ("print('a'); subprocess.run(['echo', 'b'], stdout=sys.stdout); print('c')", "a\nb\nc\n"),
        ("print('a')\n!echo b", "a\nb\n"),
        ("print('a'); sys.__stdout__.write('b\\n'); print('c'); sys.__stdout__.write('d')", "a\nb\nc\nd"),
        ("print('a'); os.fdopen(os.dup(1), 'w').write('b'); print('c')", "a\nbc\n"),
        ("print('a'); open('/dev/stdout', 'w').write('b'); print('c')", "a\nbc\n"),
        ("libc = ctypes.CDLL(None); libc.printf(b'a\\n'); print('b'); libc.printf(b'c')", "a\nb\nc"),
        ("print('a'); pid = os.fork()\nif pid == 0: print('b'); os._exit(0)\nos.waitpid(pid, 0); print('c')", "a\nb\nc\n"),
        ("t = threading.Thread(target=print, args='b'); print('a'); t.start(); t.join(); print('c')", "a\nb\nc\n"),
        ("print('a'); await asyncio.to_thread(print, 'b'); print('c')", "a\nb\nc\n"),
        ("print('a'); await (await asyncio.create_subprocess_exec('echo', 'b')).wait(); print('c')", "a\nb\nc\n"),
        ("sys.stdout.writelines(['a', 'b'])", "ab"),
        ("print('a'); sys.stdout.buffer.write(b'b\\xff\\n'); print('c')", "a\nb\ufffd\nc\n"),
        ("print('a'); import io; io.TextIOWrapper(sys.stdout.buffer).write('b\\n'); print('c')", "a\nb\nc\n"),
        ("print('a', file=sys.stdout, flush=True); print(sys.stdout.fileno(), sys.stderr.fileno())", "a\n1 2\n"),
    ],
)  # fmt: skip
async def test_all_output_of_a_run_is_its_own_and_in_order(house: House, code: str, stdout: str) -> None:
    run = await house.run(f"{code};")
    assert run.error is None
    assert run.stdout == stdout
    assert not any(entry.late for entry in run.logs)


async def test_standard_error_is_its_own_stream(house: House) -> None:
    run = await house.run(
        "print('a'); os.write(2, b'b\\n'); os.system('echo c >&2'); print('d', file=sys.stderr)"
    )
    assert (run.stdout, run.stderr) == ("a\n", "b\nc\nd\n")


async def test_multiprocessing(house: House) -> None:
    code = (
        "import multiprocessing\n"
        "for method in ('fork', 'spawn'):\n"
        "    child = multiprocessing.get_context(method).Process(target=print, args=(method,))\n"
        "    child.start(); child.join(); print(child.exitcode)"
    )
    assert (await house.run(code)).stdout == "fork\n0\nspawn\n0\n"


async def test_a_forked_child_that_leaves_the_cell_ends(house: House) -> None:
    code = (
        "def child(body):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: exec(body)\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else None\n"
        "fates = [child('pass')]\nif fates != [None]: print('parent'); print(fates)"
    )
    run = await house.run(code)
    assert run.stdout == "parent\n[0]\n"
    assert (await house.run("fates = [child('sys.exit(3)'), child('1/0')]; fates")).value == [3, 1]
    assert "ZeroDivisionError" in (await house.run("child('1/0')")).stderr


@pytest.mark.parametrize("attempt", range(10))
async def test_output_of_a_child_is_there_when_the_run_has_ended(house: House, attempt: int) -> None:
    run = await house.run(f"subprocess.run(['echo', '{attempt}']);")
    assert run.stdout == f"{attempt}\n"


async def test_a_handler_of_an_earlier_run_writes_for_the_run_that_logs(house: House) -> None:
    await house.run(
        "import logging; log = logging.getLogger('kept'); log.propagate = False\n"
        "log.addHandler(logging.StreamHandler(sys.stdout)); log.addHandler(logging.StreamHandler())"
    )
    run = await house.run("log.warning('now')")
    assert (run.stdout, run.stderr) == ("now\n", "now\n")


async def test_output_and_results_keep_their_order(house: House) -> None:
    code = (
        "print('a'); display(1); print('b'); display(2); os.system('echo c'); display(3)\n"
        "print('d', file=sys.stderr); display(4); os.write(1, b'e'); display(5); print('f'); 6"
    )
    for _ in range(5):
        found = told(await events(house.start(code)))
        assert found == ["a\n", "<1>", "b\n", "<2>", "c\n", "<3>", "d\n", "<4>", "e", "<5>", "f\n", "<6>"]


async def test_what_is_cleared_is_what_came_before(house: House) -> None:
    code = "from IPython.display import clear_output\nfor n in range(20): print(n); clear_output(); print('after')"
    for _ in range(5):
        assert (await house.run(code)).stdout == "after\n"


async def test_who_registered_a_hook_sees_messages_in_their_place(house: House) -> None:
    code = (
        "seen = []\ndef hook(message): seen.append(message['content']['text']); return message\n"
        "print('a'); sys.stdout.register_hook(hook); print('b'); sys.stdout.flush()\n"
        "sys.stdout.unregister_hook(hook); print('c')"
    )
    assert (await house.run(code)).stdout == "a\nb\nc\n"


async def test_captured_output_is_not_output(house: House) -> None:
    code = (
        "import contextlib, io\nfrom IPython.utils.io import capture_output\n"
        "with contextlib.redirect_stdout(io.StringIO()) as one: print('a')\n"
        "with capture_output() as two: print('b'); display(1)\nprint(repr(one.getvalue() + two.stdout), len(two.outputs))"
    )
    run = await house.run(code)
    assert (run.stdout, run.results) == ("'a\\nb\\n' 1\n", [])


async def test_messages_without_a_topic_keep_their_place_too(house: House) -> None:
    code = (
        "kernel = get_ipython().kernel\nfor n in range(3000):\n"
        "    kernel.send_response(kernel.iopub_socket, 'display_data', {'data': {'text/plain': n}, 'metadata': {}})\n"
        "    if n % 1000 == 0: print(n)"
    )
    found = told(await events(house.start(code)))
    assert [at for at, text in enumerate(found) if not text.startswith("<")] == [1, 1002, 2003]


async def test_output_comes_while_the_run_goes_on(house: House) -> None:
    gate = Path(house.folder, "gate")
    os.mkfifo(gate)
    execution = house.start("print('a'); subprocess.run('echo b; cat gate', shell=True); print('d')")
    text = ""
    async for event in events_of(execution):
        if isinstance(event, Stdout):
            text += event.text
        if text == "a\nb\n":
            await asyncio.to_thread(gate.write_text, "c\n")
            text += "and "
    assert text == "a\nb\nand c\nd\n"


async def test_output_after_a_result_comes_although_nothing_else_in_the_kernel_can_run(house: House) -> None:
    """The number stands before the text, and the thread that would send it never gets the interpreter's lock."""
    await house.context("locked")
    execution = house.start("display(7); print('shown', flush=True); sum(range(10**12))", context="locked")
    await seen(execution, Stdout)
    assert execution.info().status == "running"
    await execution.interrupt(who="test")
    run = await house.result(execution)
    assert (run.stdout, run.end.state) == ("shown\n", "lost")
    await house.contexts.delete("locked")


# --- whenever they write


async def test_threads_keep_their_run(house: House) -> None:
    first = house.start("gate = threading.Event()\ndef late():\n    gate.wait(); print('late'); display(1)\n"
                        "t = threading.Thread(target=late); t.start()")  # fmt: skip
    await house.result(first)
    second = await house.run("print('mine'); gate.set(); t.join()")
    assert second.stdout == "mine\n"
    assert second.results == []
    assert await late_text(first) == "late\n"


async def test_threads_of_threads_keep_their_run(house: House) -> None:
    code = (
        "gate = threading.Event()\nclass Late(threading.Thread):\n    def run(self):\n        gate.wait(); print('late')\n"
        "def start():\n    inner.start()\ninner = Late(); outer = threading.Timer(0, start); outer.start(); outer.join()"
    )
    first = house.start(code)
    await house.result(first)
    assert (await house.run("gate.set(); inner.join()")).stdout == ""
    assert await late_text(first) == "late\n"


async def test_a_thread_that_raises_says_so_in_its_run(house: House) -> None:
    first = house.start(
        "gate = threading.Event()\ndef fail():\n    gate.wait(); 1/0\nt = threading.Thread(target=fail); t.start()"
    )
    await house.result(first)
    assert (await house.run("gate.set(); t.join()")).stderr == ""
    assert "ZeroDivisionError" in await late_text(first, stream=Stderr, ending="division by zero\n")


async def test_children_of_a_thread_keep_its_run(house: House) -> None:
    code = (
        "gate = threading.Event()\ndef late():\n    gate.wait(); os.environ['X'] = 'x'; print('a')\n"
        "    subprocess.run('echo b; echo B >&2', shell=True); subprocess.run('echo c >&2', shell=True, stderr=subprocess.STDOUT)\n"
        "    pid = os.fork()\n    if pid == 0: os.write(1, b'd\\n'); os._exit(0)\n    os.waitpid(pid, 0); print('e', end='!')\n"
        "t = threading.Thread(target=late); t.start()"
    )  # fmt: skip
    first = house.start(code)
    await house.result(first)
    second = await house.run("gate.set(); t.join(); print('mine'); subprocess.run(['echo', 'my child'])")
    assert (second.stdout, second.stderr) == ("mine\nmy child\n", "")
    assert await late_text(first, ending="!") == "a\nb\nc\nd\ne!"
    assert await late_text(first, stream=Stderr) == "B\n"


async def test_children_keep_the_run_that_started_them(house: House) -> None:
    first = house.start("child = subprocess.Popen(['sh', '-c', 'read x; echo $x'], stdin=subprocess.PIPE)")
    await house.result(first)
    second = await house.run("child.communicate(b'late\\n'); print(child.wait())")
    assert second.stdout == "0\n"
    assert await late_text(first) == "late\n"


async def test_tasks_and_callbacks_keep_their_run(house: House) -> None:
    code = (
        "gate = asyncio.Event()\nasync def late():\n    await gate.wait(); print('task')\n"
        "    asyncio.get_running_loop().call_soon(print, 'callback'); await asyncio.sleep(0)\n"
        "    await (await asyncio.create_subprocess_exec('echo', 'child')).wait()\n"
        "task = asyncio.create_task(late())"
    )
    first = house.start(code)
    await house.result(first)
    second = await house.run("gate.set(); await task; print('mine')")
    assert second.stdout == "mine\n"
    assert await late_text(first, ending="child\n") == "task\ncallback\nchild\n"


async def test_late_output_of_an_idle_context_comes_too(house: House) -> None:
    first = house.start("threading.Timer(0.05, print, ['late']).start()")
    run = await house.result(first)
    assert run.stdout == ""
    assert await late_text(first) == "late\n"


async def test_exit_handlers_belong_to_the_last_run(house: House) -> None:
    context = await house.context("leaving")
    last = house.start("import atexit; atexit.register(print, 'bye')", context="leaving")
    await house.result(last)
    await house.contexts.delete(context.id)
    assert await late_text(last) == "bye\n"


async def test_a_notebook_gets_late_output_under_the_old_parent(house: House) -> None:
    context = await house.context("notebook")
    listener = Listener()
    request = cell("import threading; gate = threading.Event()\n"
                   "threading.Thread(target=lambda: (gate.wait(), print('late'))).start()")  # fmt: skip
    execution = submit(house, context, request, listener)
    await listener.until(lambda: listener.ends)
    await house.result(submit(house, context, cell("gate.set()"), Listener()))
    await listener.until(lambda: "stream" in listener.kinds("iopub"))
    kinds = listener.kinds("iopub")
    assert kinds.index("stream") > kinds.index("status", kinds.index("execute_input"))
    shown = [message for _, message in listener.messages if message.msg_type == "stream"]
    assert "".join(message.body()["text"] for message in shown).startswith("late")
    assert all(message.parent_header == request.header for message in shown)
    assert await late_text(execution) == "late\n"
    await house.contexts.delete("notebook")


# --- ends that leave no time


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(3)",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 11)",
        "import ctypes; ctypes.string_at(0)",
        "os.abort()",
    ],
)
async def test_what_was_written_before_a_sudden_end_is_kept(house: House, end: str) -> None:
    await house.context("doomed")
    code = f"import os; print('last', end=' '); os.write(1, b'words'); os.system('echo too >&2'); {end}"
    run = await house.run(code, context="doomed")
    assert (run.stdout, run.end.state) == ("last words", "lost")
    assert run.stderr.startswith("too\n")
    await house.contexts.delete("doomed")


async def test_a_fault_handler_writes_to_the_run(house: House) -> None:
    await house.context("doomed")
    await house.run("import faulthandler; faulthandler.enable()", context="doomed")
    run = await house.run("print('a'); import ctypes; ctypes.string_at(0)", context="doomed")
    assert run.stdout == "a\n"
    assert "Segmentation fault" in run.stderr
    await house.contexts.delete("doomed")


async def test_a_great_deal_before_a_sudden_end_is_kept(house: House) -> None:
    await house.context("doomed")
    run = await house.run("import os; print('x' * 5_000_000); os._exit(0)", context="doomed")
    assert len(run.stdout) == 5_000_001
    await house.contexts.delete("doomed")


# --- whatever they write


async def test_bytes_that_are_no_text(house: House) -> None:
    code = "os.write(1, b'\\xf0\\x9f'); time.sleep(0.05); os.write(1, b'\\x98\\x80|\\xff|\\0|\\xc3'); os.write(1, b'|');"
    assert (await house.run(code)).stdout == "\U0001f600|�|\0|�|"


@pytest.mark.parametrize("text", ["a\\ud800b", "\\0", "\\U0001f600" * 3, "\\ufffd", "\\x1b[31mred", "é"])
async def test_text_that_is_out_of_the_ordinary(house: House, text: str) -> None:
    shown = text if "ud800" in text else ast.literal_eval(f'"{text}"')
    assert (await house.run(f'print("{text}", end="")')).stdout == shown


async def test_characters_over_the_edges_of_pieces_are_whole(house: House) -> None:
    run = await house.run("for n in range(4): print('x' * n + '\\U0001f600' * 50_000)")
    assert run.stdout == "".join("x" * n + "\U0001f600" * 50_000 + "\n" for n in range(4))


async def test_a_line_of_many_megabytes_is_whole(house: House) -> None:
    execution = house.start("print('é' * 4_000_000)")
    found = await events(execution)
    assert sum(len(event.text) for event in found if isinstance(event, Stdout)) == 4_000_001


async def test_a_hundred_megabytes_are_counted_and_the_kernel_goes_on(house: House) -> None:
    execution = house.start("print('x' * 100_000_000)")
    run = await house.result(execution)
    assert run.usage["stdout_bytes"] == 100_000_001
    assert run.truncated["stdout"].total_bytes == 100_000_001
    assert (await house.run("1 + 1")).value == 2


async def test_many_small_prints_arrive_in_order(house: House) -> None:
    run = await house.run("for i in range(20_000): print(i)")
    assert run.stdout.split() == [str(i) for i in range(20_000)]


async def test_lines_of_threads_at_the_same_time_are_whole(house: House) -> None:
    code = (
        "def work(name):\n    for _ in range(500): sys.stdout.write(name * 80 + '\\n')\n"
        "ts = [threading.Thread(target=work, args=(n,)) for n in 'abcd']\nfor t in ts: t.start()\nfor t in ts: t.join()"
    )
    lines = (await house.run(code)).stdout.splitlines()
    assert sorted(lines) == sorted(name * 80 for name in "abcd" for _ in range(500))


async def test_progress_is_raw_while_live_and_collapsed_where_it_is_kept(house: House) -> None:
    run = await house.run("for i in range(3): print(f'\\r{i}0 %', end=''); sys.stdout.flush()\nprint()")
    assert run.stdout == "20 %\n"
    assert "".join(entry.text for entry in run.logs) == "\r00 %\r10 %\r20 %\n"


async def test_a_pipe_that_a_child_made_non_blocking_loses_nothing(house: House) -> None:
    run = await house.run("os.set_blocking(1, False); print('x' * 1_000_000)")
    assert len(run.stdout) == 1_000_001


async def test_something_else_than_text_is_refused(house: House) -> None:
    run = await house.run("sys.stdout.write(b'x')")
    assert run.error is not None
    assert run.error.name == "TypeError"


# --- what is held, and what it costs


async def test_a_thousand_runs_leave_nothing(house: House) -> None:
    await house.run("def held(): return len(os.listdir('/proc/self/fd')), threading.active_count()")
    before = (await house.run("held()")).value
    ours = len(os.listdir("/proc/self/fd"))
    for _ in range(1000):
        execution = house.start("1 + 1")
        await execution.wait()
    after = (await house.run("held()")).value
    assert after[0] <= before[0]
    assert after[1] == before[1]
    assert len(os.listdir("/proc/self/fd")) <= ours + 130  # the last ones are looked after a moment later


async def test_runs_whose_children_go_on_are_let_go_with_them(house: House) -> None:
    await house.run("children = []")
    runs = [
        house.start("children.append(subprocess.Popen(['cat'], stdin=subprocess.PIPE));") for _ in range(5)
    ]
    for each in runs:
        await house.result(each)
    await house.run("for each in children: each.communicate(b'done\\n')")
    for each in runs:
        assert await late_text(each) == "done\n"


async def test_each_run_is_accounted_for(house: House) -> None:
    code = (
        "x = bytearray(200_000_000); del x; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n"
        "subprocess.run([sys.executable, '-S', '-c', 'sum(range(10**6))']); print('é'); print('four', file=sys.stderr)"
    )
    usage = (await house.run(code)).usage
    assert usage["wall"] >= usage["cpu_user"] * 0.5 > 0
    assert usage["cpu_user"] + usage["cpu_system"] > 0.09
    assert (usage["stdout_bytes"], usage["stderr_bytes"]) == (3, 5)
    assert usage["peak_memory"] > 200_000_000
    after = (await house.run("1")).usage
    assert after["peak_memory"] < 200_000_000
    assert (after["stdout_bytes"], after["stderr_bytes"]) == (0, 0)


async def test_a_run_that_dies_has_its_output_counted(house: House) -> None:
    await house.context("doomed")
    run = await house.run("import os; print('abc'); os._exit(1)", context="doomed")
    assert run.usage["stdout_bytes"] == 4
    await house.contexts.delete("doomed")


async def test_output_of_a_comm_is_that_of_its_message(house: House) -> None:
    context = await house.context("comms")
    code = "def opened(comm, msg):\n    print('opened')\nget_ipython().kernel.comm_manager.register_target('t', opened)"
    execution = house.start(code, context="comms")
    await house.result(execution)
    listener = Listener()
    opening = new_message("comm_open", {"comm_id": "1", "target_name": "t", "data": {}}, session="front")
    context.send("shell", opening, listener)
    await listener.until(lambda: "stream" in listener.kinds("iopub"))
    assert [m.body()["text"] for _, m in listener.messages if m.msg_type == "stream"] == ["opened\n"]
    assert not [event for event in await events(execution) if isinstance(event, Stdout)]
    await house.contexts.delete("comms")


async def test_libraries_are_not_loaded_for_those_who_do_not_use_them(house: House) -> None:
    await house.context("lean")
    code = "import sys; [name for name in ('matplotlib', 'numpy', 'pandas') if name in sys.modules]"
    assert (await house.run(code, context="lean")).value == []
    await house.contexts.delete("lean")
