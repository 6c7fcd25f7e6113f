"""Processes through the SDK: what they write, what they read, waits, signals, records."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host
from sandcell.events import Ended, Gap, Started, Stderr, Stdout
from sandcell.logs import text_of
from sandcell_container.end import KillReport

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell_container.end import End

SERVER = "import http.server; http.server.HTTPServer(('127.0.0.1', {port}), http.server.SimpleHTTPRequestHandler).serve_forever()"


@pytest.fixture(autouse=True)
def cleaned(sandbox: Sandbox) -> Generator[None]:
    yield
    sandbox.kill_all()
    sandbox.clean_processes()


def code_of(caught: pytest.ExceptionInfo[SandcellError]) -> ErrorCode:
    return caught.value.code


# --- what it is


def test_a_process_is_what_was_asked_for(sandbox: Sandbox) -> None:
    job = sandbox.start_process("echo $A $PWD; exit 3", id="job", cwd="/tmp", env={"A": "1"})
    assert (job.id, job.command, job.cwd, job.session_id) == ("job", "echo $A $PWD; exit 3", "/tmp", None)
    assert (job.status, job.end) == ("running", None)
    assert job.pid > 1
    assert abs(job.started_at - time.time()) < 10
    end = job.wait(20)
    assert (end.cause, end.code) == ("exited", 3)
    assert (job.status, job.end) == ("ended", end)
    assert job.output() == "1 /tmp\n"
    assert sandbox.process("job").refresh().end == end


def test_words_are_no_shell_line(sandbox: Sandbox) -> None:
    job = sandbox.start_process(["printf", "%s|", "$HOME", "a b", "\udcff"])
    job.wait(20)
    assert job.output() == "$HOME|a b|\ufffd|"


def test_a_repeated_start_is_the_same_process_and_another_is_refused(sandbox: Sandbox) -> None:
    first = sandbox.start_process("echo x >> counted; sleep 50", id="job")
    assert sandbox.start_process("echo x >> counted; sleep 50", id="job").pid == first.pid
    with pytest.raises(SandcellError) as caught:
        sandbox.start_process("true", id="job")
    assert code_of(caught) is ErrorCode.EXISTS
    first.kill(0)
    assert sandbox.files.read("counted") == "x\n"
    first.remove()
    assert sandbox.start_process("true", id="job").wait(20).code == 0


def test_it_runs_until_its_tree_has_settled(sandbox: Sandbox) -> None:
    sandbox.exec("mkfifo gate", check=True)
    job = sandbox.start_process("(setsid sh -c 'read line < gate; echo late' &); echo early; exit 4")
    job.wait_for_log("early", timeout=20)
    with pytest.raises(SandcellError) as caught:
        job.wait(0.2)
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    assert job.refresh().status == "running"
    sandbox.exec("echo go > gate", check=True)
    assert job.wait(20).code == 4
    assert job.output() == "early\nlate\n"


def test_it_outlives_the_handle_that_started_it(sandbox: Sandbox) -> None:
    with Sandbox.connect(sandbox.name) as other:
        pid = other.start_process("sleep 50", id="lasting").pid
    job = sandbox.process("lasting")
    assert (job.pid, job.status) == (pid, "running")
    assert [each.id for each in sandbox.processes(status="running")] == ["lasting"]


# --- what it writes


def test_events_come_as_they_are_made_and_a_cursor_gives_the_rest(sandbox: Sandbox) -> None:
    job = sandbox.start_process("echo one; echo err >&2; read line; echo two; exit 5", stdin=True)
    seen = list[Any]()
    for event in job.follow():
        seen.append(event)
        if {Stdout, Stderr} <= {type(each) for each in seen}:
            break
    assert isinstance(seen[0], Started)
    job.write("go\n")
    rest: list[Any] = list(job.follow(seen[-1].cursor))
    assert [type(each) for each in rest] == [Stdout, Ended]
    assert (rest[0].text, rest[1].end.code) == ("two\n", 5)
    assert text_of(seen) in {"one\nerr\n", "err\none\n"}
    assert [each.cursor for each in job] == [each.cursor for each in (*seen, *rest)]


def test_characters_are_whole_whatever_the_pieces_and_cursors(sandbox: Sandbox) -> None:
    text = "aé你🙂"
    script = "import sys, time\nfor byte in sys.argv[1].encode():\n  sys.stdout.buffer.write(bytes([byte])); sys.stdout.flush(); time.sleep(0.002)"
    job = sandbox.start_process([sandbox.info().python, "-c", script, text])
    events = list(job.follow())
    assert text_of(events) == text
    for place, event in enumerate(events):
        assert text_of(events[: place + 1]) + text_of(job.follow(event.cursor)) == text
    cursor, pages = None, ""
    for _ in range(100):
        page = job.logs(cursor, limit=1)
        pages, cursor = pages + page.text, page.next_cursor
        if page.done:
            break
    assert pages == text


def test_bytes_that_are_no_text_are_told_as_such(sandbox: Sandbox) -> None:
    job = sandbox.start_process(r"printf 'a\377b\303'")
    job.wait(20)
    assert job.output() == "a\ufffdb\ufffd"


def test_pages_have_limits_streams_and_tails(sandbox: Sandbox) -> None:
    job = sandbox.start_process("seq 100; echo err >&2")
    job.wait(20)
    tail = job.logs(tail=3, stream="stdout")
    assert (tail.text, tail.done, tail.truncated) == ("98\n99\n100\n", True, True)
    assert job.logs(tail=0).text == ""
    assert job.logs(stream="stderr").text == "err\n"
    whole = job.logs()
    assert (whole.done, whole.truncated) == (True, False)
    assert sorted(whole.text.split()) == sorted([*map(str, range(1, 101)), "err"])
    after = job.logs(whole.next_cursor)
    assert (after.events, after.done) == ([], True)


def test_output_of_both_streams(sandbox: Sandbox) -> None:
    job = sandbox.start_process("seq 5; echo err >&2")
    job.wait(20)
    assert (job.output(), job.output("stderr")) == ("1\n2\n3\n4\n5\n", "err\n")


def test_much_output_is_returned_page_by_page(sandbox: Sandbox) -> None:
    job = sandbox.start_process("seq 1000000")
    job.wait(30)
    assert job.output() == "".join(f"{number}\n" for number in range(1, 1_000_001))


def test_what_nobody_reads_is_dropped_and_told(sandbox: Sandbox) -> None:
    job = sandbox.start_process(["head", "-c", str(100 * 2**20), "/dev/zero"])
    job.wait(30)
    events = list(job.follow())
    lost = sum(each.bytes for each in events if isinstance(each, Gap))
    kept = sum(len(each.text) for each in events if isinstance(each, Stdout))
    assert 60 * 2**20 < kept < 70 * 2**20
    assert abs(lost + kept - 100 * 2**20) < 100, "the first entry is lost too"
    assert job.logs().truncated
    assert "are no longer kept" in job.output()[:60]


def test_a_process_that_must_not_lose_waits_until_somebody_reads(sandbox: Sandbox) -> None:
    size = 100 * 2**20
    job = sandbox.start_process(["head", "-c", str(size), "/dev/zero"], on_full="block")
    with pytest.raises(SandcellError) as caught:
        job.wait(1)
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    assert sum(len(each.text) for each in job.follow() if isinstance(each, Stdout)) == size


# --- what it reads


def test_input_of_any_size_arrives_and_ends(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 20_000
    job = sandbox.start_process("wc -c; cat > copy < /dev/null", stdin=True)
    job.write(data)
    job.write("é")
    job.close_stdin()
    job.close_stdin()
    assert job.wait(20).code == 0
    assert job.output() == f"{len(data) + 2}\n"
    with pytest.raises(SandcellError) as caught:
        job.write("x")
    assert code_of(caught) is ErrorCode.LOST


def test_input_that_nobody_reads_says_how_much_was_taken(sandbox: Sandbox) -> None:
    job = sandbox.start_process("sleep 50", stdin=True)
    with pytest.raises(SandcellError) as caught:
        job.write(b"x" * 3_000_000, timeout=0.3)
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    assert "65536 of 3000000 bytes" in caught.value.message
    assert caught.value.details["written"] == 65536


def test_without_input_there_is_none(sandbox: Sandbox) -> None:
    job = sandbox.start_process("sleep 50")
    with pytest.raises(SandcellError) as caught:
        job.write("x")
    assert code_of(caught) is ErrorCode.INVALID_ARGUMENT


# --- waits


def test_waiting_for_a_line_that_came_or_comes(sandbox: Sandbox) -> None:
    job = sandbox.start_process("echo listening on 8080; read line; echo got $line >&2; sleep 50", stdin=True)
    found = job.wait_for_log(r"on (?P<port>\d+)", timeout=20)
    assert (found.text, found.line, found.stream) == ("on 8080", "listening on 8080", "stdout")
    assert (found.groups, found.named) == (("8080",), {"port": "8080"})
    assert job.wait_for_log(re.compile("LISTEN", re.IGNORECASE), timeout=20).text == "listen"
    with pytest.raises(SandcellError) as caught:
        job.wait_for_log("got", timeout=0.2)
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    job.write("it\n")
    assert job.wait_for_log("got (.*)", timeout=20).groups == ("it",)


def test_a_prompt_is_a_line_too_and_a_half_number_is_not_the_number(sandbox: Sandbox) -> None:
    job = sandbox.start_process(
        "printf 'port 80'; sleep 0.03; printf '80'; printf '\\nName: '; read name", stdin=True
    )
    assert job.wait_for_log(r"port (\d+)", timeout=20).groups == ("8080",)
    assert job.wait_for_log("Name: $", timeout=20).line == "Name: "


def test_what_ends_before_it_said_so_is_a_clear_error(sandbox: Sandbox) -> None:
    job = sandbox.start_process("seq 20; echo boom >&2; exit 3")
    with pytest.raises(SandcellError) as caught:
        job.wait_for_log("ready", timeout=20)
    assert code_of(caught) is ErrorCode.COMMAND_FAILED
    assert "exit code 3" in str(caught.value) and "'ready'" in str(caught.value)
    assert caught.value.details["exit_code"] == 3
    assert {"20", "boom"} <= set(caught.value.details["last_lines"])


def test_waiting_for_a_port(sandbox: Sandbox) -> None:
    job = sandbox.start_process([sandbox.info().python, "-c", SERVER.format(port=8211)])
    assert job.wait_for_port(8211, timeout=20).status is None
    assert job.wait_for_port(8211, timeout=20, http="/").status == 200
    with pytest.raises(SandcellError) as caught:
        job.wait_for_port(8211, timeout=0.3, http="/missing")
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    failing = sandbox.start_process("echo no such module >&2; exit 1")
    with pytest.raises(SandcellError) as caught:
        failing.wait_for_port(8212, timeout=20)
    assert code_of(caught) is ErrorCode.COMMAND_FAILED
    assert caught.value.details["last_lines"] == ["no such module"]


def test_a_wait_that_is_over_leaves_it_running(sandbox: Sandbox) -> None:
    job = sandbox.start_process("sleep 50")
    began = time.monotonic()
    with pytest.raises(SandcellError) as caught:
        job.wait(0.1)
    assert time.monotonic() - began < 5
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    assert job.refresh().status == "running"


# --- signals and ends


def test_signals_by_name_and_number(sandbox: Sandbox) -> None:
    for given in ("HUP", "SIGHUP", "hup", 1, "1", signal.SIGHUP):
        job = sandbox.start_process(["sleep", "50"])
        job.signal(given)
        end = job.wait(20)
        assert (end.cause, end.signal) == ("signaled", 1)
        job.signal(given)
    for odd in ("NOPE", 0, 65, "SIG"):
        with pytest.raises(SandcellError) as caught:
            job.signal(odd)
        assert code_of(caught) is ErrorCode.UNKNOWN_SIGNAL


def test_kill_ends_the_tree_and_reports(sandbox: Sandbox) -> None:
    job = sandbox.start_process("sleep 50 & trap 'exit 7' TERM; echo up; wait")
    job.wait_for_log("up", timeout=20)
    assert job.kill() == KillReport(killed=2, survived=0)
    end = job.wait(1)
    assert (end.cause, end.code, end.who) == ("killed", 7, "sdk")
    assert job.kill() == KillReport()
    stubborn = sandbox.start_process("trap '' TERM; echo up; while :; do sleep 0.1; done")
    stubborn.wait_for_log("up", timeout=20)
    began = time.monotonic()
    stubborn.kill(grace=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert stubborn.wait(1).signal == signal.SIGKILL


def test_a_timeout_ends_it(sandbox: Sandbox) -> None:
    job = sandbox.start_process("echo begun; sleep 50 & sleep 50", timeout=0.3)
    end = job.wait(20)
    assert (end.cause, job.output()) == ("timeout", "begun\n")


def test_a_limit_on_memory_holds_and_says_what_does_not(sandbox: Sandbox) -> None:
    greedy = "bytearray(300 * 2**20)"
    job = sandbox.start_process([sandbox.info().python, "-c", greedy], memory="200MiB")
    assert any("each process" in each for each in job.warnings)
    assert job.wait(20).code == 1
    assert "MemoryError" in job.output("stderr")
    assert sandbox.start_process([sandbox.info().python, "-c", greedy]).wait(20).code == 0
    with pytest.raises(SandcellError) as caught:
        sandbox.start_process("true", memory="1KiB")
    assert code_of(caught) is ErrorCode.INVALID_ARGUMENT


# --- records


def test_all_are_ended_and_cleaned(sandbox: Sandbox) -> None:
    running = [sandbox.start_process(["sleep", "50"]) for _ in range(3)]
    sandbox.start_process("true", id="done").wait(20)
    assert sandbox.kill_all() == KillReport(killed=3, survived=0)
    assert {each.refresh().status for each in running} == {"ended"}
    assert len(sandbox.processes()) == 4
    assert sandbox.clean_processes() == 4
    assert sandbox.processes() == []
    with pytest.raises(SandcellError) as caught:
        sandbox.process("done")
    assert code_of(caught) is ErrorCode.NOT_FOUND


def test_a_record_that_is_not_kept_goes_with_its_end_and_its_followers_hear_all(sandbox: Sandbox) -> None:
    job = sandbox.start_process("read line; echo out; exit 2", stdin=True, keep_record=False)
    following = job.follow()
    assert isinstance(next(following), Started)
    job.write("go\n")
    assert [type(each) for each in following] == [Stdout, Ended]
    assert job.wait(20).code == 2
    assert sandbox.processes() == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"cwd": "/missing"}, ErrorCode.CWD_NOT_FOUND),
        ({"env": {"A=": "x"}}, ErrorCode.INVALID_ENV_NAME),
        ({"id": "NO"}, ErrorCode.INVALID_NAME),
        ({"timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"on_full": "explode"}, ErrorCode.INVALID_ARGUMENT),
        ({"on_output": 3}, ErrorCode.INVALID_ARGUMENT),
        ({"memory": "much"}, ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_what_cannot_be_is_refused_and_starts_nothing(
    sandbox: Sandbox, options: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.start_process("true", **options)
    assert code_of(caught) is code
    assert sandbox.processes() == []


@pytest.mark.parametrize("command", ["", [], ["no-such-program"], 3, b"x"])
def test_what_is_no_command_is_refused(sandbox: Sandbox, command: Any) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.start_process(command)
    assert code_of(caught) is ErrorCode.INVALID_ARGUMENT


def test_odd_arguments_are_refused(sandbox: Sandbox) -> None:
    job = sandbox.start_process("sleep 50")
    for refused in (
        lambda: job.logs(limit=0),
        lambda: job.logs("x.1.1", tail=1),
        lambda: job.logs(stream="stdin"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- on purpose
        lambda: job.wait_for_log("("),
        lambda: job.wait_for_port(70_000, timeout=1),
        lambda: job.wait(0),
        lambda: job.kill(-1),
        lambda: job.write(3),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- on purpose
    ):
        with pytest.raises(SandcellError) as caught:
            refused()
        assert code_of(caught) is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(SandcellError) as caught:
        job.logs("x.1.1")
    assert code_of(caught) is ErrorCode.STALE_CURSOR


# --- callbacks


def test_callbacks_are_called_where_the_caller_waits_and_may_use_the_sandbox(sandbox: Sandbox) -> None:
    told = list[Any]()

    def on_output(event: Stdout | Stderr) -> None:
        told.append((type(event), event.text, sandbox.exec("echo again").stdout))

    def on_exit(end: End) -> None:
        told.append(end.code)

    job = sandbox.start_process("echo out; echo err >&2; exit 3", on_output=on_output, on_exit=on_exit)
    assert told == []
    assert job.wait(20).code == 3
    assert sorted(told[:2], key=str) == sorted(
        [(Stdout, "out\n", "again\n"), (Stderr, "err\n", "again\n")], key=str
    )
    assert told[2:] == [3]
    job.wait(20)
    assert len(told) == 3, "each is told once"


def test_a_callback_that_raises_is_heard_and_the_rest_is_told_later(sandbox: Sandbox) -> None:
    told = list[str]()

    def on_output(event: Stdout | Stderr) -> None:
        told.append(event.text)
        if len(told) == 1:
            raise ValueError("not that")

    job = sandbox.start_process("echo one; read line; echo two", stdin=True, on_output=on_output)
    with pytest.raises(ValueError, match="not that"):
        job.wait(20)
    job.write("go\n")
    job.wait(20)
    assert told == ["one\n", "two\n"]


def test_a_wait_with_callbacks_ends_by_its_timeout(sandbox: Sandbox) -> None:
    told = list[str]()
    job = sandbox.start_process("echo out; sleep 50", on_output=lambda event: told.append(event.text))
    with pytest.raises(SandcellError) as caught:
        job.wait(0.3)
    assert code_of(caught) is ErrorCode.WAIT_TIMEOUT
    assert told == ["out\n"]


# --- where it lives


def test_a_sandbox_is_not_idle_while_a_process_runs() -> None:
    engine = the_host().engine("local").engine
    made = Sandbox.create(engine="local", on_release="keep", idle_timeout=0.3)
    made.exec("mkfifo gate", check=True)
    made.start_process("read line < gate", id="lasting")
    made.close()
    assert engine.await_end(made.id, timeout=1) is None, "it runs on"
    with Sandbox.connect(made.id) as again:
        again.exec("echo > gate", check=True)
        again.process("lasting").wait(20)
    assert engine.await_end(made.id, timeout=20) is not None
    engine.remove(made.id)


def test_a_sandbox_without_marks_has_processes_too() -> None:
    """Trees are told apart by keepers there, as in a container."""
    with pytest.warns(UserWarning, match="without any isolation"):
        made = Sandbox.create(engine="process")
    with made as plain:
        job = plain.start_process("(setsid sleep 50 &) ; echo up; sleep 50", memory="256MiB", stdin=True)
        job.wait_for_log("up", timeout=20)
        assert job.kill(grace=1).survived == 0
        assert job.wait(5).cause == "killed"
        flood = plain.start_process(["head", "-c", "20000000", "/dev/zero"], on_full="block")
        assert sum(len(each.text) for each in flood.follow() if isinstance(each, Stdout)) == 20_000_000
