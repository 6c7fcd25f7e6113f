"""The SDK against real sandboxes of the engine `local`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host
from sandcell.events import Ended, Started, Stdout
from sandcell_container.errors import Failed

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell import ExecutionError, Result


# --- code


@pytest.mark.short
def test_a_run_gives_back_what_a_notebook_would_show(sandbox: Sandbox) -> None:
    run = sandbox.run_code("import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (run.text, run.value, run.stdout, run.stderr, run.ok) == ("42", 42, "out\n", "err\n", True)
    assert run.end.cause == "exited"
    assert run.duration >= 0


def test_state_lasts_from_run_to_run(sandbox: Sandbox) -> None:
    first = sandbox.run_code("kept = 41")
    second = sandbox.run_code("kept + 1")
    assert second.value == 42
    assert (second.execution_count or 0) > (first.execution_count or 0)
    assert second.context_id == first.context_id


def test_an_error_of_the_code_is_data(sandbox: Sandbox) -> None:
    run = sandbox.run_code("x = 1\n1 / 0")
    assert not run.ok
    assert run.error is not None
    assert (run.error.name, run.error.line) == ("ZeroDivisionError", 2)


def test_check_raises_with_the_result(sandbox: Sandbox) -> None:
    with pytest.raises(Failed) as caught:
        sandbox.run_code("print('before'); 1 / 0", check=True)
    assert caught.value.code is ErrorCode.CODE_FAILED
    assert caught.value.result.stdout == "before\n"


def test_a_syntax_error_is_an_error(sandbox: Sandbox) -> None:
    run = sandbox.run_code("def (")
    assert run.error is not None
    assert run.error.name == "SyntaxError"


def test_a_plot_comes_as_an_image(sandbox: Sandbox) -> None:
    run = sandbox.run_code(
        "from IPython.display import Image; import base64\nImage(data=b'\\x89PNG\\r\\n\\x1a\\n' + b'0' * 20)"
    )
    assert run.results[0].png is not None
    assert run.images[0].mime == "image/png"


def test_env_and_cwd_hold_for_one_run(sandbox: Sandbox) -> None:
    code = "import os; (os.environ.get('GREETING'), os.getcwd())"
    awkward = 'it\'s "quoted"\n$HOME 😀'
    inside = sandbox.run_code(code, env={"GREETING": awkward}, cwd="/tmp")
    assert list(inside.value) == [awkward, "/tmp"]
    assert list(sandbox.run_code(code).value) == [None, "/workspace"]


def test_a_run_that_takes_too_long_is_ended_and_says_so(sandbox: Sandbox) -> None:
    run = sandbox.run_code("print('begun', flush=True)\nwhile True: pass", timeout=0.5)
    assert run.timed_out
    assert run.stdout == "begun\n"
    assert sandbox.run_code("1").value == 1


def test_callbacks_come_in_order_and_may_use_the_sandbox(sandbox: Sandbox) -> None:
    heard: list[object] = []

    def on_stdout(text: str) -> None:
        heard.append(text)
        heard.append(sandbox.exec(["echo", "inside"]).stdout)

    def on_result(result: Result) -> None:
        heard.append(result.text)

    sandbox.run_code("print('a', flush=True)\n7", on_stdout=on_stdout, on_result=on_result)
    assert heard == ["a\n", "inside\n", "7"]


def test_on_error_hears_the_error(sandbox: Sandbox) -> None:
    heard: list[ExecutionError] = []
    sandbox.run_code("raise KeyError('x')", on_error=heard.append)
    assert [each.name for each in heard] == ["KeyError"]


def test_input_is_asked_of_the_caller(sandbox: Sandbox) -> None:
    asked: list[str] = []

    def on_input(prompt: str) -> str:
        asked.append(prompt)
        return "Ada"

    assert sandbox.run_code("input('name? ')", on_input=on_input).value == "Ada"
    assert asked == ["name? "]


def test_input_without_anybody_to_ask_is_an_error_at_once(sandbox: Sandbox) -> None:
    run = sandbox.run_code("input()")
    assert run.error is not None
    assert run.error.name == "StdinNotImplementedError"


def test_lines_arrive_while_the_run_goes_on(sandbox: Sandbox) -> None:
    """The run waits for a file that is made only after its first line was seen."""
    sandbox.exec("rm -f marker")

    def on_stdout(text: str) -> None:
        if "first" in text:
            sandbox.files.write("marker", "")

    code = """
import os, time
print('first', flush=True)
while not os.path.exists('/workspace/marker'):
    time.sleep(0.01)
print('second')
"""
    run = sandbox.run_code(code, on_stdout=on_stdout, timeout=30)
    assert run.stdout == "first\nsecond\n"


def test_a_callback_that_raises_interrupts_the_run(sandbox: Sandbox) -> None:
    def on_stdout(text: str) -> None:
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match="go"):
        sandbox.run_code("print('go', flush=True)\nimport time; time.sleep(60)", on_stdout=on_stdout)
    assert sandbox.run_code("2", queue_timeout=20).value == 2


def test_fresh_code_knows_nothing_of_before(sandbox: Sandbox) -> None:
    sandbox.run_code("secret = 1")
    run = sandbox.run_code("'secret' in globals()", fresh=True)
    assert run.value is False


# --- executions and contexts


def test_a_started_run_is_followed_by_as_many_as_like(sandbox: Sandbox) -> None:
    live = sandbox.start_code("print('x'); 5")
    events = list(live)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Ended)
    assert live.status == "ended"
    assert live.wait().value == 5
    again = sandbox.execution(live.id)
    cursor = events[0].cursor
    assert [type(each) for each in again.follow(cursor)] == [type(each) for each in events[1:]]
    assert live.id in {each.id for each in sandbox.executions()}


def test_waiting_may_end_before_the_run(sandbox: Sandbox) -> None:
    live = sandbox.start_code("input()")
    with pytest.raises(SandcellError) as caught:
        live.wait(timeout=0.1)
    assert caught.value.code is ErrorCode.WAIT_TIMEOUT
    live.interrupt()
    run = live.wait(timeout=20)
    assert run.end.cause == "interrupted"


def test_the_same_id_is_the_same_run(sandbox: Sandbox) -> None:
    sandbox.run_code("counted = 0")
    first = sandbox.run_code("counted += 1; counted", id="only-once")
    second = sandbox.run_code("counted += 1; counted", id="only-once")
    assert (first.value, second.value) == (1, 1)
    assert sandbox.run_code("counted").value == 1


def test_a_stale_cursor_is_an_explicit_error(sandbox: Sandbox) -> None:
    live = sandbox.start_code("1")
    live.wait()
    with pytest.raises(SandcellError) as caught:
        list(live.follow("other.1.2"))
    assert caught.value.code is ErrorCode.STALE_CURSOR


def test_contexts_do_not_see_each_other(sandbox: Sandbox) -> None:
    one = sandbox.create_context(id="one", cwd="/tmp", env={"WHO": "one"})
    other = sandbox.create_context(id="other")
    one.run_code("x = 1")
    assert one.run_code("import os; (x, os.getcwd(), os.environ['WHO'])").value == [1, "/tmp", "one"]
    assert other.run_code("'x' in globals()").value is False
    assert {"one", "other"} <= {each.id for each in sandbox.contexts()}
    assert sandbox.run_code("x", context="one").value == 1
    one.restart()
    assert one.run_code("'x' in globals()").value is False
    for each in (one, other):
        each.delete()
    with pytest.raises(SandcellError) as caught:
        sandbox.context("one")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_busy_context_may_be_refused(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    live = context.start_code("input()")
    with pytest.raises(SandcellError) as caught:
        context.run_code("1", on_busy="reject")
    assert caught.value.code is ErrorCode.BUSY
    live.interrupt()
    live.wait(timeout=20)
    context.delete()


# --- commands


@pytest.mark.short
def test_a_command_gives_its_output_and_code(sandbox: Sandbox) -> None:
    done = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code, done.ok) == ("out\n", "err\n", 3, False)


def test_words_are_not_interpreted(sandbox: Sandbox) -> None:
    assert sandbox.exec(["echo", "$HOME", "a  b", "*"]).stdout == "$HOME a  b *\n"


def test_a_command_has_cwd_env_and_stdin(sandbox: Sandbox) -> None:
    done = sandbox.exec("pwd; echo $X; cat", cwd="/tmp", env={"X": "1 2"}, stdin="in")
    assert done.stdout == "/tmp\n1 2\nin"


def test_bytes_come_as_they_were(sandbox: Sandbox) -> None:
    done = sandbox.exec(["printf", r"\377\0\n"])
    assert done.stdout_bytes == b"\xff\0\n"


def test_a_failed_command_may_raise(sandbox: Sandbox) -> None:
    with pytest.raises(Failed) as caught:
        sandbox.exec("echo why >&2; false", check=True)
    assert caught.value.code is ErrorCode.COMMAND_FAILED
    assert caught.value.result.stderr == "why\n"
    assert "why" in caught.value.message


def test_a_command_that_takes_too_long_is_ended(sandbox: Sandbox) -> None:
    done = sandbox.exec("echo begun; sleep 60", timeout=0.3)
    assert done.timed_out
    assert done.stdout == "begun\n"


def test_long_output_is_cut_in_the_middle_and_told(sandbox: Sandbox) -> None:
    done = sandbox.exec("seq 100000", max_output="10KiB")
    assert len(done.stdout_bytes) <= 10 * 1024
    assert done.stdout.startswith("1\n2\n")
    assert done.stdout.endswith("99999\n100000\n")
    cut = done.truncated["stdout"]
    assert cut.total_bytes == 588895
    assert cut.bytes == cut.total_bytes - len(done.stdout_bytes)


def test_output_of_a_command_arrives_while_it_runs(sandbox: Sandbox) -> None:
    sandbox.exec("rm -f go")
    heard: list[str] = []

    def on_stdout(text: str) -> None:
        heard.append(text)
        if text == "first\n":
            sandbox.files.write("go", "")

    done = sandbox.exec(
        "echo first; until test -e go; do sleep 0.01; done; echo second", on_stdout=on_stdout, timeout=30
    )
    assert "".join(heard) == done.stdout == "first\nsecond\n"


# --- files


@pytest.mark.short
def test_files_are_written_and_read(sandbox: Sandbox) -> None:
    info = sandbox.files.write("notes/a.txt", "grüße\n", mode=0o600)
    assert (info.path, info.size, info.mode) == ("/workspace/notes/a.txt", 8, 0o600)
    assert sandbox.files.read("notes/a.txt") == "grüße\n"
    assert sandbox.files.read_bytes("/workspace/notes/a.txt") == "grüße\n".encode()
    assert [each.name for each in sandbox.files.list("notes")] == ["a.txt"]
    assert sandbox.files.exists("notes")
    assert not sandbox.files.exists("notes/b")
    assert sandbox.exec("stat -c %U notes/a.txt").stdout == "user\n"


def test_names_may_be_awkward(sandbox: Sandbox) -> None:
    name = "a b/ü & ?#%'\".txt"
    sandbox.files.write(name, b"\0\xff")
    assert sandbox.files.read_bytes(name) == b"\0\xff"
    assert sandbox.files.stat(name).name == name.rpartition("/")[2]


def test_an_empty_file_is_a_file(sandbox: Sandbox) -> None:
    sandbox.files.write("empty", b"")
    assert sandbox.files.read_bytes("empty") == b""


def test_files_of_proc_are_read_whole(sandbox: Sandbox) -> None:
    assert "Linux" in sandbox.files.read("/proc/version")


def test_a_large_file_goes_up_and_down(sandbox: Sandbox, tmp_path: Path) -> None:
    local, back = tmp_path / "up", tmp_path / "down"
    data = os.urandom(2**20) * 32
    local.write_bytes(data)
    assert sandbox.files.upload(local, "large.bin").bytes == len(data)
    sandbox.files.download("large.bin", back)
    assert back.read_bytes() == data


# --- life


@pytest.mark.short
def test_a_block_leaves_nothing(own_registry: None) -> None:
    with Sandbox.create(engine="local") as sandbox:
        name = sandbox.name
        assert name in {each.name for each in Sandbox.list()}
    assert sandbox.status == "removed"
    assert name not in {each.name for each in Sandbox.list()}
    with pytest.raises(SandcellError) as caught:
        sandbox.exec("true")
    assert caught.value.code is ErrorCode.SANDBOX_GONE


def test_a_name_is_found_again_and_its_state_is_there() -> None:
    with Sandbox.create(engine="local", name="shared") as owner:
        owner.run_code("x = 'of the owner'")
        with Sandbox.connect("shared") as attached:
            assert attached.run_code("x").value == "of the owner"
            with pytest.raises(SandcellError) as caught:
                attached.remove()
            assert caught.value.code is ErrorCode.FORBIDDEN
        with Sandbox.get_or_create(name="shared", engine="local") as again:
            assert again.id == owner.id
        assert owner.run_code("1").value == 1


def test_one_name_at_the_same_time_is_one_sandbox() -> None:
    def get(_: int) -> Sandbox:
        return Sandbox.get_or_create(name="together", engine="local")

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(get, range(4)))
    assert len({each.id for each in made}) == 1
    for each in made:
        assert each.exec("true").ok
    for each in made:
        each.close()
    assert "together" not in {each.name for each in Sandbox.list()}


def test_one_that_is_kept_outlives_its_owner() -> None:
    with Sandbox.create(engine="local", name="kept", on_release="keep") as owner:
        owner.run_code("x = 5")
    again = Sandbox.connect("kept")
    assert again.run_code("x").value == 5
    again.close()
    found = the_host().find("kept")
    found.engine.remove(found.record.id)


def test_info_says_what_it_is(sandbox: Sandbox) -> None:
    info = sandbox.info()
    assert (info.id, info.name, info.engine, info.status) == (sandbox.id, sandbox.name, "local", "running")
    assert info.isolation["net"]
    assert "bash" in info.tools


def test_nothing_of_the_host_is_seen(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text("")
    monkeypatch.setenv("PRIVATE_OF_THE_HOST", "1")
    with Sandbox.create(engine="local") as fresh:
        seen = fresh.run_code(f"import os; [os.path.exists({str(tmp_path)!r}), dict(os.environ)]").value
    assert seen[0] is False
    assert "PRIVATE_OF_THE_HOST" not in seen[1]
    assert seen[1]["HOME"] == "/home/user"
    assert "SANDCELL" not in sandbox.exec("env").stdout


# --- programs of every kind


async def test_it_works_inside_a_running_loop(sandbox: Sandbox) -> None:
    """As in a notebook: the caller's thread already runs a loop, which the blocking client does not touch."""
    assert sandbox.run_code("3").value == 3


def test_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    def echo(number: int) -> str:
        return sandbox.exec(["echo", str(number)]).stdout

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(echo, range(32)))
    assert done == [f"{number}\n" for number in range(32)]


async def test_asyncio_programs_await_the_same() -> None:
    heard: list[str] = []

    async def on_stdout(text: str) -> None:
        heard.append(text)

    async with await AsyncSandbox.create(engine="local") as sandbox:
        runs = await asyncio.gather(*(sandbox.exec(["echo", str(number)]) for number in range(8)))
        assert [run.stdout for run in runs] == [f"{number}\n" for number in range(8)]
        run = await sandbox.run_code("print('hi'); 1", on_stdout=on_stdout)
        assert (run.value, heard) == (1, ["hi\n"])
        live = await sandbox.start_code("for i in range(3): print(i, flush=True)")
        text = "".join([event.text async for event in live if isinstance(event, Stdout)])
        assert text == "0\n1\n2\n"
        await sandbox.files.write("a", "b")
        assert await sandbox.files.read("a") == "b"


def test_one_sandbox_serves_one_loop_after_another() -> None:
    sandbox = asyncio.run(AsyncSandbox.create(engine="local"))
    assert asyncio.run(sandbox.run_code("4")).value == 4
    assert asyncio.run(sandbox.exec("true")).ok
    asyncio.run(sandbox.close())
    assert sandbox.status == "removed"


async def test_a_cancelled_run_is_interrupted() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        begun = asyncio.Event()

        def on_stdout(_: str) -> None:
            begun.set()

        run = asyncio.create_task(
            sandbox.run_code("print(1, flush=True); import time; time.sleep(60)", on_stdout=on_stdout)
        )
        await begun.wait()
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        (execution,) = await sandbox.executions()
        assert (await execution.wait(timeout=20)).end.cause == "interrupted"


def test_a_fork_of_the_program_may_use_it_and_leaves_it_alone(sandbox: Sandbox) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with sandbox:
                code = 0 if sandbox.exec(["echo", "child"]).stdout == "child\n" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sandbox.exec(["echo", "parent"]).stdout == "parent\n"


def test_control_c_interrupts_the_run_and_is_raised() -> None:
    program = """
import sys
from sandcell import Sandbox
with Sandbox.create(engine="local") as sandbox:
    try:
        sandbox.run_code("print('go', flush=True)\\nimport time; time.sleep(60)",
                         on_stdout=lambda text: print(text, end="", flush=True))
    except KeyboardInterrupt:
        (run,) = sandbox.executions()
        print(run.wait(timeout=20).end.cause, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(30) == 0


def test_a_sandbox_made_in_a_thread_that_ends_goes_on() -> None:
    made: list[Sandbox] = []
    thread = threading.Thread(target=lambda: made.append(Sandbox.create(engine="local")))
    thread.start()
    thread.join()
    with made[0] as sandbox:
        assert sandbox.run_code("8").value == 8
