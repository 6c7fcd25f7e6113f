"""What a program may ask of a live interpreter beside running code: its variables, editor help, objects in and out."""

from __future__ import annotations

import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.events import InputRequested, Stdout

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution

np: Any = importlib.import_module("numpy")
pd: Any = importlib.import_module("pandas")

LIMIT_S = 1.0  # of a question


@pytest.fixture
def context(sandbox: Sandbox) -> Generator[Context]:
    made = sandbox.create_context()
    yield made
    made.delete()


def hold(context: Context) -> Execution:
    """Start a run that runs until it gets a line."""
    live = context.start_code("held = 1; input()")
    next(event for event in live.follow() if isinstance(event, InputRequested))
    return live


# --- variables


def test_variables_are_told(context: Context) -> None:
    context.run_code("import os\nx = [1, 2]\ny = 'text'\n_z = 3\ndef f(a): pass\nclass C: pass\nc = C()")
    found = {variable.name: variable for variable in context.variables()}
    assert list(found) == ["x", "y", "f", "C", "c"]
    assert (found["x"].type, found["x"].shape, found["x"].preview) == ("list", (2,), "[1, 2]")
    assert (found["c"].type, found["c"].preview) == ("C", "<C>")


def test_variables_are_told_while_a_cell_runs(context: Context) -> None:
    live = hold(context)
    assert [variable.name for variable in context.variables()] == ["held"]
    live.send_input("")


def test_no_code_of_the_users_is_run_for_it(context: Context) -> None:
    code = """
class Hostile:
    def __repr__(self): touched.append(1); import time; time.sleep(60)
    __len__ = __str__ = __sizeof__ = __iter__ = __repr__
    @property
    def __class__(self): touched.append(1); return list
    shape = dtype = __class__
touched = []
one, many = Hostile(), [Hostile()] * 1000
huge = 'x' * 300_000_000
"""
    context.run_code(code)
    asked = time.monotonic()
    found = {variable.name: variable for variable in context.variables()}
    assert time.monotonic() - asked < LIMIT_S
    assert all(len(variable.preview) <= 120 for variable in found.values())
    assert found["huge"].shape == (300_000_000,)
    assert context.run_code("touched").value == []


def test_an_interpreter_inside_code_that_lets_nothing_run_says_so(context: Context) -> None:
    live = context.start_code("print('up', flush=True); sum(range(10**12))")
    next(event for event in live.follow() if isinstance(event, Stdout))
    asked = time.monotonic()
    with pytest.raises(SandcellError) as caught:
        for _ in range(20):  # it may not have got there when it is asked first
            asked = time.monotonic()
            context.variables()
    assert caught.value.code is ErrorCode.BUSY
    assert time.monotonic() - asked < LIMIT_S + 1
    live.interrupt()
    live.wait(timeout=20)


# --- completion and inspection


def test_names_are_completed_and_inspected(context: Context) -> None:
    context.run_code("def some_function(a, b=2):\n    'What it does.'\n    return a")
    completion = context.complete("x = some_fun")
    assert "some_function" in completion.matches
    assert (completion.start, completion.end) == (4, 12)
    inspection = context.inspect("some_function")
    assert inspection.found
    assert "What it does." in inspection.text
    assert "\x1b" not in inspection.text
    assert "return a" in context.inspect("some_function", detail_level=1).text
    assert not context.inspect("unknown_name").found
    assert context.complete("unknown_name.x").matches == ()
    assert "some_function" in context.complete("some_fun + 1", 8).matches


def test_a_busy_context_knows_nothing_and_says_so_in_time(context: Context) -> None:
    live = hold(context)
    asked = time.monotonic()
    assert context.complete("hel").matches == ()
    assert not context.inspect("held").found
    assert time.monotonic() - asked < 2 * LIMIT_S + 1
    live.send_input("")
    assert "held" in context.complete("hel").matches


def test_a_completion_that_takes_long_keeps_no_run_waiting(context: Context) -> None:
    context.run_code(
        "import threading\nclass Slow:\n    def __dir__(self):\n        threading.Event().wait()\nslow = Slow(); kept = 1"
    )
    assert context.complete("slow.").matches == ()
    run = context.run_code("kept", timeout=20)  # a timeout would kill what heeds none, with its variables
    assert run.value == 1


def test_questions_to_a_busy_context_do_not_pile_up(context: Context) -> None:
    live = hold(context)
    with ThreadPoolExecutor(8) as pool:
        asked_at_once = pool.map(context.complete, ["hel"] * 8)
        assert [each.matches for each in asked_at_once] == [()] * 8
    asked = time.monotonic()
    for _ in range(50):
        assert context.complete("hel").matches == ()
    assert time.monotonic() - asked < LIMIT_S
    live.send_input("")
    assert live.wait(timeout=20).ok
    assert context.run_code("1").ok
    assert "held" in context.complete("hel").matches


def test_others_are_answered_while_a_context_is_busy(sandbox: Sandbox, context: Context) -> None:
    other = sandbox.create_context()
    live = hold(other)
    context.run_code("mine = 1")
    asked = time.monotonic()
    assert "mine" in context.complete("min").matches
    assert context.inspect("mine").found
    assert time.monotonic() - asked < LIMIT_S
    live.send_input("")
    other.delete()


def test_a_cursor_outside_of_the_code_is_refused(context: Context) -> None:
    for cursor in (-1, 4):
        with pytest.raises(SandcellError) as caught:
            context.complete("abc", cursor)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


# --- objects


def test_objects_go_in_and_come_out(context: Context) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    context.push(plain={"a": [1, None, "é"]}, raw=b"\0\xff", array=np.eye(3), frame=frame)
    assert context.run_code("plain['a'][2], raw[1], float(array.sum()), list(frame.a)").value == [
        "é",
        255,
        3.0,
        [1, 2],
    ]
    context.run_code("array *= 2; frame['c'] = frame.a * 10; plain['new'] = True")
    assert context.pull("plain") == {"a": [1, None, "é"], "new": True}
    assert context.pull("raw") == b"\0\xff"
    assert np.array_equal(context.pull("array"), np.eye(3) * 2)
    pd.testing.assert_frame_equal(context.pull("frame"), frame.assign(c=[10, 20]))


def test_an_exchange_leaves_no_file_and_no_trace(sandbox: Sandbox, context: Context) -> None:
    first = context.run_code("1").execution_count
    files = sandbox.exec("ls -A /tmp").stdout
    context.push(x=1)
    context.pull("x")
    with pytest.raises(SandcellError):
        context.pull("nothing")
    assert context.run_code("[name for name in globals() if 'sandcell' in name.lower()]").value == []
    assert context.run_code("1").execution_count == (first or 0) + 2
    assert sandbox.exec("ls -A /tmp").stdout == files


def test_large_objects_go_through(context: Context) -> None:
    array = np.arange(20_000_000, dtype="int32")
    context.push(large=array)
    assert context.run_code("int(large[-1])").value == 19_999_999
    assert np.array_equal(context.pull("large"), array)


def test_what_comes_out_has_a_bound_in_the_callers_memory(sandbox: Sandbox, context: Context) -> None:
    context.run_code("raw = bytes(50_000_000); text = 'x' * 3_000_000")
    for name, limit in (("raw", "40MiB"), ("text", 2_000_000)):
        with pytest.raises(SandcellError) as caught:
            context.pull(name, max_bytes=limit)
        assert caught.value.code is ErrorCode.TOO_LARGE
        assert caught.value.details["field"] == "max_bytes"
    assert len(context.pull("raw", max_bytes="48MiB")) == 50_000_000
    assert sandbox.exec("find /tmp -name '.sandcell-*'").stdout == ""


def test_a_table_that_user_code_made_unfold_stays_out(context: Context) -> None:
    code = """
import pyarrow, sandcell_runtime.objects as ours
def save(name, value, file):
    table = pyarrow.table({"zeros": [0] * 1_000_000})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_stream(file, table.schema, options=options) as writer: writer.write_table(table)
ours._save_table = save
import pandas; frame = pandas.DataFrame({"a": [1]})
"""
    assert context.run_code(code).ok
    with pytest.raises(SandcellError) as caught:
        context.pull("frame")
    assert caught.value.code is ErrorCode.TOO_LARGE


def test_an_object_waits_for_its_turn(context: Context) -> None:
    live = hold(context)
    waiting = context.start_code("x = 'of the run'")
    live.send_input("")
    context.push(y=2)
    assert context.pull("x") == "of the run"
    assert waiting.wait(timeout=20).ok


@pytest.mark.parametrize("name", ["not a name", "class", "a.b", "1x", "x/../y"])
def test_a_name_that_is_none_is_refused(context: Context, name: str) -> None:
    for attempt in (lambda: context.push(**{name: 1}), lambda: context.pull(name)):
        with pytest.raises(SandcellError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.INVALID_NAME


def test_what_cannot_leave_says_so(context: Context) -> None:
    context.run_code("thing = object(); import numpy; objects = numpy.array([thing])")
    for name in ("thing", "objects"):
        with pytest.raises(SandcellError) as caught:
            context.pull(name)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert caught.value.message.startswith(name)
    with pytest.raises(SandcellError) as caught:
        context.pull("missing")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_context_that_is_not_there_takes_nothing(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.delete()
    for attempt in (lambda: context.push(x=1), lambda: context.pull("x"), context.variables):
        with pytest.raises(SandcellError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_the_same_for_who_awaits() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        context = await sandbox.create_context()
        await context.push(x=[1, 2], array=np.arange(3))
        assert await context.pull("x") == [1, 2]
        assert [each.name for each in await context.variables()] == ["x", "array"]
        assert (await context.complete("arr")).matches
        assert (await context.inspect("array")).found
