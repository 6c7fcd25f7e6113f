"""The command line without a sandbox: options, exit codes, tables, the line on a terminal."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandcell.cli import code, command, doctor, jobs, options, output, verbs
from sandcell.cli.progress import Progress
from sandcell.results import ExecutionError, RunResult
from sandcell_container.end import Cause, CommandEnd, End
from sandcell_container.engine import Probe
from sandcell_container.errors import SandcellError
from sandcell_container.frames import Entry, Kind

pytestmark = pytest.mark.short


# --- options


def test_what_follows_two_dashes_is_the_command() -> None:
    parsed = options.parse(["exec", "--cwd", "/tmp", "--", "ls", "-l", "--", "-x"])
    assert parsed.command == []
    assert parsed.rest == ["ls", "-l", "--", "-x"]
    assert parsed.cwd == "/tmp"


def test_one_word_is_a_command_without_dashes() -> None:
    assert options.parse(["exec", "ls | head"]).command == ["ls | head"]


def test_all_from_the_first_word_on_is_the_command() -> None:
    parsed = options.parse(["exec", "--cwd", "/tmp", "ls", "-l", "--cwd", "--", "-x"])
    assert (parsed.cwd, parsed.command, parsed.rest) == ("/tmp", ["ls", "-l", "--cwd", "--", "-x"], [])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["run"],
        ["rm"],
        ["nonsense"],
        ["kernel"],
        ["run", "--timeout", "soon", "-c", "1"],
    ],
)
def test_a_line_that_cannot_be_read_is_a_failure_of_ours(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(argv)
    assert ended.value.code == options.OWN_FAILURE
    assert "sandcell: INVALID_ARGUMENT: " in capsys.readouterr().err


VERBS = ("run", "exec", "start", "logs", "follow", "kill", "ps", "rm", "kernel install", "doctor")


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse([*verb.split(), "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"  sandcell {verb}" in shown.partition("example")[2]


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n    {verb} " in shown for verb in (each.split()[0] for each in VERBS))


# --- failures


def test_an_error_of_ours_is_one_line_and_125(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SANDCELL_STATE_DIR", str(tmp_path))
    assert verbs.main(["run", str(tmp_path / "nothing.py")]) == options.OWN_FAILURE
    said = capsys.readouterr().err
    assert said.startswith("sandcell: FILE_NOT_FOUND: ")
    assert said.count("\n") == 1


def test_source_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SandcellError, match="cannot read"):
        code.read_source(path)


def test_source_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"print(1)")))
    assert code.read_source(Path("-")) == "print(1)"


def test_source_is_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    for held in (b"# coding: latin-1\r\n'\xe4'", b"\xef\xbb\xbf# no mark\n'\xc3\xa4'"):
        path.write_bytes(held)
        assert code.read_source(path).endswith("\n'\xe4'")
        assert not code.read_source(path).startswith("\ufeff")
    path.write_bytes(b"# coding: klingon\n")
    with pytest.raises(SandcellError, match="klingon"):
        code.read_source(path)
    assert code.read_source(path, is_python=False) == "# coding: klingon\n"


def test_what_follows_a_file_or_code_are_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = options.parse(["run", "--cwd", "/", "a.py", "b", "c", "--json", "--", "-d", "--"])
    assert (parsed.file, parsed.args, parsed.json) == (Path("a.py"), ["b", "c", "-d", "--"], True)
    parsed = options.parse(["run", "-c", "1", "b"])
    assert (parsed.file, parsed.code, parsed.args) == (None, "1", ["b"])
    assert options.parse(["run", "--", "a.py"]).file == Path("a.py")
    with pytest.raises(SystemExit) as ended:
        options.parse(["run", "--json"])
    assert ended.value.code == options.OWN_FAILURE
    assert "one of FILE and -c" in capsys.readouterr().err


INTERRUPTED_AT = """
import signal, sys
class Hook:
    def find_spec(self, name, *_):
        if name == late:
            signal.raise_signal(signal.SIGINT)
late = sys.argv.pop(1)
sys.meta_path.insert(0, Hook())
from sandcell.cli.main import run
run()
"""


@pytest.mark.parametrize(
    "late",
    ["sandcell.cli.verbs", "argparse", "sandcell.cli.options", "sandcell.cli.command", "sandcell.config"],
)
def test_an_interrupt_while_it_still_imports_is_no_traceback(late: str) -> None:
    argv = [sys.executable, "-c", INTERRUPTED_AT, late, "exec", "true"]
    done = subprocess.run(argv, capture_output=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


# --- exit codes


def _run(
    cause: Cause, *, error: str = "", value: str = "", exit_code: int | None = None, signal: int | None = None
) -> RunResult:
    return RunResult(
        id="run_1",
        context_id="python",
        origin="sdk",
        end=End(cause=cause, code=exit_code, signal=signal),
        error=ExecutionError(name=error, value=value) if error else None,
    )


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (_run("exited", exit_code=0), 0),
        (_run("exited", exit_code=1, error="ValueError", value="no"), 1),
        (_run("exited", exit_code=1, error="SystemExit", value="3"), 3),
        (_run("exited", exit_code=1, error="SystemExit", value="-1"), 255),
        (_run("exited", exit_code=3, error="ContextDied", value="it ended"), 3),
        (_run("exited", exit_code=1, error="SystemExit", value="None"), 0),
        (_run("exited", exit_code=1, error="SystemExit", value="a reason"), 1),
        (_run("interrupted", error="KeyboardInterrupt"), 130),
        (_run("timeout", error="KeyboardInterrupt"), 124),
        (_run("signaled", signal=11), 139),
        (_run("lost"), 1),
    ],
)
def test_the_exit_code_tells_how_a_run_ended(result: RunResult, expected: int) -> None:
    assert code.exit_code_of(result) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (CommandEnd(end=End(cause="exited", code=7), exit_code=7, signal=None, duration=0.1), 7),
        (CommandEnd(end=End(cause="signaled", signal=9), exit_code=None, signal=9, duration=0.1), 137),
        (CommandEnd(end=End(cause="timeout", signal=15), exit_code=None, signal=15, duration=0.1), 124),
    ],
)
def test_the_exit_code_tells_how_a_command_ended(end: CommandEnd, expected: int) -> None:
    assert command.exit_code_of(end) == expected


# --- what is shown


def test_columns_stand_under_each_other() -> None:
    assert output.table([("NAME", "ID"), ("a", "x1"), ("longer", "y")]) == "NAME    ID\na       x1\nlonger  y"


def test_a_traceback_has_no_colours_but_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    output.write_traceback(["\x1b[31mValueError\x1b[39m: no"])
    assert capfd.readouterr().err == "ValueError: no\n"


def test_the_doctor_says_why_not_and_what_to_do() -> None:
    probes = [
        Probe(engine="docker", usable=False, reason="no daemon answers", remedies=("start it", "or do not")),
        Probe(engine="local", usable=True, version="bubblewrap 0.8.0", remedies=("for more: do it",)),
    ]
    shown = doctor.report(probes).splitlines()
    assert shown[0] == "docker   does not work here: no daemon answers"
    assert shown[1:3] == ["         - start it", "         - or do not"]
    assert shown[3:5] == ["local    works bubblewrap 0.8.0", "         - for more: do it"]
    assert shown[-1] == 'engine "auto" takes local'


def test_the_doctor_says_when_nothing_works() -> None:
    assert 'engine "auto" finds none that works' in doctor.report(
        [Probe(engine="local", usable=False, reason="no")]
    )


# --- the line on a terminal


class _Terminal(io.StringIO):
    """Says that it is a terminal, and when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_a_terminal_sees_what_takes_long_and_then_nothing_of_it() -> None:
    terminal = _Terminal()
    with Progress("thinking", terminal, patience=0.0) as progress:
        assert terminal.written.wait(10)
        progress.hush()
        shown = terminal.getvalue()
    assert "sandcell: thinking, 0 s" in shown
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_or_no_terminal_sees_nothing() -> None:
    terminal, pipe = _Terminal(), io.StringIO()
    with Progress("thinking", terminal), Progress("thinking", pipe, patience=0.0):
        pass
    assert terminal.getvalue() == ""
    assert pipe.getvalue() == ""


def test_json_of_a_run_can_be_read_back() -> None:
    assert json.loads(json.dumps(_run("exited", exit_code=0).to_dict()))["ok"] is True


def test_times_stand_in_front_of_lines_whatever_the_pieces() -> None:
    stamps = jobs.Stamps()

    def put(data: bytes, kind: Kind = Kind.STDOUT) -> bytes:
        return stamps.put_on(Entry(1, 1, kind, 0, 0.5, data))

    stamp = b"1970-01-01T00:00:00.500000Z "
    assert put(b"a\nb") == stamp + b"a\n" + stamp + b"b"
    assert put(b"err\n", Kind.STDERR) == stamp + b"err\n"
    assert put(b"c\n\n") == b"c\n" + stamp + b"\n"
    assert put(b"d") == stamp + b"d"
