"""`sandcell shell` before a real terminal, with a person's keys."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

SANDCELL = [sys.executable, "-c", "from sandcell.cli.main import run; run()"]
TOLD = [sys.executable, "-c", "print('begun', flush=True); from sandcell.cli.main import run; run()"]
DEADLINE_S = 40


class Person:
    """A terminal, and `sandcell shell` on it."""

    def __init__(self, state: str, *argv: str, **environment: str) -> None:
        self.seen = b""
        self._person, self._terminal = os.openpty()
        termios.tcsetwinsize(self._terminal, (30, 100))
        self._before = termios.tcgetattr(self._terminal)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *TOLD, "shell", *argv],
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            env={
                **os.environ,
                "SANDCELL_ENGINE": "local",
                "SANDCELL_STATE_DIR": state,
                "TERM": "xterm",
                **environment,
            },
        )

    def type(self, data: bytes) -> None:
        os.write(self._person, data)

    def resize(self, cols: int, rows: int) -> None:
        termios.tcsetwinsize(self._person, (rows, cols))

    def until(self, pattern: bytes) -> re.Match[bytes]:
        """Look on until `pattern` is seen, and forget all up to its end."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := re.search(pattern, self.seen)) is None:
            self._look(deadline)
        self.seen = self.seen[found.end() :]
        return found

    def leave(self) -> int:
        """Wait until the program has ended, and return its exit code; the terminal has to be as it was before."""
        deadline = time.monotonic() + DEADLINE_S
        ended = os.pidfd_open(self.process.pid)
        try:
            while not select.select([ended], [], [], 0)[0]:
                self._look(deadline, ended)
        finally:
            os.close(ended)
        code = self.process.wait(0)
        while select.select([self._person], [], [], 0)[0]:
            self.seen += os.read(self._person, 2**16)
        assert termios.tcgetattr(self._terminal) == self._before
        return code

    def is_raw(self) -> bool:
        return termios.tcgetattr(self._terminal) != self._before

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self._person)
        os.close(self._terminal)

    def _look(self, deadline: float, *others: int) -> None:
        ready, _, _ = select.select([self._person, *others], [], [], deadline - time.monotonic())
        assert ready, self.seen
        if self._person in ready:
            self.seen += os.read(self._person, 2**16)


class Lab:
    """A registry of its own, and who comes to it."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.people: list[Person] = []

    def shell(self, *argv: str, **environment: str) -> Person:
        self.people.append(Person(self.state, *argv, **environment))
        return self.people[-1]

    def run(self, *argv: str) -> str:
        environment = {**os.environ, "SANDCELL_ENGINE": "local", "SANDCELL_STATE_DIR": self.state}
        done = subprocess.run(
            [*SANDCELL, *argv],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def lab() -> Generator[Lab]:
    with tempfile.TemporaryDirectory(prefix="sandcell-") as state:
        made = Lab(state)
        yield made
        for person in made.people:
            person.close()
        names = [line.split()[0] for line in made.run("ps").splitlines()[1:]]
        if names:
            made.run("rm", *names)


@pytest.mark.short
def test_a_shell_and_its_exit_code(lab: Lab) -> None:
    person = lab.shell()
    person.until(rb"\$ ")
    assert person.is_raw()
    person.type(b"tty; stty size; echo $TERM\r")
    person.until(rb"/dev/pts/\d+\r\n30 100\r\nxterm\r\n")
    person.resize(120, 40)
    person.type(b"until [ \"$(stty size)\" = '40 120' ]; do :; done; echo fits\r")
    person.until(rb"[\r\n]fits\r\n")
    person.type(b"sh -c 'echo on; exec sleep 60'\r")
    person.until(rb"[\r\n]on\r\n")
    person.type(b"\x03")
    person.until(rb"\^C\r\n")
    person.type(b"exit 5\r")
    assert person.leave() == 5


def test_a_command_of_its_own(lab: Lab) -> None:
    person = lab.shell("printf", "%s|", "a b", "--", "$x")
    assert person.leave() == 0
    assert person.seen.endswith(b"a b|--|$x|")
    assert lab.shell("exit 7").leave() == 7
    assert lab.shell("kill -9 $$").leave() == 128 + 9
    assert lab.shell("no-such-program", "x").leave() == 125


def test_leaving_and_coming_back_shows_it_again(lab: Lab) -> None:
    first = lab.shell("--sandbox", "lab", "--id", "work")
    first.until(rb"\$ ")
    first.type(b"echo first $((1 + 1))\r")
    first.until(rb"[\r\n]first 2\r\n")
    first.type(b"\x10x\x7f\x10\x11")
    assert first.leave() == 0
    assert b"sandcell shell --sandbox lab --id work" in first.seen
    again = lab.shell("--sandbox", "lab", "--id", "work")
    again.until(rb"[\r\n]first 2\r\n")
    again.type(b"echo second $((1 + 2)); exit\r")
    again.until(rb"[\r\n]second 3\r\n")
    assert again.leave() == 0
    ended = lab.shell("--sandbox", "lab", "--id", "work")
    assert ended.leave() == 0
    assert b"first 2" in ended.seen and b"second 3" in ended.seen


def test_two_people_at_one_terminal(lab: Lab) -> None:
    first = lab.shell("--sandbox", "lab", "--id", "work", "--detach-keys", "ctrl-],d")
    first.until(rb"\$ ")
    second = lab.shell("--sandbox", "lab", "--id", "work", SANDCELL_DETACH_KEYS="~,.")
    second.until(rb"\$ ")
    second.type(b"echo both $((2 + 2))\r")
    for person in (first, second):
        person.until(rb"[\r\n]both 4\r\n")
    first.type(b"\x1dd")
    second.type(b"~.")
    assert (first.leave(), second.leave()) == (0, 0)


def test_a_screen_is_put_back_when_it_is_left(lab: Lab) -> None:
    person = lab.shell("--sandbox", "lab", r"printf '\033[?1049h\033[?25lfull'; exec cat")
    person.until(b"full")
    person.type(b"\x10\x11")
    assert person.leave() == 0
    assert b"\x1b[?25h\x1b[?1049l\x1b[0m" in person.seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_cleanly(lab: Lab, number: signal.Signals) -> None:
    person = lab.shell("--sandbox", "lab", "--id", "work", "cat")
    person.type(b"x\r")
    person.until(rb"x\r\nx\r\n")
    person.process.send_signal(number)
    assert person.leave() == 128 + number
    assert "work" in lab.run("top", "--sandbox", "lab")


def test_an_interrupt_before_it_is_there(lab: Lab) -> None:
    person = lab.shell("cat")
    person.until(b"begun")
    person.type(b"\x03")
    assert person.leave() in {130, -signal.SIGINT}


def test_one_that_is_stopped_and_goes_on_is_raw_again(lab: Lab) -> None:
    person = lab.shell("--sandbox", "lab", "trap 'stty size' WINCH; echo on; while :; do sleep 0.05; done")
    person.until(rb"on\r\n")
    os.kill(person.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, person.process.pid, os.WSTOPPED | os.WNOWAIT)
    termios.tcsetattr(person._terminal, termios.TCSANOW, person._before)  # pyright: ignore[reportPrivateUsage]
    person.resize(90, 20)
    os.kill(person.process.pid, signal.SIGCONT)
    person.until(rb"20 90\r\n")
    assert person.is_raw()
    person.type(b"\x10\x11")
    assert person.leave() == 0


def test_a_sandbox_that_dies_is_told(lab: Lab) -> None:
    person = lab.shell("--sandbox", "lab", "cat")
    person.type(b"x\r")
    person.until(rb"x\r\nx\r\n")
    lab.run("rm", "lab")
    assert person.leave() == 125
    assert b"sandcell: SANDBOX_GONE" in person.seen


def test_one_that_a_stop_has_ended_is_opened_anew(lab: Lab) -> None:
    first = lab.shell("--sandbox", "lab", "--id", "work", "echo old; exec cat")
    first.until(rb"old\r\n")
    first.type(b"\x10\x11")
    assert first.leave() == 0
    lab.run("stop", "lab")
    again = lab.shell("--sandbox", "lab", "--id", "work", "echo new")
    assert again.leave() == 0
    assert again.seen.endswith(b"new\r\n")


def test_without_a_terminal_it_says_so(lab: Lab) -> None:
    environment = {**os.environ, "SANDCELL_STATE_DIR": lab.state}
    done = subprocess.run(
        [*SANDCELL, "shell"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 125
    assert b"sandcell: INVALID_ARGUMENT: there is no terminal here" in done.stderr


def test_top_lists_whose_processes_there_are(lab: Lab) -> None:
    person = lab.shell("--sandbox", "lab", "--id", "work", "cat")
    person.type(b"x\r")
    person.until(rb"x\r\nx\r\n")
    head, row = lab.run("top", "--sandbox", "lab").splitlines()
    assert head.split() == ["PID", "USER", "CPU", "MEMORY", "AGE", "OWNER", "COMMAND"]
    assert row.split()[-2:] == ["work", "cat"]
    assert '"owner":"work"' in lab.run("top", "--sandbox", "lab", "--json")
