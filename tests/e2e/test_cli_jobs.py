"""Processes on the command line, as a shell would use it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_cli import Shell

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module")
def shell() -> Generator[Shell]:
    with tempfile.TemporaryDirectory(prefix="sandcell-") as state:
        made = Shell(state)
        made.environment["SANDCELL_SANDBOX"] = "jobs"
        yield made
        made("rm", "jobs")


def start(shell: Shell, *argv: str) -> str:
    done = shell("start", *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def wait(shell: Shell, name: str) -> subprocess.CompletedProcess[bytes]:
    return shell("follow", name)


def said(done: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes, bytes]:
    return done.returncode, done.stdout, done.stderr


def test_a_process_is_started_and_followed_to_its_end(shell: Shell) -> None:
    name = start(
        shell,
        "--id",
        "one",
        "-e",
        "A=1",
        "--cwd",
        "/tmp",
        r"printf '\0\377'; echo $A $PWD; echo err >&2; exit 3",
    )
    assert name == "one"
    assert said(wait(shell, "one")) == (3, b"\0\xff1 /tmp\n", b"err\n")
    assert said(shell("logs", "one")) == (0, b"\0\xff1 /tmp\n", b"err\n")
    assert said(shell("logs", "--stream", "stderr", "one")) == (0, b"", b"err\n")


def test_words_are_the_commands_from_the_first_on(shell: Shell) -> None:
    name = start(shell, "sh", "-c", 'echo "$@"', "sh", "--id", "--", "-x")
    assert name.startswith("prc_")
    assert wait(shell, name).stdout == b"--id -- -x\n"


def test_logs_have_a_tail_and_times(shell: Shell) -> None:
    start(shell, "--id", "long", "seq 100; printf half")
    wait(shell, "long")
    assert shell("logs", "--tail", "2", "long").stdout == b"100\nhalf"
    assert shell("logs", "--tail", "0", "long").stdout == b""
    stamped = shell("logs", "-t", "--tail", "3", "long").stdout.decode()
    assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (99|100|half)\n?){3}", stamped)
    assert said(shell("follow", "--tail", "1", "long"))[:2] == (0, b"half")


def test_logs_end_where_a_process_writes_on(shell: Shell) -> None:
    start(shell, "--id", "flood", "yes")
    for more in ([], ["--tail", "2"]):
        done = shell("logs", *more, "flood")
        assert (done.returncode, set(done.stdout.split())) == (0, {b"y"})
    assert shell("kill", "flood").returncode == 0


def test_logs_follow_what_comes_and_an_interrupt_leaves_it_running(shell: Shell) -> None:
    start(shell, "--id", "slow", "echo first; sleep 50")
    following = shell.start("logs", "-f", "slow")
    assert following.stdout is not None
    assert following.stdout.readline() == b"first\n"
    following.send_signal(signal.SIGINT)
    assert following.wait(20) == 130
    following.stdout.close()
    rows: list[dict[str, Any]] = json.loads(shell("ps", "--json", "jobs").stdout)
    assert {row["id"]: row["status"] for row in rows}["slow"] == "running"
    assert said(shell("kill", "slow")) == (0, b"slow\n", b"")
    assert said(wait(shell, "slow")) == (143, b"first\n", b"sandcell: the process ended: killed\n")


def test_signals_and_all(shell: Shell) -> None:
    start(shell, "--id", "hup", "sleep", "50")
    assert shell("kill", "-s", "HUP", "hup").returncode == 0
    assert wait(shell, "hup").returncode == 129
    start(shell, "--id", "left", "sleep", "50")
    assert said(shell("kill", "--all", "--grace", "0")) == (0, b"left\n", b"")
    assert shell("kill", "--all").stdout == b""
    table = shell("ps", "jobs").stdout.decode()
    assert re.search(r"^left +process +killed, signal 9 ", table, re.MULTILINE)


def test_a_timeout_is_124(shell: Shell) -> None:
    start(shell, "--id", "late", "--timeout", "0.2", "sleep", "50")
    assert wait(shell, "late").returncode == 124


def test_what_does_not_hold_is_said(shell: Shell) -> None:
    done = shell("start", "--memory", "200MiB", "ulimit -d")
    assert b"each process of the tree" in done.stderr
    assert wait(shell, done.stdout.decode().strip()).stdout == b"204800\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["logs", "nope"], "NOT_FOUND"),
        (["follow", "nope"], "NOT_FOUND"),
        (["kill", "nope"], "NOT_FOUND"),
        (["kill"], "INVALID_ARGUMENT"),
        (["kill", "--all", "one"], "INVALID_ARGUMENT"),
        (["kill", "-s", "NOPE", "lasting"], "UNKNOWN_SIGNAL"),
        (["start", "-e", "A", "true"], "INVALID_ENV_NAME"),
        (["logs", "--tail", "x", "one"], "INVALID_ARGUMENT"),
        (["logs", "--sandbox", "nowhere", "one"], "NOT_FOUND"),
        (["ps", "nowhere"], "NOT_FOUND"),
    ],
)
def test_what_cannot_be_is_one_line_and_125(shell: Shell, argv: list[str], words: str) -> None:
    start(shell, "--id", "lasting", "sleep", "50")
    done = shell(*argv)
    assert done.returncode == 125
    assert f"sandcell: {words}: ".encode() in done.stderr


def test_a_process_needs_a_sandbox_that_lasts(shell: Shell) -> None:
    nameless = Shell(shell.environment["SANDCELL_STATE_DIR"])
    for argv in (["start", "true"], ["logs", "one"], ["kill", "one"]):
        done = nameless(*argv)
        assert done.returncode == 125
        assert b"SANDCELL_SANDBOX=NAME" in done.stderr


def test_a_terminal_that_was_left_behind_is_listed_and_ended(shell: Shell) -> None:
    start(shell, "--id", "beside", "sleep", "50")
    program = "from sandcell import Sandbox; Sandbox.connect('jobs').create_terminal('desk', command=['sleep', '50'])"
    subprocess.run([sys.executable, "-c", program], env=shell.environment, check=True, timeout=50)
    assert re.search(
        r"^desk +terminal +running +\d+ .* sleep 50$", shell("ps", "jobs").stdout.decode(), re.MULTILINE
    )
    rows: list[dict[str, Any]] = json.loads(shell("ps", "--json", "jobs").stdout)
    assert {row["id"]: row["kind"] for row in rows}.items() >= {
        "beside": "process",
        "desk": "terminal",
    }.items()
    assert b"is a terminal" in shell("kill", "-s", "HUP", "desk").stderr
    assert said(shell("kill", "desk", "beside")) == (0, b"desk\nbeside\n", b"")
    assert shell("kill", "desk").returncode == 125
    assert b"desk" not in shell("ps", "jobs").stdout
