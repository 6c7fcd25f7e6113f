"""The command with real sandboxes, as a shell would use it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import Sandbox
from sandcell.cli.check import check_engine, describe_outcome
from sandcell.cli.verbs import main
from sandcell.config import Config
from sandcell_container.conformance import CHECKS, Outcome

if TYPE_CHECKING:
    from collections.abc import Generator

SANDCELL = [sys.executable, "-c", "from sandcell.cli.main import run; run()"]


class Shell:
    """Runs the command with a registry of its own."""

    def __init__(self, state: str) -> None:
        self.environment = {**os.environ, "SANDCELL_ENGINE": "local", "SANDCELL_STATE_DIR": state}

    def __call__(self, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*SANDCELL, *argv],
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=50,
            check=False,
        )

    def line(self, text: str, folder: Path, *, before: str = "") -> subprocess.CompletedProcess[bytes]:
        """Run the command as a shell does that gets `text` after its name, redirections too, and `before` in front."""
        line = f"{before} {shlex.join(SANDCELL)} {text}"
        return subprocess.run(
            ["/bin/sh", "-c", line],
            env=self.environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=50,
            check=False,
        )

    def start(self, *argv: str, start_new_session: bool = False) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*SANDCELL, *argv],
            env=self.environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=start_new_session,
        )

    def folders(self) -> list[str]:
        """Return what is left of sandboxes, before anybody looks and buries them."""
        place = Path(self.environment["SANDCELL_STATE_DIR"]) / "sandboxes"
        return sorted({each.name for each in place.iterdir()} - {"table.lock"})

    def names(self) -> list[str]:
        rows: list[dict[str, Any]] = json.loads(self("ps", "--json").stdout)
        return [row["name"] for row in rows]


@pytest.fixture
def shell() -> Generator[Shell]:
    with tempfile.TemporaryDirectory(prefix="sandcell-") as state:
        shell = Shell(state)
        yield shell
        left = shell.names()
        if left:
            shell("rm", *left)


def _line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


# --- run


@pytest.mark.short
def test_run_writes_what_the_code_writes_and_nothing_else(shell: Shell) -> None:
    done = shell("run", "-c", "import sys; print('out', end=''); print('err', file=sys.stderr); 1 + 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out", b"err\n")


@pytest.mark.short
def test_run_tells_of_an_exception_on_standard_error(shell: Shell) -> None:
    done = shell("run", "-c", "print('before')\n1 / 0")
    assert (done.returncode, done.stdout) == (1, b"before\n")
    assert b"ZeroDivisionError: division by zero" in done.stderr
    assert b"\x1b" not in done.stderr


def test_run_takes_a_file_and_gives_its_exit_code(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint('é')\nsys.exit(7)\n")
    done = shell("run", str(script))
    assert (done.returncode, done.stdout, done.stderr) == (7, "é\n".encode(), b"")


def test_run_says_why_the_interpreter_ended(shell: Shell) -> None:
    done = shell("run", "-c", "import os; os._exit(3)")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"sandcell: the interpreter ended with exit status 3\n"


def test_a_script_knows_its_name_and_keeps_its_line_numbers(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / 'it\'s "named".py'
    script.write_text(
        "import asyncio, sys\nasync def main(): print([__file__], sys.argv)\nasyncio.run(main())\n1 / 0\n"
    )
    done = shell("run", str(script))
    assert (done.returncode, done.stdout.decode()) == (1, f"{[str(script)]} {[str(script)]}\n")
    assert b", line 4" in done.stderr


def test_a_script_is_run_as_python_runs_it(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "latin.py"
    lines = [
        "# -*- coding: latin-1 -*-",
        "import sys, traceback",
        "def fail(): 1 / 0",
        "print('\xe4', sys.argv[1:])",
    ]
    lines += ["try: fail()", "except Exception: traceback.print_exc()", "fail()", ""]
    script.write_bytes("\r\n".join(lines).encode("latin-1"))
    done = shell("run", "--cwd", "/tmp", str(script), "a", "b c", "--", "-v", "--", "\udcff")
    argv = ["a", "b c", "-v", "--", "\udcff"]
    assert (done.returncode, done.stdout.decode()) == (1, f"\xe4 {argv}\n")
    own = done.stderr.decode()
    assert f'File "{script}", line 3, in fail' in own
    assert f"File {script}, line 7" in own
    assert "Cell In[" not in own
    assert shell("run", "-c", "import sys; print(sys.argv)", "a").stdout == b"['-c', 'a']\n"


def test_code_of_the_command_line_has_no_file(shell: Shell) -> None:
    done = shell(
        "run",
        "-c",
        "import os, sys; print(sys.argv, '__file__' in globals(), 'SANDCELL_SCRIPT' in os.environ)",
    )
    assert (done.returncode, done.stdout) == (0, b"['-c'] False False\n")


def test_input_behind_the_end_of_standard_input_is_an_error(shell: Shell) -> None:
    done = shell("run", "-c", "print([input()]); input()", stdin=b"\n")
    assert (done.returncode, done.stdout) == (1, b"['']\n")
    assert b"EOFError" in done.stderr


def test_run_answers_input_from_standard_input(shell: Shell) -> None:
    done = shell("run", "-c", "print('hello', input('name? '))", stdin=b"Ada\n")
    assert (done.returncode, done.stdout) == (0, b"name? hello Ada\n")


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_folder_variables_and_no_limit(shell: Shell, verb: str) -> None:
    what = {"run": ["-c", "import os; print(os.getcwd(), os.environ['A'])"], "exec": ['echo "$PWD $A"']}[verb]
    done = shell(verb, "--cwd", "/tmp", "--env", "A=b=c", "--timeout", "none", *what)
    assert (done.returncode, done.stdout) == (0, b"/tmp b=c\n")
    assert shell(verb, "--timeout", "soon", *what).returncode != 0


def test_run_ends_at_its_timeout(shell: Shell) -> None:
    done = shell("run", "--timeout", "0.5", "-c", "import time; time.sleep(60)")
    assert done.returncode == 124
    assert b"sandcell: the run ended: timeout" in done.stderr


def test_run_prints_the_result_as_json(shell: Shell) -> None:
    result = json.loads(shell("run", "--json", "-c", "print('out'); {'a': [1]}").stdout)
    assert (result["ok"], result["value"], result["stdout"]) == (True, {"a": [1]}, "out\n")


def test_an_interrupt_from_the_keyboard_ends_run_and_sandbox(shell: Shell) -> None:
    with shell.start("run", "-c", "print('here', flush=True); import time; time.sleep(60)") as running:
        assert _line_of(running) == b"here\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
    assert shell.names() == []


ENDED = {
    "exec": ("exec", "echo here; sleep 60"),
    "run": ("run", "-c", "print('here', flush=True); import time; time.sleep(60)"),
}


@pytest.mark.parametrize("verb", ENDED)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_its_sandbox(shell: Shell, verb: str, number: signal.Signals) -> None:
    with shell.start(*ENDED[verb]) as running:
        assert _line_of(running) == b"here\n"
        running.send_signal(number)
        assert running.wait(20) == 128 + number
    assert shell.folders() == []


def test_a_signal_to_all_of_a_terminal_leaves_nothing_either(shell: Shell) -> None:
    with shell.start("exec", "echo here; sleep 60", start_new_session=True) as running:
        assert _line_of(running) == b"here\n"
        os.killpg(running.pid, signal.SIGHUP)
        assert running.wait(20) == 128 + signal.SIGHUP
    assert shell.folders() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_notebook_and_its_sandbox(
    shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    source = _notebook(tmp_path / "in.ipynb", "print('here')", "import time; time.sleep(60)")
    with shell.start("run", source) as running:
        assert _line_of(running) == b"here\n"
        running.send_signal(number)
        assert running.wait(20) == 128 + number
    assert shell.folders() == []


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("run empty.ipynb", "INVALID_ARGUMENT", "cannot be read as a notebook"),
        ("run list.ipynb", "INVALID_ARGUMENT", "cannot be read as a notebook"),
        ("run good.ipynb --out nowhere/done.ipynb", "INVALID_ARGUMENT", "its folder is not there"),
        ("run -c 1 --out done.ipynb", "INVALID_ARGUMENT", "--out goes with a notebook only"),
        ("run -c 1 --param x=1", "INVALID_ARGUMENT", "go with a notebook only"),
        ("run good.ipynb --param x", "INVALID_ARGUMENT", "has no value"),
        ("kernel install --prefix /proc/x", "INVALID_ARGUMENT", "cannot install the kernelspec"),
        ("run -c 'print(1)' >/dev/full", "NO_SPACE", "cannot write the output"),
        ("ps >/dev/full", "NO_SPACE", "cannot write the output"),
        ("run -c 'print(1)' >&-", "INVALID_ARGUMENT", "standard output is closed"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    shell: Shell, tmp_path: Path, line: str, code: str, words: str
) -> None:
    (tmp_path / "empty.ipynb").write_text("{}")
    (tmp_path / "list.ipynb").write_text("[]")
    (tmp_path / "good.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    done = shell.line(line, tmp_path)
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.startswith(f"sandcell: {code}: ".encode())
    assert words.encode() in done.stderr
    assert done.stderr.count(b"\n") == 1


# --- exec


@pytest.mark.short
def test_exec_passes_on_bytes_and_the_exit_code(shell: Shell) -> None:
    done = shell("exec", r"printf '\377\000\n'; printf 'err' >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"\xff\x00\n", b"err")


def test_exec_takes_a_program_with_its_options(shell: Shell) -> None:
    done = shell("exec", "--cwd", "/tmp", "--", "printf", "%s|", "$HOME", "a b", "--")
    assert (done.returncode, done.stdout) == (0, b"$HOME|a b|--|")


def test_the_module_is_the_command_too(shell: Shell) -> None:
    argv = [sys.executable, "-m", "sandcell", "exec", "printf", "%s|", "-l", "a b"]
    done = subprocess.run(argv, env=shell.environment, capture_output=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (0, b"-l|a b|")


def test_exec_gives_standard_input_when_asked(shell: Shell) -> None:
    content = bytes(range(256)) * 100
    assert shell("exec", "--stdin", "--", "cat", stdin=content).stdout == content
    assert shell("exec", "cat", stdin=content).stdout == b""


def test_exec_takes_standard_input_of_any_length(shell: Shell) -> None:
    content = bytes(range(256)) * 50_000
    assert shell("exec", "--stdin", "--", "cat", stdin=content).stdout == content


def test_exec_ends_when_its_command_does_though_standard_input_is_endless(
    shell: Shell, tmp_path: Path
) -> None:
    for command, said in (("head -1", b"y\n"), ("echo done", b"done\n"), ("exec <&-; echo done", b"done\n")):
        done = shell.line(f"exec --stdin '{command}'", tmp_path, before="yes |")
        assert (done.returncode, done.stdout) == (0, said)


def test_exec_loses_nothing_where_its_output_is_read_slowly(shell: Shell, tmp_path: Path) -> None:
    done = shell.line("exec 'head -c 150000000 /dev/zero' | (sleep 1; wc -c)", tmp_path)
    assert done.stdout == b"150000000\n"


def test_exec_in_a_session_finds_what_the_last_one_set(shell: Shell, tmp_path: Path) -> None:
    place = ("exec", "--sandbox", "lab", "--session", "build")
    assert shell(*place, "cd /tmp; x='a b'").returncode == 0
    done = shell(
        *place, "--stdin", r"""printf '%s|%s|\377' $PWD "$x"; cat; echo e >&2; (exit 3)""", stdin=b"typed\0"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"/tmp|a b|\xfftyped\0", b"e\n")
    assert shell(*place, "--cwd", "/usr", "pwd").stdout == b"/usr\n"
    assert shell(*place, "echo last; exit 5").returncode == 5
    assert shell(*place, "echo ${x-none}").stdout == b"none\n"
    done = shell(*place, "ls", "-l")
    assert (done.returncode, done.stderr[:26]) == (125, b"sandcell: INVALID_ARGUMENT")
    slow = shell.line(
        "exec --sandbox lab --session build 'head -c 150000000 /dev/zero' | (sleep 1; wc -c)", tmp_path
    )
    assert slow.stdout == b"150000000\n"
    assert shell("rm", "lab").returncode == 0


def test_exec_tells_of_a_signal_and_of_a_timeout(shell: Shell) -> None:
    assert shell("exec", "kill -KILL $$").returncode == 137
    done = shell("exec", "--timeout", "0.5", "sleep 60")
    assert (done.returncode, done.stderr) == (124, b"sandcell: the command ended: timeout\n")


def test_exec_passes_output_on_while_the_command_runs(shell: Shell) -> None:
    with shell.start("exec", "--sandbox", "lab", "mkfifo gate; echo first; cat gate") as running:
        assert _line_of(running) == b"first\n"
        assert shell("exec", "--sandbox", "lab", "echo second > gate").returncode == 0
        assert _line_of(running) == b"second\n"
        assert running.wait(20) == 0


# --- sandboxes with a name


@pytest.mark.short
def test_a_named_sandbox_is_kept_until_it_is_removed(shell: Shell) -> None:
    assert shell("run", "--sandbox", "lab", "-c", "x = 20").returncode == 0
    assert shell("run", "--sandbox", "lab", "-c", "print(x + 1)").stdout == b"21\n"
    assert shell.names() == ["lab"]
    assert b"lab" in shell("ps").stdout
    assert shell("rm", "lab").stdout == b"lab\n"
    assert shell.names() == []


def test_removing_what_is_not_there_says_so(shell: Shell) -> None:
    done = shell("rm", "nobody")
    assert done.returncode == 125
    assert done.stderr.startswith(b"sandcell: NOT_FOUND: ")


def test_a_failure_of_ours_has_its_code_and_a_hint(shell: Shell) -> None:
    done = shell("run", "--engine", "nonsense", "-c", "1")
    assert done.returncode == 125
    assert done.stderr.startswith(b"sandcell: INVALID_ARGUMENT: ")
    assert b"auto, docker" in done.stderr


# --- notebooks


def _notebook(path: Path, *sources: str) -> str:
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"c{n}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": each,
        }
        for n, each in enumerate(sources)
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return str(path)


def _outputs(path: Path) -> list[list[str]]:
    """The types of the outputs of each cell."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    return [[each["output_type"] for each in cell["outputs"]] for cell in notebook["cells"]]


def test_a_notebook_is_run_and_written(shell: Shell, tmp_path: Path) -> None:
    source = _notebook(tmp_path / "in.ipynb", "x = 20", "print('printed')\nx + 1")
    assert shell("run", source).stdout == b"printed\n21\n"
    assert shell("run", source, "--out", str(tmp_path / "out.ipynb")).stdout == b""
    assert _outputs(tmp_path / "out.ipynb") == [[], ["stream", "execute_result"]]


def test_a_notebook_that_fails_is_written_as_far_as_it_came(shell: Shell, tmp_path: Path) -> None:
    source = _notebook(tmp_path / "in.ipynb", "print('before')", "1 / 0", "print('never')")
    done = shell("run", source, "--out", str(tmp_path / "out.ipynb"))
    assert done.returncode == 1
    assert b"ZeroDivisionError" in done.stderr
    assert _outputs(tmp_path / "out.ipynb") == [["stream"], ["error"], []]


def test_a_notebook_gets_parameters_and_goes_on_after_a_failure(shell: Shell, tmp_path: Path) -> None:
    source = _notebook(tmp_path / "in.ipynb", "print(n, name)", "1 / 0", "%%shell\necho on")
    done = shell("run", source, "-p", "n=[1, 2]", "--param", "name=a=b", "--on-error", "continue")
    assert (done.returncode, done.stdout) == (1, b"[1, 2] a=b\non\n")
    assert b"sandcell: cell 3 failed" in done.stderr
    told = json.loads(shell("run", source, "--json", "-p", "n=1", "-p", "name=2").stdout)
    assert [cell["status"] for cell in told["cells"]] == ["ok", "ok", "error", "waiting"]


def test_a_cell_that_takes_too_long_is_told_by_the_exit_code(shell: Shell, tmp_path: Path) -> None:
    done = shell("run", "--timeout", "0.5", _notebook(tmp_path / "in.ipynb", "import time; time.sleep(60)"))
    assert done.returncode == 124
    assert b"sandcell: cell 1 ran out of time" in done.stderr


def test_two_notebooks_are_compared(shell: Shell, tmp_path: Path) -> None:
    source = _notebook(tmp_path / "in.ipynb", "import os; 'x' * 99 + str(os.getpid())", "print('same')")
    first, second = str(tmp_path / "first.ipynb"), str(tmp_path / "second.ipynb")
    for out in (first, second):
        assert shell("run", "--sandbox", "lab", source, "--out", out).returncode == 0
    same = shell("diff", first, second)
    assert (same.returncode, same.stdout) == (0, b"")
    changed = shell("diff", source, first)
    assert changed.returncode == 1
    assert changed.stdout.splitlines()[0].split() == [b"CELL", b"WHAT", b"BEFORE", b"AFTER"]
    assert changed.stdout.splitlines()[2].split() == [b"2", b"stdout", b"(none)", b"same"]
    found = json.loads(shell("diff", "--json", source, first).stdout)
    assert [(each["after_cell"], each["what"]) for each in found] == [(1, "result text/plain"), (2, "stdout")]
    assert shell("diff", first, str(tmp_path / "none.ipynb")).returncode == 125


def test_a_notebook_joins_a_named_sandbox(shell: Shell, tmp_path: Path) -> None:
    assert shell("run", "--sandbox", "lab", "-c", "x = 20").returncode == 0
    source = _notebook(tmp_path / "in.ipynb", "print(x + 1); y = 5")
    assert shell("run", "--sandbox", "lab", source).stdout == b"21\n"
    assert shell("run", "--sandbox", "lab", "-c", "print(y)").stdout == b"5\n"


# --- the rest


@pytest.mark.short
def test_the_doctor_finds_an_engine_that_works(shell: Shell) -> None:
    done = shell("doctor")
    assert done.returncode == 0, done.stdout
    assert b"local    works" in done.stdout


def test_the_kernelspec_goes_where_it_is_told(shell: Shell, tmp_path: Path) -> None:
    line = ("kernel", "install", "--prefix", str(tmp_path), "--network", "pypi.org,*.example.org")
    assert shell(*line).returncode == 0
    spec = json.loads(
        (tmp_path / "share" / "jupyter" / "kernels" / "sandcell-python" / "kernel.json").read_text()
    )
    assert spec["display_name"] == "Python (Sandcell)"
    assert json.loads(spec["argv"][-1]) == {"network": ["pypi.org", "*.example.org"]}


def test_an_engine_is_checked_through_its_real_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(each for each in CHECKS if each.name in {"runs-programs", "inherits-nothing"})
    monkeypatch.setattr("sandcell.cli.check.CHECKS", few)
    written = list[str]()
    monkeypatch.setattr("sandcell.cli.check.write_stdout", written.append)
    assert check_engine("local", Config()) == 0
    assert [line.split()[:2] for line in written] == [["ok", "function"], ["ok", "isolation"]]


def test_what_became_of_a_check_is_told_in_a_line_or_two() -> None:
    held, failed = (
        Outcome(check=CHECKS[0], state="held"),
        Outcome(check=CHECKS[0], state="failed", why="because"),
    )
    assert describe_outcome(held).startswith("ok ")
    assert [line.split()[0] for line in describe_outcome(failed).splitlines()] == ["FAILED", "because"]


def test_sandboxes_are_stopped_started_and_pruned(shell: Shell) -> None:
    assert shell("start", "--sandbox", "lab").stdout == b"lab\n"
    assert shell("exec", "--sandbox", "lab", "echo kept > f").returncode == 0
    assert shell("stop", "lab").stdout == b"lab\n"
    (found,) = json.loads(shell("ps", "--json").stdout)
    assert (found["name"], found["status"]) == ("lab", "stopped")
    assert shell("prune").stdout == f"stopped\t{found['id']}\n".encode()
    assert shell("exec", "--sandbox", "lab", "cat f").stdout == b"kept\n"
    assert shell("stop", "never").returncode == 125
    assert shell("rm", "lab").stdout == b"lab\n"
    assert shell("prune").stdout == b""
    assert shell("snapshots").stdout.split() == [b"NAME", b"ENGINE", b"AGE", b"MIB"]
    assert shell("snapshots", "--rm", "never").returncode == 125


def test_update_changes_the_network_of_a_sandbox_that_exists(capfd: pytest.CaptureFixture[str]) -> None:
    with Sandbox.create(engine="local", name="to-be-changed") as box:
        box.files.write("note", "kept")
        assert main(["update", "--network", "a.test,*.b.test", "to-be-changed"]) == 0
        assert box.info().network == ("a.test", "*.b.test")
        assert main(["update", "--network", "c.test", "--idle-timeout", "900", "to-be-changed"]) == 0
        assert (box.info().network, box.files.read("note")) == (("c.test",), "kept")
        assert main(["update", "to-be-changed"]) != 0
        assert main(["update", "--network", "http://c.test/", "to-be-changed"]) != 0
    said = capfd.readouterr()
    assert said.out == "to-be-changed\trestarted\nto-be-changed\tupdated\n"
    assert "--network" in said.err
    assert "INVALID_ARGUMENT" in said.err
