"""Host tools: code in the sandbox calls functions of the program that runs it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError, Tool
from sandcell.events import InputRequested, Stdout, ToolCalled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.e2e.conftest import GuestProcess

_SHORT = Tool("wait", "Never answer in time.", None, lambda: time.sleep(0.5), timeout=0.1)


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


async def double(text: str) -> str:
    """Say it twice."""
    await asyncio.sleep(0)
    return text * 2


def add_itself(n: int) -> int:
    return n + n


def fail(kind: str = "ValueError") -> None:
    """Raise."""
    kinds: dict[str, type[Exception]] = {"ValueError": ValueError, "Own": Own, "KeyError": KeyError}
    raise kinds[kind]("no good")  # xyzzy: this line must not arrive


class Own(Exception):
    pass


@dataclass
class Point:
    x: float
    y: float


def points(points: list[Point]) -> dict[str, Any]:
    """Take and return what JSON can say."""
    return {"first": points[0], "nan": float("nan"), "large": 2**70, "keys": {1: 2}}


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox.create(engine="local", tools=[add, double, fail, points]) as made:
        yield made


# --- in Python


@pytest.mark.short
def test_functions_and_coroutine_functions_are_called_with_and_without_await(sandbox: Sandbox) -> None:
    run = sandbox.run_code("(tools.add(1), tools.add(1, b=5), await tools.add.aio(2), tools.double('é'))")
    assert run.value == [2, 6, 3, "éé"], run.error
    assert [(call.name, call.arguments, call.result, call.state) for call in run.tool_calls] == [
        ("add", {"a": 1}, 2, "done"),
        ("add", {"a": 1, "b": 5}, 6, "done"),
        ("add", {"a": 2}, 3, "done"),
        ("double", {"text": "é"}, "éé", "done"),
    ]
    assert all(0 < call.duration < 20 for call in run.tool_calls)


async def test_the_asyncio_client_answers_calls_side_by_side() -> None:
    met = threading.Barrier(2, timeout=20)

    def meet() -> str:
        met.wait()
        return "met"

    async with await AsyncSandbox.create(engine="local", tools=[meet, double]) as sandbox:
        code = "import asyncio\n(await asyncio.gather(tools.meet.aio(), tools.meet.aio()), tools.double('a'))"
        run = await sandbox.run_code(code)
        assert run.value == [["met", "met"], "aa"], run.error
        live = await sandbox.start_code("tools.double('b')")
        assert (await live.wait()).value == "bb"


async def test_a_blocking_sandbox_inside_of_a_running_loop_awaits_its_tools(sandbox: Sandbox) -> None:
    assert sandbox.run_code("tools.double('n')").value == "nn"


def test_arguments_and_results_are_all_that_json_can_say(sandbox: Sandbox) -> None:
    run = sandbox.run_code("r = tools.points([{'x': 1, 'y': 2.5}]); (r, r['large'] == 2**70)")
    assert run.value == [
        {"first": {"x": 1, "y": 2.5}, "nan": None, "large": 2**70, "keys": {"1": 2}},
        True,
    ], run.error


def test_names_schemas_and_help_are_there(sandbox: Sandbox) -> None:
    run = sandbox.run_code("help(tools.add); tools.list()")
    assert "add(a: int, b: int = 1)" in run.stdout
    assert "Add two numbers." in run.stdout
    assert "a: the first" in run.stdout
    first = run.value[0]
    assert (first["name"], first["description"]) == ("add", "Add two numbers.")
    assert first["schema"]["properties"]["a"] == {"type": "integer", "description": "the first"}
    assert sandbox.run_code("'double' in dir(tools)").value is True


def test_the_module_is_the_same_and_other_processes_of_the_run_import_it_too(sandbox: Sandbox) -> None:
    code = (
        "import subprocess, sys, sandcell_tools\nfrom sandcell_tools import add\n"
        "child = 'import sandcell_tools; print(sandcell_tools.add(40))'\n"
        "(add(1), sandcell_tools.tools is tools, subprocess.check_output([sys.executable, '-c', child], text=True))"
    )
    assert sandbox.run_code(code).value == [2, True, "41\n"]


@pytest.mark.parametrize(
    ("kind", "caught"), [("ValueError", "ValueError"), ("KeyError", "KeyError"), ("Own", "ToolError")]
)
def test_an_exception_of_the_host_arrives_with_its_name_and_message_and_nothing_else(
    sandbox: Sandbox, kind: str, caught: str
) -> None:
    code = f"from sandcell_tools import ToolError\ntry:\n    tools.fail({kind!r})\nexcept {caught}: print('caught')\ntools.fail({kind!r})"
    run = sandbox.run_code(code)
    assert run.stdout == "caught\n"
    assert run.error is not None
    assert (run.error.name, run.error.value.strip("'")) == (kind, "no good")
    told = "\n".join(run.error.traceback)
    assert "xyzzy" not in told
    assert __file__ not in told
    failed = run.tool_calls[-1]
    assert (failed.state, failed.error and failed.error.name) == ("failed", kind)


@pytest.mark.parametrize("call", ["add('x')", "add()", "add(1, c=2)", "add(1, 2, 3)", "add(object())"])
def test_arguments_that_do_not_fit_are_refused_by_name(sandbox: Sandbox, call: str) -> None:
    run = sandbox.run_code(f"try: tools.{call}\nexcept TypeError as problem: print(problem)\ntools.{call}")
    assert run.error is not None
    assert run.error.name == "InvalidArguments"
    assert run.stdout.strip() == run.error.value != ""


def test_arguments_are_checked_against_a_schema_of_ones_own(sandbox: Sandbox) -> None:
    schema = {"properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    tool = Tool("get-it", "Get it.", schema, add_itself)
    run = sandbox.run_code("print(tools['get-it'](n=2)); tools['get-it'](n=0)", tools=[tool])
    assert run.stdout == "4\n"
    assert run.error is not None
    assert run.error.value == "0 is less than the minimum of 1 - at `$.n`"


def test_a_wrong_name_says_which_there_are(sandbox: Sandbox) -> None:
    run = sandbox.run_code("tools.ad(1)")
    assert run.error is not None
    assert run.error.name == "UnknownTool"
    assert "did you mean add?" in run.error.value
    assert "double" in run.error.value


@pytest.mark.parametrize("name", ["call", "call_async", "get", "keys", "aio", "name", "tools"])
def test_a_tool_may_have_any_other_name(sandbox: Sandbox, name: str) -> None:
    run = sandbox.run_code(f"tools.{name}()", tools=[Tool(name, "", None, lambda: name)])
    assert run.value == name


def test_a_name_of_the_users_stays(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    assert context.run_code("tools = 5").ok
    assert context.run_code("tools").value == 5
    assert context.run_code("del tools; tools.add(1)").value == 2
    taken = sandbox.create_context()
    taken.run_code("import builtins; builtins.tools = 'mine'", tools=[])
    assert taken.run_code("import sandcell_tools; (tools, sandcell_tools.add(1))").value == ["mine", 2]


def test_a_run_without_tools_has_none(sandbox: Sandbox) -> None:
    fresh = sandbox.create_context()
    bare = fresh.run_code(
        "import os; (os.environ.get('SANDCELL_TOOLS'), 'tools' in dir(__builtins__))", tools=[]
    )
    assert bare.value == [None, False]
    assert fresh.run_code("tools.add(1)").value == 2
    run = fresh.run_code("tools.add(1)", tools=[])
    assert run.error is not None
    assert str(run.error) == "ToolUnavailable: no host tools were given to this run"
    assert fresh.run_code("import os; os.environ.get('SANDCELL_TOOLS')", tools=[]).value is None


def test_a_tool_that_cannot_be_offered_is_refused_before_anything_runs(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.run_code("print('ran')", tools=[print])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "*args" in caught.value.message


# --- in shells and processes


@pytest.mark.short
def test_the_command_calls_tools_from_shells_of_the_run(sandbox: Sandbox) -> None:
    code = """%%bash
sandcell-tool add '{"a": 1, "b": 2}'
sandcell-tool -r double '{"text": "x"}'
echo '{"a": 9}' | sandcell-tool add -
sandcell-tool --list | cut -f1 | tr '\\n' ' '; echo
sandcell-tool --schema add | grep -c integer
for each in 'fail' 'add' 'nothing' 'add [1]' '--wrong'; do sandcell-tool $each 2>>errors; echo $?; done
grep -h ValueError errors; rm errors
(cd / && env -u SANDCELL_TOOLS sandcell-tool add '{"a": 1}' 2>&1); echo $?
"""
    run = sandbox.run_code(code)
    assert run.stdout.splitlines() == [
        "3",
        "xx",
        "10",
        "add double fail points ",
        "1",
        *"12222",
        "sandcell-tool: ValueError: no good",
        "sandcell-tool: ToolUnavailable: no host tools were given to this run",
        "3",
    ], run.stderr


def test_tasks_threads_and_forks_call_the_tools_of_their_run(sandbox: Sandbox) -> None:
    code = """
import asyncio, threading, multiprocessing
got = []
thread = threading.Thread(target=lambda: got.append(tools.add(1)))
thread.start(); thread.join()
got.append(await asyncio.create_task(tools.add.aio(2)))
with multiprocessing.get_context("fork").Pool(1) as pool:
    got += pool.map(tools.add, [3, 4])
got
"""
    assert sandbox.run_code(code).value == [2, 3, 4, 5]


# --- bounds and time


def test_the_clock_of_a_run_stops_while_the_host_works(sandbox: Sandbox) -> None:
    def slow() -> str:
        time.sleep(2.2)
        return "done"

    run = sandbox.run_code("print('so far'); tools.slow()", tools=[slow], timeout=2)
    assert (run.value, run.timed_out) == ("done", False)
    assert sandbox.run_code("tools.add(1)\nwhile True: pass", timeout=1).timed_out


def test_a_run_makes_a_hundred_calls_and_no_more(sandbox: Sandbox) -> None:
    run = sandbox.run_code("for n in range(101): last = tools.add(n)")
    assert len(run.tool_calls) == 100
    assert run.error is not None
    assert run.error.name == "ToolUnavailable"
    assert "100 calls" in run.error.value
    assert sandbox.run_code("last, tools.add(1)").value == [100, 2]  # of another run


def test_what_is_too_large_does_not_travel_and_says_so(sandbox: Sandbox) -> None:
    def give(size: int) -> str:
        return "x" * size

    tools: list[Callable[..., Any]] = [give, double]
    assert sandbox.run_code("len(tools.give(2**20 - 2))", tools=tools).value == 2**20 - 2
    for code in ("tools.give(2**20)", "tools.give(2**25)", "tools.double('x' * 2**20)"):
        run = sandbox.run_code(code, tools=tools)
        assert run.error is not None, code
        assert "bytes of JSON" in run.error.value


def test_a_call_has_a_time_of_its_own(sandbox: Sandbox) -> None:
    run = sandbox.run_code("tools.wait()", tools=[_SHORT])
    assert run.error is not None
    assert str(run.error) == "ToolUnavailable: the host gave wait no answer within 0.1 s"
    assert run.tool_calls[0].state == "abandoned"


def test_a_coroutine_is_cancelled_when_its_time_is_over(sandbox: Sandbox) -> None:
    ends = list[str]()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    run = sandbox.run_code("tools.hang()", tools=[Tool("hang", "", {}, hang, timeout=0.1)])
    assert str(run.error) == "ToolUnavailable: the host gave hang no answer within 0.1 s"
    assert ends == ["cancelled"]


class Stubborn:
    """A tool that does not heed that it is cancelled, until it is told that it may end."""

    def __init__(self) -> None:
        self.may_end = False

    async def hang(self) -> None:
        while not self.may_end:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    @property
    def tool(self) -> Tool:
        return Tool("hang", "", {}, self.hang, timeout=0.1)


def test_a_coroutine_that_does_not_heed_that_is_left(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn()
    try:
        run = sandbox.run_code("tools.hang()", tools=[stubborn.tool])
        assert run.tool_calls[0].state == "abandoned"
        assert "goes on, and is left" in caplog.text
    finally:
        stubborn.may_end = True


async def test_the_asyncio_client_leaves_such_a_coroutine_too(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()
    async with await AsyncSandbox.create(engine="local") as sandbox:
        run = await sandbox.run_code("tools.hang()", tools=[stubborn.tool])
        assert run.tool_calls[0].state == "abandoned"
        assert "goes on, and is left" in caplog.text
    stubborn.may_end = True
    (left,) = asyncio.all_tasks() - {asyncio.current_task()}
    left.cancel()
    await asyncio.wait((left,))


class Leaves(BaseException):
    def __str__(self) -> str:
        raise SystemExit


LEAVERS: dict[str, tuple[BaseException, tuple[str, ...]]] = {
    "exit": (SystemExit(2), ("SystemExit: 2",)),
    "cancel": (asyncio.CancelledError(), ("CancelledError", "RuntimeError: it cancelled itself")),
    "stop": (StopIteration(), ("StopIteration", "RuntimeError: it raised StopIteration")),
    "leave": (Leaves(), ("Leaves",)),
}


def _leavers() -> list[Tool]:
    def fails(problem: BaseException) -> Callable[[], None]:
        def fail() -> None:
            raise problem

        return fail

    return [Tool(name, "", {}, fails(problem)) for name, (problem, _) in LEAVERS.items()]


def test_no_exception_of_a_tool_ends_its_program(sandbox: Sandbox) -> None:
    for name, (_, told) in LEAVERS.items():
        run = sandbox.run_code(f"tools.{name}()", tools=_leavers(), timeout=30)
        assert str(run.error).removesuffix(": ") in told
        assert run.tool_calls[0].state == "failed"


async def test_nor_does_one_end_the_loop_of_an_asyncio_program() -> None:
    async with await AsyncSandbox.create(engine="local", tools=_leavers()) as sandbox:
        for name, (_, told) in LEAVERS.items():
            run = await sandbox.run_code(f"tools.{name}()", timeout=30)
            assert str(run.error).removesuffix(": ") in told
            assert run.tool_calls[0].state == "failed"


def test_a_result_that_has_no_json_form_is_an_error_inside(sandbox: Sandbox) -> None:
    def odd() -> object:
        return object()

    run = sandbox.run_code("tools.odd()", tools=[odd])
    assert run.error is not None
    assert str(run.error) == "TypeError: what it returned has no JSON form: object"


# --- the run's end, and the host's


def test_calls_outside_of_a_live_run_are_refused(sandbox: Sandbox) -> None:
    code = """
import threading
go, kept = threading.Event(), tools
def later():
    go.wait()
    try: kept.add(1)
    except Exception as problem: told.append(f"{type(problem).__name__}: {problem}")
told = []
thread = threading.Thread(target=later); thread.start()
"""
    context = sandbox.create_context()
    assert context.run_code(code).ok
    run = context.run_code("go.set(); thread.join(); told[0]", tools=[])
    assert run.value == "ToolUnavailable: these tools belong to a run that has ended"
    assert not run.tool_calls


def test_the_secret_of_a_run_is_worth_nothing_after_it(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.run_code("import os, subprocess; old = os.environ['SANDCELL_TOOLS']")
    code = """
def call(secret):
    return subprocess.run(
        ["sandcell-tool", "add", '{"a": 1}'],
        env={**os.environ, "SANDCELL_TOOLS": secret}, capture_output=True, text=True,
    )
new = os.environ["SANDCELL_TOOLS"]
(call(new).stdout, call(old).stderr, call(new[:-1] + "x").stderr, old.split(":")[1] == new.split(":")[1])
"""
    refused = "sandcell-tool: ToolUnavailable: these tools belong to a run that has ended\n"
    run = context.run_code(code)
    assert run.value == ["2\n", refused, refused, False]
    assert len(run.tool_calls) == 1


async def test_pending_calls_are_abandoned_and_cancelled_when_a_run_ends() -> None:
    called, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def await_call() -> None:
        await called.wait()

    async with await AsyncSandbox.create(engine="local", tools=[hang, await_call]) as sandbox:
        code = "import threading\nthreading.Thread(target=tools.hang).start()\ntools.await_call(); 'over'"
        run = await sandbox.run_code(code)
        assert run.value == "over"
        states = {(call.name, call.state, call.error and call.error.value) for call in run.tool_calls}
        assert states == {("hang", "abandoned", "the run has ended"), ("await_call", "done", None)}
        assert cancelled.is_set()


def test_an_interrupt_ends_a_call(sandbox: Sandbox) -> None:
    context = sandbox.create_context()

    def stop() -> str:
        context.interrupt()
        calls = (each for each in sandbox.execution("broken-off").follow() if isinstance(each, ToolCalled))
        next(each for each in calls if each.state == "abandoned")
        return "too late"

    run = context.run_code("tools.stop()", tools=[stop], id="broken-off")
    assert run.end.cause == "interrupted"
    assert run.end.state == "kept"
    assert [call.state for call in run.tool_calls] == ["abandoned"]
    assert context.run_code("tools.add(1)").value == 2


_HOST = """
import sys, time
from sandcell import Sandbox
def hang():
    print("called", flush=True)
    time.sleep(600)
sandbox = Sandbox.connect(sys.argv[1])
live = sandbox.start_code(sys.argv[2], tools=[hang], id=sys.argv[3], context="orphans")
if live.id == "followed":
    live.wait()
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["followed", "started"])
def test_a_host_that_goes_away_is_a_clear_error_at_once(sandbox: Sandbox, how: str) -> None:
    sandbox.create_context(id="orphans")
    code = (
        "told = []\nfor n in range(2):\n"
        "    try: tools.hang()\n    except Exception as problem: told.append(str(problem))\ntold"
    )
    line = [sys.executable, "-c", _HOST, sandbox.name, code, how]
    host = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    with host, host.stdout:
        assert host.stdout.readline() == ("called\n" if how == "followed" else "started\n")
        live = sandbox.execution(how)
        next(event for event in live.follow() if isinstance(event, ToolCalled))
        host.send_signal(signal.SIGKILL)
        run = live.wait(timeout=20)
    assert run.value == ["the program whose tools these are is gone"] * 2
    assert [call.state for call in run.tool_calls] == ["abandoned"]


def test_ctrl_c_in_a_tool_interrupts_the_run(sandbox: Sandbox) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sandbox.run_code("tools.interrupted()", tools=[interrupted], id="stopped-by-hand")
    assert sandbox.execution("stopped-by-hand").wait(timeout=20).end.cause == "interrupted"


# --- nested, shared, followed


def test_a_tool_may_use_the_sandbox_and_run_code_in_another_context(sandbox: Sandbox) -> None:
    other = sandbox.create_context()

    def nested(depth: int) -> list[Any]:
        deeper = other.run_code("tools.add(1)", tools=[add]).value
        return [depth, deeper, sandbox.exec("echo -n hi").stdout, sandbox.run_code("1 + 1", fresh=True).value]

    assert sandbox.run_code("tools.nested(7)", tools=[nested]).value == [7, 2, "hi", 2]


def test_in_the_same_context_it_is_busy_and_no_deadlock(sandbox: Sandbox) -> None:
    other = sandbox.create_context()
    told = list[SandcellError]()

    def note(ask: Any) -> None:
        with pytest.raises(SandcellError) as caught:
            ask()
        told.append(caught.value)

    def direct() -> None:
        note(lambda: sandbox.run_code("1"))
        note(lambda: sandbox.context("python").push(x=1))
        note(lambda: sandbox.context("python").pull("x"))

    def by_way() -> None:
        other.run_code(
            "tools.back()", tools=[Tool("back", "", None, lambda: note(lambda: sandbox.run_code("1")))]
        )

    run = sandbox.run_code("tools.direct(); tools.by_way(); 'fine'", tools=[direct, by_way])
    assert run.value == "fine", run.error
    assert [problem.code for problem in told] == [ErrorCode.BUSY] * 4
    assert "waits for the host tool" in told[0].message
    assert sandbox.run_code("2").value == 2


async def test_in_the_same_context_it_is_busy_for_tools_in_tasks_and_threads_too() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:

        async def again() -> str:
            with pytest.raises(SandcellError) as caught:
                await sandbox.run_code("1")
            return caught.value.code.value

        def blocking() -> str:
            with Sandbox.connect(sandbox.name) as same, pytest.raises(SandcellError) as caught:
                same.run_code("1")
            return caught.value.code.value

        run = await sandbox.run_code("(tools.again(), tools.blocking())", tools=[again, blocking])
        assert run.value == ["BUSY", "BUSY"]


def test_a_session_that_waits_for_a_tool_is_busy_for_it(sandbox: Sandbox) -> None:
    told = list[str]()

    def again() -> None:
        session = sandbox.session("bash")
        for ask in (lambda: session.exec("true"), lambda: session.start_process("true")):
            with pytest.raises(SandcellError) as caught:
                ask()
            told.append(caught.value.code)
        sandbox.create_session("python").exec("true")  # the context of this name has no shell

    run = sandbox.run_code("sandcell-tool again", language="bash", tools=[again])
    assert (run.stdout, run.error) == ("null\n", None)
    assert told == ["BUSY", "BUSY"]


def test_what_was_printed_before_a_call_is_heard_before_it(sandbox: Sandbox) -> None:
    heard = list[str]()

    def call(number: int) -> None:
        heard.append(f"call {number}\n")

    code = "for n in range(20): print('before', n); tools.call(n)"
    sandbox.run_code(code, tools=[call], on_stdout=heard.append)
    expected = "".join(f"before {n}\ncall {n}\n" for n in range(20))
    assert "".join(heard) == expected


def test_tools_belong_to_the_client_that_makes_the_run(sandbox: Sandbox) -> None:
    with Sandbox.connect(sandbox.name) as other:
        ours, theirs = Tool("who", "", None, lambda: "ours"), Tool("who", "", None, lambda: "theirs")
        assert sandbox.run_code("tools.who()", tools=[ours]).value == "ours"
        assert other.run_code("tools.who()", tools=[theirs]).value == "theirs"
        run = other.run_code("tools.who()")
        assert run.error is not None
        assert run.error.name == "ToolUnavailable"


def test_a_sandbox_that_is_found_by_its_name_has_the_tools_of_who_finds_it(sandbox: Sandbox) -> None:
    with Sandbox.get_or_create(
        name=sandbox.name, engine="local", tools=[Tool("here", "", None, lambda: 7)]
    ) as same:
        assert same.id == sandbox.id
        assert same.run_code("tools.here()").value == 7
        assert same.create_context().run_code("await tools.here.aio()").value == 7
        assert same.context("python").start_code("tools.here()").wait().value == 7
        assert same.contexts()[0].run_code("tools.here()").value == 7


def test_who_follows_without_the_key_hears_of_calls_and_answers_none(sandbox: Sandbox) -> None:
    live = sandbox.start_code("print(tools.add(1)); tools.add(2)")
    watched = sandbox.execution(live.id)
    heard = list[str]()
    for event in watched.follow():
        if isinstance(event, ToolCalled):
            heard.append(event.state)
            if len(heard) == 1:  # it waits: nobody has answered it
                assert live.wait(timeout=20).value == 3
    assert heard == ["called", "done", "called", "done"]


def test_calls_are_answered_once_however_often_they_are_followed(sandbox: Sandbox) -> None:
    calls = list[int]()

    def count() -> int:
        calls.append(1)
        return len(calls)

    live = sandbox.start_code("print('here'); a = tools.count(); tools.count()", tools=[count])
    for event in live.follow():
        if isinstance(event, Stdout):
            break  # and nobody follows for a while
    with pytest.raises(SandcellError, match="WAIT_TIMEOUT"):
        live.wait(timeout=1e-9)
    assert live.wait(timeout=20).value == 2
    assert [event.state for event in live.follow() if isinstance(event, ToolCalled)] == ["called", "done"] * 2
    assert len(live.wait().tool_calls) == len(calls) == 2


_SOCKETS = "[line.split()[-1] for line in open('/proc/net/unix') if 'sandcell-tools' in line]"


def test_nothing_listens_before_the_first_run_that_has_tools() -> None:
    with Sandbox.create(engine="local") as bare:
        assert bare.run_code(_SOCKETS).value == []
        assert bare.run_code(_SOCKETS, tools=[add]).value


def test_a_flood_of_callers_harms_nobody_else(sandbox: Sandbox) -> None:
    code = r"""
import os, socket
address, secret = os.environ["SANDCELL_TOOLS"].split(":")
kept = []
def knock(said):
    for _ in range(150):
        each = socket.socket(socket.AF_UNIX)
        each.setblocking(False)
        try:
            each.connect("\0" + address)
            each.send(said)
        except OSError:
            pass  # the queue is full
        kept.append(each)
head = '{"secret": "%s", "verb": "call", "name": "add", "size": %d}\n'
for said in ("", "x" * 3000, head % (secret, 2**20) + "[" * 1000, head % ("guessed", 2) + "{}"):
    knock(said.encode())
input()
"""
    other = sandbox.create_context()
    flood = other.start_code(code)
    next(event for event in flood.follow() if isinstance(event, InputRequested))
    assert sandbox.run_code("1 + 1", tools=[]).value == 2
    assert sandbox.exec("echo on").stdout == "on\n"
    flood.send_input("")
    assert flood.wait(timeout=30).ok
    other.run_code("[each.close() for each in kept]", tools=[])
    assert sandbox.run_code("tools.add(1)").value == 2


def test_nothing_is_left_of_calls(sandbox: Sandbox, guest: GuestProcess) -> None:
    sandbox.run_code("for n in range(50): tools.add(n)")
    before = guest.descriptors
    sandbox.run_code("for n in range(100): tools.add(n)")
    assert guest.descriptors <= before + 2
