"""`exec` as programs use it: what a command may read, what is heard of it, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

DEADLINE = 10.0
LARGE = bytes(range(256)) * 2**16  # 16 MiB: more than a request, a socket and a pipe hold together
WHOLE = str(len(LARGE))


# --- what it is started with


def test_a_line_runs_in_bash_from_the_working_directory(sandbox: Sandbox) -> None:
    done = sandbox.exec("echo ${BASH_VERSION:+bash} $0; pwd; shopt -q expand_aliases || echo plain")
    assert done.stdout == "bash bash\n/workspace\nplain\n"


def test_no_rc_file_is_read(sandbox: Sandbox) -> None:
    sandbox.exec("echo 'echo read' > ~/.bashrc; cp ~/.bashrc ~/.profile")
    assert sandbox.exec("true").stdout == ""
    sandbox.exec("rm ~/.bashrc ~/.profile")


def test_a_variable_may_be_any_text_or_be_taken_away(sandbox: Sandbox) -> None:
    value = 'it\'s "$HOME"\n\\ \udcff 🎉'
    done = sandbox.exec(
        'printf %s "$A"; echo "|${LANG-unset}|${EMPTY-unset}|"', env={"A": value, "LANG": None, "EMPTY": ""}
    )
    assert done.stdout_bytes == value.encode(errors="surrogateescape") + b"|unset||\n"
    assert sandbox.exec("echo $LANG${A-gone}").stdout == "C.UTF-8gone\n"


def test_the_environment_is_the_users_and_no_more(sandbox: Sandbox) -> None:
    names = {line.split("=")[0] for line in sandbox.exec(["env"]).stdout.splitlines()}
    assert names == {"PATH", "HOME", "USER", "LANG", "TERM", "TMPDIR", "SHELL"}


def test_a_relative_folder_counts_from_the_working_directory(sandbox: Sandbox) -> None:
    sandbox.files.mkdir("a folder's")
    assert sandbox.exec("pwd", cwd="a folder's").stdout == "/workspace/a folder's\n"


# --- what it reads


def of_file(path: Path, content: bytes) -> io.BufferedReader:
    path.write_bytes(content)
    return path.open("rb")


@contextmanager
def a_writer(command: list[str]) -> Generator[BinaryIO]:
    """A program of this machine whose output a command reads; it is killed when it is not read any more."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        yield cast("BinaryIO", writer.stdout)
        writer.kill()


GIVEN: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda _: LARGE,
    "a view of bytes": lambda _: memoryview(LARGE),
    "a file in memory": lambda _: io.BytesIO(LARGE),
    "a file": lambda tmp: of_file(tmp / "in", LARGE),
    "an unbuffered file": lambda tmp: of_file(tmp / "in", LARGE).detach(),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_it_reads_all_that_it_is_given_byte_for_byte(sandbox: Sandbox, kind: str, tmp_path: Path) -> None:
    given = GIVEN[kind](tmp_path)
    done = sandbox.exec("cat", stdin=given, max_output="32MiB")
    assert done.stdout_bytes == LARGE
    if not isinstance(given, bytes | memoryview):
        assert not given.closed
        given.close()


@pytest.mark.parametrize("kind", GIVEN)
async def test_the_asyncio_client_gives_the_same(kind: str, tmp_path: Path) -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        given = GIVEN[kind](tmp_path)
        heard = 0

        def hear(text: str) -> None:
            nonlocal heard
            heard += len(text)

        done = await sandbox.exec("tee copy | wc -c; cat copy >&2", stdin=given, on_stderr=hear)
        assert done.stdout == f"{WHOLE}\n"
        assert heard > len(LARGE) // 2  # what is no UTF-8 is told of by one character
        if not isinstance(given, bytes | memoryview):
            given.close()


def test_text_is_sent_as_utf8_from_a_file_too(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("grüße\n", encoding="latin-1")
    with (tmp_path / "in").open(encoding="latin-1") as file:
        assert sandbox.exec("cat", stdin=file).stdout == "grüße\n"
    assert sandbox.exec("cat", stdin="é" * 2**20).stdout_bytes[:2] == "é".encode()
    assert sandbox.exec("cat", stdin=io.StringIO("é🎉")).stdout == "é🎉"
    with a_writer(["printf", "a\\nb"]) as writer, io.TextIOWrapper(writer) as lines:
        assert sandbox.exec("cat", stdin=lines).stdout == "a\nb"


@pytest.mark.parametrize("given", [None, "", b""])
def test_no_input_is_an_end_of_file_at_once(sandbox: Sandbox, given: Any) -> None:
    assert sandbox.exec("cat; echo $?", stdin=given, timeout=DEADLINE).stdout == "0\n"


def test_what_has_been_read_of_a_file_is_not_read_again(sandbox: Sandbox) -> None:
    with a_writer(["printf", "first\\nsecond\\n"]) as writer:
        assert writer.readline() == b"first\n"
        assert sandbox.exec("cat", stdin=writer).stdout == "second\n"


ENDLESS = {
    "reads a little": ("head -1", "y\n"),
    "reads nothing": ("echo done", "done\n"),
    "closes it and goes on": ("exec <&-; sleep 0.2; echo done", "done\n"),
    "fails": ("exit 3", ""),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_input_holds_up_nobody(sandbox: Sandbox, case: str) -> None:
    command, said = ENDLESS[case]
    with a_writer(["yes"]) as writer:
        done = sandbox.exec(command, stdin=writer, timeout=DEADLINE)
    assert (done.stdout, done.timed_out) == (said, False)


@pytest.mark.parametrize("case", ENDLESS)
async def test_nor_does_it_in_the_asyncio_client(case: str) -> None:
    command, said = ENDLESS[case]
    async with await AsyncSandbox.create(engine="local") as sandbox:
        with a_writer(["yes"]) as writer:
            done = await sandbox.exec(command, stdin=writer, timeout=DEADLINE)
    assert (done.stdout, done.timed_out) == (said, False)


def test_an_input_that_says_nothing_holds_up_nobody(sandbox: Sandbox) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rb") as silent:
        assert sandbox.exec("echo done", stdin=silent, timeout=DEADLINE).stdout == "done\n"


def test_input_and_output_are_a_conversation(sandbox: Sandbox) -> None:
    """Each line is given only when the answer to the one before is there."""
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as questions, open(write_end, "wb", buffering=0) as asking:
        heard: list[str] = []

        def answer(text: str) -> None:
            heard.append(text)
            asking.write(b"two\n") if len(heard) == 1 else asking.close()

        asking.write(b"one\n")
        done = sandbox.exec(
            "while read x; do echo got $x; done", stdin=questions, on_stdout=answer, timeout=DEADLINE
        )
    assert done.stdout == "got one\ngot two\n"


def test_more_in_and_out_than_anything_between_holds(sandbox: Sandbox) -> None:
    heard = 0

    def hear(text: str) -> None:
        nonlocal heard
        heard += len(text)

    done = sandbox.exec("cat", stdin=io.BytesIO(b"x" * 30_000_000), on_stdout=hear, timeout=60)
    assert (heard, done.truncated["stdout"].total_bytes) == (30_000_000, 30_000_000)


class Trouble:
    """A file that fails after a while."""

    def __init__(self) -> None:
        self.pieces = [b"some", b"more"]

    def read(self, _: int) -> bytes:
        if self.pieces:
            return self.pieces.pop()
        raise TimeoutError("a trouble of the file's own")


def test_what_the_file_raises_is_raised_and_ends_the_command(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutError, match="of the file's own"):
        sandbox.exec("cat; touch believed-it; sleep 597", stdin=Trouble())  # type: ignore[arg-type]  # on purpose
    wait_until_gone(sandbox, "sleep 597")
    assert not sandbox.files.exists("believed-it")


async def test_and_in_the_asyncio_client() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        with pytest.raises(TimeoutError, match="of the file's own"):
            await sandbox.exec("cat; touch believed-it", stdin=Trouble())  # type: ignore[arg-type]  # on purpose
        assert not await sandbox.files.exists("believed-it")
        with pytest.raises(SandcellError) as caught:
            await sandbox.exec("cat", stdin=io.BytesIO(LARGE), cwd="missing")
        assert caught.value.code is ErrorCode.CWD_NOT_FOUND


class Numbers:
    def read(self, _: int) -> int:
        return 5


REFUSED: dict[str, Callable[[Path], Any]] = {
    "a path": lambda tmp: tmp / "in",
    "a number": lambda _: 5,
    "a closed file": lambda _: closed(io.BytesIO()),
    "a file to write": lambda tmp: (tmp / "out").open("wb"),
    "a file of numbers": lambda _: Numbers(),
    "half a character": lambda _: "\ud800",
}


def closed(file: io.BytesIO) -> io.BytesIO:
    file.close()
    return file


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_before_anything_runs(
    sandbox: Sandbox, case: str, tmp_path: Path
) -> None:
    given = REFUSED[case](tmp_path)
    with pytest.raises(SandcellError) as caught:
        sandbox.exec("touch ran", stdin=given)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.hint
    assert case == "a file of numbers" or not sandbox.files.exists("ran")
    if isinstance(given, io.BufferedWriter):
        given.close()


# --- what is heard of it


def test_a_character_in_two_pieces_is_heard_as_one(sandbox: Sandbox) -> None:
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        sandbox.files.write("go-on", "")

    sandbox.exec("rm -f go-on")
    line = r"printf 'a\360\237'; until test -e go-on; do sleep 0.01; done; printf '\230\200\377'"
    done = sandbox.exec(line, on_stdout=hear, timeout=DEADLINE)
    assert heard[0] == "a"
    assert "".join(heard) == done.stdout == "a😀\ufffd"
    assert done.stdout_bytes == b"a\xf0\x9f\x98\x80\xff"


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_cut_is_whole_in_a_file(sandbox: Sandbox, stream: bool) -> None:  # noqa: FBT001 -- a parameter
    heard: list[str] = []
    done = sandbox.exec("seq 300000; echo few >&2", on_stdout=heard.append if stream else None)
    cut = done.truncated["stdout"]
    assert cut.path is not None
    whole = sandbox.files.read_bytes(cut.path)
    assert whole == b"".join(b"%d\n" % number for number in range(1, 300001))
    assert done.stdout_bytes[:100] == whole[:100] and done.stdout_bytes[-100:] == whole[-100:]
    assert len(done.stdout_bytes) <= 2**20 and cut.total_bytes == len(whole)
    assert cut.path in done.stdout
    assert "".join(heard) in {"", whole.decode()}
    assert "stderr" not in done.truncated
    assert sandbox.exec(["stat", "-c", "%U", cut.path]).stdout == "user\n"


def test_a_slow_callback_makes_the_command_wait_and_loses_nothing(sandbox: Sandbox) -> None:
    size = 0

    def hear(text: str) -> None:
        nonlocal size
        if not size:
            assert sandbox.exec("sleep 0.3; ls done", cwd="slow").exit_code == 2  # it has not come to its end
        size += len(text)

    sandbox.files.mkdir("slow")
    sandbox.exec("head -c 80000000 /dev/zero; touch done", cwd="slow", on_stdout=hear)
    assert size == 80_000_000


# --- that nothing is left of it


def wait_until_gone(sandbox: Sandbox, command: str) -> None:
    line = f"while pgrep -fx '{command}' > /dev/null; do sleep 0.02; done"
    assert sandbox.exec(line, timeout=DEADLINE).ok, f"{command} is left"


ORPHANS = {
    "background": "sleep 5931 &",
    "setsid": "setsid sleep 5931 &",
    "double fork": "(setsid sh -c 'sleep 5931 & exec sleep 5931' &)",
    "nohup": "nohup sleep 5931 > /dev/null 2>&1 &",
    "ignored signals": "sh -c 'trap \"\" TERM HUP INT; sleep 5931; sleep 5931' &",
    "daemon": 'python3 -c \'import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.execlp("sleep", "sleep", "5931")\'',
}
LEFT = "sleep 5931"


@pytest.mark.parametrize("how", ORPHANS)
def test_no_orphan_survives_the_end_of_the_command(sandbox: Sandbox, how: str) -> None:
    done = sandbox.exec(
        f"{ORPHANS[how]}\nuntil pgrep -fx '{LEFT}' > /dev/null; do sleep 0.01; done; echo said",
        timeout=DEADLINE,
    )
    assert (done.stdout, done.exit_code) == ("said\n", 0)
    assert done.leftovers >= 1
    assert not sandbox.exec(["pgrep", "-fx", LEFT]).ok


@pytest.mark.parametrize("how", ORPHANS)
def test_no_orphan_survives_a_timeout(sandbox: Sandbox, how: str) -> None:
    done = sandbox.exec(f"echo said; {ORPHANS[how]}\nsleep 5931", timeout=0.5)
    assert (done.stdout, done.end.cause) == ("said\n", "timeout")
    assert not sandbox.exec(["pgrep", "-fx", LEFT]).ok


@pytest.mark.parametrize("how", ORPHANS)
def test_no_orphan_survives_a_client_that_is_killed(sandbox: Sandbox, how: str) -> None:
    line = f"{ORPHANS[how]}\nuntil pgrep -fx '{LEFT}' > /dev/null; do sleep 0.01; done; echo said; sleep 5931"
    with a_client(sandbox, f"exec({line!r}, on_stdout=tell)"):
        pass
    wait_until_gone(sandbox, LEFT)


def test_a_client_that_is_killed_ends_a_command_that_reads_nothing_of_an_endless_input(
    sandbox: Sandbox,
) -> None:
    """Nothing is read from its connection then, so nothing but its end can tell."""
    call = 'exec("echo said; sleep 5931", on_stdout=tell, stdin=subprocess.Popen(["yes"], stdout=-1).stdout)'
    with a_client(sandbox, call):
        pass
    wait_until_gone(sandbox, LEFT)


def test_an_input_that_breaks_off_is_not_taken_for_one_that_ended(sandbox: Sandbox) -> None:
    """The command is ended, and never sees an end of file: it would think that it has all."""
    sandbox.exec("rm -f believed-it")
    read_end, write_end = os.pipe()
    with closing(os.fdopen(write_end, "wb", buffering=0)) as half, open(read_end, "rb") as file:
        half.write(b"half of it\n")
        line = "head -1; cat > part; touch believed-it"
        with a_client(sandbox, f"exec({line!r}, on_stdout=tell, stdin=sys.stdin.buffer)", stdin=file):
            pass
    wait_until_gone(sandbox, "cat")
    assert not sandbox.files.exists("believed-it")


@contextmanager
def a_client(sandbox: Sandbox, call: str, *, stdin: Any = subprocess.DEVNULL) -> Generator[None]:
    """A program that calls `sandbox.CALL`, killed at the end of the block; before it `tell` was called."""
    program = f"""
import subprocess, sys
from sandcell import Sandbox
tell = lambda text: print(text, end="", flush=True)
Sandbox.connect({sandbox.id!r}).{call}
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=stdin) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
        process.kill()


def test_a_fork_loop_is_ended_whole_and_other_sandboxes_never_notice() -> None:
    with Sandbox.create(engine="local") as other, Sandbox.create(engine="local", pids=100) as bound:
        bound.exec("true")
        before = count_of_processes(bound)
        beside = threading.Thread(
            target=lambda: ends.append(other.exec("sleep 2; echo fine", timeout=DEADLINE).stdout)
        )
        ends: list[str] = []
        beside.start()
        done = bound.exec("echo said; f() { f | f & }; f; sleep 60", timeout=1.0)
        assert (done.stdout.splitlines()[0], done.end.cause) == ("said", "timeout")
        assert count_of_processes(bound) == before
        assert bound.exec("echo on").stdout == "on\n"
        beside.join()
        assert ends == ["fine\n"]


def count_of_processes(sandbox: Sandbox) -> int:
    return len([name for name in sandbox.exec(["ls", "/proc"]).stdout.split() if name.isdigit()])


async def test_a_cancelled_call_ends_the_command() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        begun = asyncio.Event()
        call = asyncio.create_task(sandbox.exec(f"echo go; {LEFT}", on_stdout=lambda _: begun.set()))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        line = f"while pgrep -fx '{LEFT}' > /dev/null; do sleep 0.02; done"
        assert (await sandbox.exec(line, timeout=DEADLINE)).ok


def test_a_callback_that_raises_ends_the_command(sandbox: Sandbox) -> None:
    def refuse(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sandbox.exec(f"echo go; {LEFT}", on_stdout=refuse)
    wait_until_gone(sandbox, LEFT)
