"""Sessions through the SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import GuestProcess

    from sandcell.client.blocking.session import Session


@pytest.fixture
def session(sandbox: Sandbox) -> Generator[Session]:
    made = sandbox.create_session()
    yield made
    for each in sandbox.sessions():
        each.delete()
    sandbox.clean_processes()


def code_of(caught: pytest.ExceptionInfo[SandcellError]) -> ErrorCode:
    return caught.value.code


def test_state_stays_from_command_to_command(session: Session) -> None:
    session.exec("cd /tmp; x=5; export y=6; f() { echo F$x; }; alias ll='echo LL'; set -o pipefail")
    session.exec("trap 'echo usr' USR1; (until [ -e /tmp/go ]; do sleep 0.01; done; touch /tmp/went) &")
    done = session.exec(
        "pwd; echo $x $(printenv y); f; ll; false | true || echo failed; kill -USR1 $$; touch /tmp/go; wait; ls /tmp/went"
    )
    assert done.stdout == "/tmp\n5 6\nF5\nLL\nfailed\nusr\n/tmp/went\n"
    assert (done.ok, done.exit_code, done.end.state) == (True, 0, "kept")


def test_a_result_is_that_of_exec(session: Session) -> None:
    done = session.exec(r"printf 'out\0\377'; echo err >&2; exit 4")
    assert (done.stdout_bytes, done.stderr, done.exit_code) == (b"out\0\xff", "err\n", 4)
    assert (done.end.cause, done.end.state, done.ok) == ("exited", "lost", False)
    assert session.refresh().status == session.status == "ended"
    assert session.end is not None and session.end.code == 4


def test_what_holds_for_one_command(session: Session) -> None:
    session.exec("mkdir -p /tmp/one/sub; cd /tmp/one; export A=old")
    done = session.exec("basename $PWD; echo $A; cat", cwd="sub", env={"A": "new"}, stdin="typed")
    assert done.stdout == "sub\nnew\ntyped"
    assert session.exec("basename $PWD; echo $A; cat").stdout == "one\nold\n"
    assert session.exec("echo ${A-none}", env={"A": None}).stdout == "none\n"
    with pytest.raises(SandcellError) as caught:
        session.exec("touch /tmp/ran", cwd="no/such")
    assert code_of(caught) is ErrorCode.CWD_NOT_FOUND
    assert session.exec("ls /tmp/ran").exit_code == 2


def test_output_comes_as_it_is_made(session: Session) -> None:
    heard = list[str]()
    done = session.exec(
        "echo one; echo two >&2; printf '\\xe6\\xbc'; printf '\\xa2'",
        on_stdout=heard.append,
        on_stderr=lambda text: heard.append(f"!{text}"),
    )
    assert ("".join(sorted(heard)), done.stdout, done.stderr) == ("!two\none\n漢", "one\n漢", "two\n")


def test_a_callback_may_use_another_session_and_end_the_command(sandbox: Sandbox, session: Session) -> None:
    other = sandbox.create_session("other")
    answers = list[str]()
    session.exec("echo x", on_stdout=lambda _: answers.append(other.exec("echo y").stdout))
    assert answers == ["y\n"]

    def stop(_: str) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        session.exec("echo on; sleep 50; echo no", on_stdout=stop)
    assert session.exec("echo free").stdout == "free\n"


def test_check_raises_what_failed(session: Session) -> None:
    with pytest.raises(SandcellError) as caught:
        session.exec("echo why >&2; (exit 3)", check=True)
    assert code_of(caught) is ErrorCode.COMMAND_FAILED
    assert "exit code 3: why" in caught.value.message


def test_long_output_is_cut_and_kept(sandbox: Sandbox, session: Session) -> None:
    done = session.exec("seq 100000", max_output="4KiB")
    cut = done.truncated["stdout"]
    assert "left out" in done.stdout and cut.path is not None
    assert sandbox.files.read(cut.path).endswith("\n99999\n100000\n")


def test_a_timeout_says_whether_the_session_survived(session: Session) -> None:
    session.exec("x=kept")
    done = session.exec("echo on; sleep 50", timeout=0.3)
    assert (done.stdout, done.timed_out, done.end.state) == ("on\n", True, "kept")
    assert session.exec("echo $x").stdout == "kept\n"
    done = session.exec("trap '' INT; echo on; sleep 50", timeout=0.3)
    assert (done.stdout, done.timed_out, done.end.state) == ("on\n", True, "lost")
    assert session.refresh().status == "ended"


def test_a_timeout_is_that_of_its_command_alone(session: Session) -> None:
    assert session.exec("echo first", timeout=0.2).ok
    assert session.exec("sleep 0.4; echo second").stdout == "second\n"


def test_commands_wait_for_each_other(sandbox: Sandbox, session: Session) -> None:
    session.exec("n=0")

    def count(_: int) -> str:
        return session.exec("m=$n; sleep 0.01; n=$((m+1)); echo $n").stdout

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(count, range(16)))
    assert sorted(done, key=int) == [f"{number}\n" for number in range(1, 17)]


def test_who_waits_has_a_place_and_a_deadline(sandbox: Sandbox, session: Session) -> None:
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(session.exec, "sleep 50")
        while session.refresh().running is None:
            pass
        waiting = pool.submit(session.exec, "echo next")
        while not (known := session.refresh()).queue:
            pass
        assert known.running is not None
        assert (known.status, known.running.command) == ("busy", "sleep 50")
        assert [each.command for each in known.queue] == ["echo next"]
        with pytest.raises(SandcellError) as caught:
            session.exec("echo never", queue_timeout=0.1)
        assert code_of(caught) is ErrorCode.BUSY
        session.interrupt()
        assert running.result(20).end.cause == "interrupted"
        assert waiting.result(20).stdout == "next\n"


def test_an_ended_session_says_how_and_is_restarted(sandbox: Sandbox, session: Session) -> None:
    session.exec("cd /; echo last words; exit 5")
    with pytest.raises(SandcellError) as caught:
        session.exec("true")
    assert code_of(caught) is ErrorCode.SESSION_ENDED
    assert caught.value.details == {"cause": "exited", "exit_code": 5, "last_output": "last words\n"}
    assert sandbox.session(session.id).status == "ended"
    session.restart()
    assert (session.status, session.exec("pwd").stdout) == ("idle", "/workspace\n")


def test_set_env_lasts(session: Session) -> None:
    session.set_env(TOKEN="a'b\n$c", LANG=None)
    assert session.exec('printf %s "$TOKEN"; echo ${LANG-none}').stdout == "a'b\n$cnone\n"
    session.restart()
    assert session.exec('printf %s "$TOKEN"').stdout == "a'b\n$c"
    with pytest.raises(SandcellError) as caught:
        session.set_env(**{"no name": "x"})
    assert code_of(caught) is ErrorCode.INVALID_ENV_NAME


def test_its_files_count_from_its_folder(sandbox: Sandbox, session: Session) -> None:
    session.exec("mkdir -p deep; cd deep")
    session.files.write("a.txt", "data")
    assert session.exec("cat a.txt").stdout == "data"
    assert [each.name for each in session.files.list()] == ["a.txt"]
    assert sandbox.files.read("deep/a.txt") == "data" and session.files.exists("a.txt")
    session.files.remove("a.txt")
    assert not sandbox.files.exists("deep/a.txt")


def test_a_process_begins_with_its_state_and_writes_nothing_back(session: Session) -> None:
    session.exec(
        "mkdir -p /tmp/p; cd /tmp/p; plain=1; export out=2; f() { echo f $plain $out $more; }; alias ll=f; set -u"
    )
    job = session.start_process("f; ll; pwd; plain=9; cd /; echo ${unset}", env={"more": "3"})
    end = job.wait(20)
    assert end.cause == "exited" and end.code != 0
    assert job.output() == "f 1 2 3\nf 1 2 3\n/tmp/p\n"
    assert "unset: unbound variable" in job.output("stderr")
    assert (job.session_id, job.cwd) == (session.id, "/tmp/p")
    assert session.exec("echo $plain ${more-none}; pwd").stdout == "1 none\n/tmp/p\n"
    words = session.start_process(["printenv", "out"])
    assert words.wait(20).code == 0 and words.output() == "2\n"


def test_a_process_of_a_session_waits_for_its_turn_and_outlives_commands(session: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.exec, "sleep 0.3; ready=yes")
        while session.refresh().running is None:
            pass
        job = session.start_process("echo $ready; sleep 50")
        assert job.wait_for_log("yes", timeout=20)
        running.result(20)
    assert session.exec("exit").end.state == "lost"
    assert job.refresh().status == "running"
    assert [each.id for each in session.processes()] == [job.id]
    session.delete()
    assert job.refresh().status == "ended"


def test_deleting_it_may_keep_its_processes(sandbox: Sandbox, session: Session) -> None:
    job = session.start_process("sleep 50")
    session.delete(keep_processes=True)
    assert job.refresh().status == "running"
    job.kill()
    with pytest.raises(SandcellError) as caught:
        session.exec("true")
    assert code_of(caught) is ErrorCode.NOT_FOUND


def test_one_id_is_one_session_for_everybody(sandbox: Sandbox, session: Session) -> None:
    made = sandbox.create_session("shared", cwd="/tmp", env={"A": "1"})
    assert made.exec("x=1; echo $A $PWD").stdout == "1 /tmp\n"
    with Sandbox.connect(sandbox.id) as attached:
        assert attached.session("shared").exec("echo $x").stdout == "1\n"
        assert attached.create_session("shared").exec("echo $x").stdout == "1\n"
        assert {each.id for each in attached.sessions()} == {"shared", session.id}
    with pytest.raises(SandcellError) as caught:
        sandbox.create_session("shared", cwd="/usr")
    assert code_of(caught) is ErrorCode.EXISTS
    with pytest.raises(SandcellError) as caught:
        sandbox.session("none")
    assert code_of(caught) is ErrorCode.NOT_FOUND


def test_fifty_who_create_one_id_make_one_session(sandbox: Sandbox) -> None:
    def make(_: int) -> int:
        return sandbox.create_session("one").refresh().pid

    with ThreadPoolExecutor(16) as pool:
        pids = list(pool.map(make, range(50)))
    assert len(set(pids)) == 1
    sandbox.session("one").delete()


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [
        (["ls"], {}, ErrorCode.INVALID_ARGUMENT),
        (5, {}, ErrorCode.INVALID_ARGUMENT),
        ("a\0b", {}, ErrorCode.INVALID_ARGUMENT),
        ("true", {"timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ("true", {"queue_timeout": -1}, ErrorCode.INVALID_ARGUMENT),
        ("true", {"max_output": 0}, ErrorCode.INVALID_ARGUMENT),
        ("true", {"env": {"a b": "1"}}, ErrorCode.INVALID_ENV_NAME),
        ("true", {"env": {"UID": "1"}}, ErrorCode.INVALID_ENV_NAME),
        ("true", {"on_stdout": 5}, ErrorCode.INVALID_ARGUMENT),
        ("x" * 2_000_000, {}, ErrorCode.TOO_LARGE),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_lost(
    session: Session, command: object, options: dict[str, object], code: ErrorCode
) -> None:
    session.exec("x=kept")
    with pytest.raises(SandcellError) as caught:
        session.exec(command, **options)  # type: ignore[arg-type]  # what a caller might give
    assert code_of(caught) is code
    assert session.exec("echo $x").stdout == "kept\n"


def test_a_program_that_dies_takes_its_command_with_it(sandbox: Sandbox, session: Session) -> None:
    program = f"""
import os
from sandcell import Sandbox
session = Sandbox.connect({sandbox.id!r}).session({session.id!r})
session.exec("echo on; sleep 50; touch /tmp/never", on_stdout=lambda _: os._exit(9))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 9
    assert session.exec("echo free", timeout=20).stdout == "free\n"
    assert session.refresh().starts == 1


def test_nothing_of_a_session_is_left(sandbox: Sandbox, guest: GuestProcess) -> None:
    session = sandbox.create_session("leak")
    session.exec("true", stdin="x")
    session.start_process("true").wait(20)
    session.delete()
    sandbox.clean_processes()
    before = guest.descriptors
    for _ in range(3):
        session = sandbox.create_session("leak")
        session.exec("(setsid sleep 50 &); sleep 50 & true", stdin="x")
        session.start_process("sleep 50")
        session.delete()
    sandbox.clean_processes()
    assert guest.descriptors == before
    assert sandbox.exec("cat /proc/[0-9]*/comm | grep -c sleep").stdout == "0\n"


async def test_the_asyncio_client() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        session = await sandbox.create_session("s")
        await session.exec("x=1")
        results = await asyncio.gather(*(session.exec(f"echo $x {number}") for number in range(5)))
        assert [each.stdout for each in results] == [f"1 {number}\n" for number in range(5)]
        heard = list[str]()

        async def hear(text: str) -> None:
            heard.append((await session.refresh()).id + text)

        await session.exec("echo on", on_stdout=hear)
        assert heard == ["son\n"]
        task = asyncio.create_task(session.exec("sleep 50"))
        while (await session.refresh()).running is None:
            pass
        task.cancel()
        assert (await session.exec("echo free")).stdout == "free\n"
        job = await session.start_process("echo $x")
        assert (await job.wait(20)).code == 0 and await job.output() == "1\n"
        assert [each.id for each in await sandbox.sessions()] == ["s"]


def test_a_sandbox_that_ends_under_a_command_is_told() -> None:
    made = Sandbox.create(engine="local")
    session = made.create_session()
    with pytest.raises(SandcellError) as caught:
        session.exec("echo on; sleep 50", on_stdout=lambda _: made.remove())
    assert code_of(caught) is ErrorCode.SANDBOX_GONE
    assert the_host()
