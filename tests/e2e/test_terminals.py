"""Terminals and top through the SDK, in a sandbox of the engine `local`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.events import Ended, Gap, Stdout

if TYPE_CHECKING:
    from sandcell.client.blocking.terminal import Terminal

DEADLINE_S = 30


def until(terminal: Terminal, text: str) -> str:
    """Read until `text` is there, and return all that was read."""
    seen = ""
    while text not in seen:
        more = terminal.read(timeout=DEADLINE_S)
        assert more, seen
        seen += more
    return seen


def code_of(problem: pytest.ExceptionInfo[SandcellError]) -> ErrorCode:
    return problem.value.code


@pytest.mark.short
def test_a_person_at_a_shell(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal(cols=100, rows=30)
    until(terminal, "$ ")
    terminal.write("x=7; cd /tmp; stty size; tty\n")
    until(terminal, "30 100")
    terminal.resize(120, 40)
    terminal.write("echo $x $PWD; stty size; exit 3\n")
    until(terminal, "7 /tmp\r\n40 120\r\n")
    end = terminal.wait(timeout=DEADLINE_S)
    assert (end.cause, end.code, terminal.status, terminal.end) == ("exited", 3, "ended", end)
    while terminal.read(timeout=DEADLINE_S):
        pass
    with pytest.raises(SandcellError) as refused:
        terminal.write("x")
    assert code_of(refused) is ErrorCode.LOST
    terminal.delete()


SCREEN = """
import curses

def main(screen):
    screen.addstr(0, 0, "漢字 é ready")
    while (key := screen.get_wch()) != "q":
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
            screen.addstr(1, 0, f"size {curses.COLS}x{curses.LINES}")
        else:
            screen.addstr(2, 0, f"key {key!r}")

curses.wrapper(main)
"""


def test_a_full_screen_program_has_all_it_needs(sandbox: Sandbox) -> None:
    sandbox.files.write("screen.py", SCREEN)
    terminal = sandbox.create_terminal(command=[sandbox.info().python, "screen.py"], env={"TERM": "xterm"})
    shown = until(terminal, "漢字 é ready")
    assert "\x1b[?1049h" in shown
    terminal.resize(132, 43)
    terminal.write("k")  # curses overlooks a signal that comes as it begins to read
    until(terminal, "size 132x43")
    terminal.write("\x1bOA")  # an arrow
    until(terminal, "259")
    terminal.write("ü")
    until(terminal, "'ü'")
    terminal.write("q")
    assert terminal.wait(timeout=DEADLINE_S).code == 0
    assert "\x1b[?1049l" in until(terminal, "\x1b[?1049l")
    terminal.delete()


def test_a_terminal_is_found_and_shown_again(sandbox: Sandbox) -> None:
    made = sandbox.create_terminal("mine", command=["cat"], cwd="/tmp", env={"A": "b"})
    made.write("typed\n")
    until(made, "typed\r\ntyped\r\n")
    found = sandbox.terminal("mine")
    assert (found.id, found.pid, found.command, found.cwd) == ("mine", made.pid, ("cat",), "/tmp")
    assert until(found, "typed\r\ntyped\r\n") == "typed\r\ntyped\r\n"
    assert "mine" in [each.id for each in sandbox.terminals()]
    assert sandbox.create_terminal("mine", command=["cat"], cwd="/tmp", env={"A": "b"}).pid == made.pid
    with pytest.raises(SandcellError) as refused:
        sandbox.create_terminal("mine")
    assert code_of(refused) is ErrorCode.EXISTS
    made.delete()
    with pytest.raises(SandcellError) as refused:
        sandbox.terminal("mine")
    assert code_of(refused) is ErrorCode.NOT_FOUND


def test_a_read_waits_as_long_as_it_is_told(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal(command=["cat"])
    begun = time.monotonic()
    for read in (terminal.read, terminal.read_bytes):
        with pytest.raises(SandcellError) as late:
            read(timeout=0.1)
        assert code_of(late) is ErrorCode.WAIT_TIMEOUT
    assert 0.2 <= time.monotonic() - begun < DEADLINE_S
    with pytest.raises(SandcellError) as late:
        terminal.wait(timeout=0.05)
    assert code_of(late) is ErrorCode.WAIT_TIMEOUT
    terminal.write("\x04")
    assert terminal.wait(timeout=DEADLINE_S).code == 0
    assert (terminal.read(timeout=DEADLINE_S), terminal.read_bytes()) == ("", b"")
    terminal.delete()


def test_no_answer_is_overlooked(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal(command="stty raw -echo; echo on; exec cat")
    until(terminal, "on\n")
    for _ in range(300):
        terminal.write("x")
        assert terminal.read(timeout=DEADLINE_S) == "x"
    terminal.delete()


def test_characters_are_whole_and_bytes_are_bytes(sandbox: Sandbox) -> None:
    script = r"printf '\346\274'; read line; printf '\242\377|'"
    terminal = sandbox.create_terminal(command=f"stty -echo; {script}")
    with pytest.raises(SandcellError):
        terminal.read(timeout=0.2)  # half a character is none
    terminal.write("\n")
    assert until(terminal, "|") == "漢\ufffd|"
    terminal.delete()
    terminal = sandbox.create_terminal(command=r"printf '\377\376'")
    terminal.wait()
    assert terminal.read_bytes() == b"\xff\xfe"
    terminal.delete()


def test_following_goes_on_from_any_cursor(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal(
        command="stty -opost; for n in 1 2 3 4 5; do echo line $n; sleep 0.02; done"
    )
    events = list(terminal.follow())
    assert isinstance(events[-1], Ended)
    texts = [event.text for event in events if isinstance(event, Stdout)]
    whole = "".join(f"line {n}\n" for n in range(1, 6))
    assert "".join(texts) == whole
    for number, event in enumerate(events[:-1]):
        rest = [each.text for each in terminal.follow(event.cursor) if isinstance(each, Stdout)]
        assert "".join(rest) == "".join(texts[number + 1 :])
    terminal.delete()


def test_a_reader_that_is_slow_hears_what_it_missed(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal(command="stty -opost; read go; seq 1 1000000; echo end")
    events = terminal.follow()
    terminal.write("go\n")
    first = next(events)
    terminal.wait(timeout=DEADLINE_S)
    seen = [first, *events]
    assert any(isinstance(each, Gap) for each in seen)
    assert "".join(each.text for each in seen if isinstance(each, Stdout)).endswith("1000000\nend\n")
    terminal.delete()


def test_much_can_be_typed(sandbox: Sandbox) -> None:
    size = 2**20
    terminal = sandbox.create_terminal(command=f"stty raw -echo; echo on; head -c {size} | cksum")
    until(terminal, "on\n")
    terminal.write(bytes(size))
    assert until(terminal, f" {size}\n")
    terminal.delete()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"command": []}, ErrorCode.INVALID_ARGUMENT),
        ({"command": 7}, ErrorCode.INVALID_ARGUMENT),
        ({"cols": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"rows": 10**6}, ErrorCode.INVALID_ARGUMENT),
        ({"cwd": "/none"}, ErrorCode.CWD_NOT_FOUND),
        ({"env": {"a b": "c"}}, ErrorCode.INVALID_ENV_NAME),
        ({"id": "No"}, ErrorCode.INVALID_NAME),
        ({"command": ["no-such-program"]}, ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_what_cannot_be_is_refused(sandbox: Sandbox, fields: dict[str, object], code: ErrorCode) -> None:
    with pytest.raises(SandcellError) as refused:
        sandbox.create_terminal(**fields)  # type: ignore[arg-type]
    assert code_of(refused) is code


async def test_the_asyncio_client_does_the_same() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        made = await asyncio.gather(*(sandbox.create_terminal("one", command=["cat"]) for _ in range(50)))
        assert len({each.pid for each in made}) == 1
        terminal, other = made[:2]
        reading = asyncio.ensure_future(other.read(timeout=DEADLINE_S))
        await terminal.write("x\n")
        assert (await reading).startswith("x")
        waiting = asyncio.ensure_future(terminal.wait())
        await terminal.delete()
        assert (await waiting).cause == "killed"


@pytest.mark.short
@pytest.mark.filterwarnings("ignore:engine process")
@pytest.mark.parametrize("engine", ["local", "process"])
def test_top_tells_whose_processes_there_are(engine: str) -> None:
    with Sandbox.create(engine=engine) as sandbox:
        assert sandbox.top() == []
        sandbox.run_code("import subprocess; child = subprocess.Popen(['sleep', '60'])")
        context = sandbox.create_context(id="other", cwd="/tmp")
        waiting = "echo on; read x <fifo"
        terminal = sandbox.create_terminal("trm", command=f"mkfifo fifo; setsid sh -c '{waiting}' & exec cat")
        until(terminal, "on\r\n")
        terminal.write("x\n")
        until(terminal, "x\r\nx\r\n")
        found = sandbox.top()
        owners = {each.command: each.owner for each in found}
        assert owners["sleep 60"] == "python"
        assert (owners[f"sh -c {waiting}"], owners["cat"]) == ("trm", "trm")
        assert {each.owner for each in found} == {"python", "other", "trm"}
        assert len(found) == 5
        assert sorted(each.owner for each in found if "launch.py" in each.command) == ["other", "python"]
        assert not [each for each in found if "fork-server" in each.command]
        for each in found:
            assert each.memory > 0 and each.cpu >= 0 and abs(each.started - time.time()) < 600 and each.user
        terminal.delete()
        context.delete()
        assert {each.owner for each in sandbox.top()} == {"python"}


def test_top_shows_command_lines_as_they_are_and_bounded(sandbox: Sandbox) -> None:
    evil = "\x1b]0;title\x07\n\udcff" + "x" * 10_000
    terminal = sandbox.create_terminal("evil", command=["tail", "-f", "/dev/null", evil])
    (row,) = [each for each in sandbox.top() if each.owner == "evil"]
    assert row.command == f"tail -f /dev/null {evil}"[:4096]
    terminal.delete()


STUBBORN = (
    "(trap '' TERM HUP; setsid nohup sh -c 'echo up >up; exec sleep 600' >/dev/null 2>&1 &); read x <up; "
)


def owners(sandbox: Sandbox) -> set[str]:
    return {each.owner for each in sandbox.top()}


def test_top_shows_nothing_of_what_was_ended(sandbox: Sandbox) -> None:
    sandbox.exec("mkfifo up")
    process = sandbox.start_process(STUBBORN + "sleep 600", id="prc")
    terminal = sandbox.create_terminal("trm", command=STUBBORN + "echo on; exec cat")
    until(terminal, "on\r\n")
    session = sandbox.create_session("ses")
    session.exec(STUBBORN)
    inner = session.start_process(STUBBORN + "sleep 600", id="inner")
    assert {"prc", "trm", "ses", "inner"} <= owners(sandbox)
    process.kill(grace=0.1)
    assert "prc" not in owners(sandbox)
    terminal.delete()
    assert "trm" not in owners(sandbox)
    inner.kill(grace=0.1)
    assert "inner" not in owners(sandbox)
    session.delete()
    assert "ses" not in owners(sandbox)
    done = sandbox.exec(STUBBORN + "sleep 600", timeout=1.0)
    assert done.end.cause == "timeout"
    assert not [each for each in owners(sandbox) if each.startswith("exe")]


def test_a_fork_loop_on_a_terminal_ends_with_it() -> None:
    with Sandbox.create(engine="local", pids=64) as looping:
        terminal = looping.create_terminal(command="f() { f | f & }; echo up; f; exec cat")
        until(terminal, "up\r\n")
        assert terminal.id in owners(looping)
        terminal.delete()
        assert owners(looping) == set()
        assert looping.top() == []
        assert looping.exec("echo fine").stdout == "fine\n"


FULL = """
import os, signal

try:
    while os.fork():
        pass
except BlockingIOError:
    print("full", flush=True)
signal.pause()
"""


def test_top_shows_what_has_taken_all_processes() -> None:
    with Sandbox.create(engine="local", pids=64) as full:
        terminal = full.create_terminal(command=[full.info().python, "-c", FULL])
        until(terminal, "full\r\n")
        found = full.top()
        assert {each.owner for each in found} == {terminal.id}
        assert {each.command[0] for each in found} == {"["}
        terminal.delete()
        assert full.top() == []
