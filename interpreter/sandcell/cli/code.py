"""`sandcell run`: code from a file, from the command line or from standard input; notebooks are `notebook`'s."""

from __future__ import annotations

import json
import re
import sys
from io import BytesIO, IncrementalNewlineDecoder
from tokenize import detect_encoding
from typing import TYPE_CHECKING, Any

from sandcell.cli.output import write_stderr, write_stdout, write_traceback
from sandcell.cli.place import open_place
from sandcell.cli.variables import timeout_of, variables_of
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from sandcell.cli.place import Place
    from sandcell.config import Config
    from sandcell.results import ExecutionError, RunResult

__all__ = ["exit_code_of", "language_of", "read_source", "run_source"]

# A run of its own before the user's: it gets its values through the environment, and the user's lines keep their numbers.
# IPython names code by what it holds: the next one, the user's, has the name of its file, in tracebacks and warnings.
_PRELUDE = """\
def _prelude():
    import json, os, sys, warnings
    sys.argv[:] = json.loads(os.environ["SANDCELL_ARGV"])
    script = sys.argv[0]
    if script in ("-c", "-"):
        globals().pop("__file__", None)
    else:
        globals()["__file__"] = script
        compiler = get_ipython().compile
        def name_of_script(*_):
            del compiler.get_code_name
            return script
        compiler.get_code_name = name_of_script
    warnings.filterwarnings("ignore", "To exit: use")
_prelude()
del _prelude
"""
_PYTHON = ("python", "py", "python3")
_COLOURS = r"(?:\x1b\[[0-9;]*m)*"
_DIED = "ContextDied"  # the name of the error when the interpreter ended under the run
_FAILED = "CommandFailed"  # of a line for a shell
_SUFFIXES = {
    ".js": "javascript",
    ".mjs": "javascript",
    ".ts": "typescript",
    ".mts": "typescript",
    ".sh": "bash",
    ".bash": "bash",
    ".r": "r",
}
_END_OF_INPUT = "\x04"  # what a front end of Jupyter's sends for ^D
_TIMED_OUT = 124  # as timeout(1) has it
_INTERRUPTED = 130


def run_source(options: argparse.Namespace, config: Config) -> int:
    """Run what the options name, and return the exit code."""
    file: Path | None = options.file
    if file is not None and file.suffix == ".ipynb":
        from sandcell.cli.notebook import run_notebook

        return run_notebook(options, config)
    language = options.language or language_of(file)
    is_python = language in _PYTHON
    _refuse_for_code(options, is_python=is_python)
    code = options.code if file is None else read_source(file, is_python=is_python)
    with open_place(options, config, label="running") as place:
        result = _run(place, code, language, options)
    if options.json:
        write_stdout(json.dumps(result.to_dict()) + "\n")
    else:
        _tell_failure(result, _script_of(options) if is_python else None)
    return exit_code_of(result)


def read_source(path: Path, *, is_python: bool = True) -> str:
    """Return the code in the file `path`, "-" being standard input: UTF-8, unless a file of Python's says otherwise.

    Raises:
        NotFound (FILE_NOT_FOUND): there is no such file.
        InvalidRequest (INVALID_ARGUMENT): it cannot be read, or is not in the encoding that it has to have.
    """
    try:
        held = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        encoding = detect_encoding(BytesIO(held).readline)[0] if is_python else "utf-8"
        return IncrementalNewlineDecoder(None, translate=True).decode(held.decode(encoding), final=True)
    except FileNotFoundError:
        hint = "a path on this machine; code itself goes after -c"
        raise error(ErrorCode.FILE_NOT_FOUND, f"there is no file {path}", hint=hint) from None
    except (OSError, UnicodeDecodeError, SyntaxError) as problem:
        raise error(ErrorCode.INVALID_ARGUMENT, f"cannot read {path}: {problem}") from problem


def _refuse_for_code(options: argparse.Namespace, *, is_python: bool) -> None:
    """Refuse what this code cannot be told: nothing that was asked for is ever ignored."""
    if options.args and not is_python:
        what, hint = "arguments go with Python only", "-e NAME=VALUE is a variable for any code"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint=hint)
    if options.out is not None:
        hint = "send standard output to a file instead"
        raise error(ErrorCode.INVALID_ARGUMENT, "--out goes with a notebook only", hint=hint)
    if options.param or options.on_error != "stop":
        what = "--param and --on-error go with a notebook only"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="code reads variables of its environment")


def _run(place: Place, code: str, language: str, options: argparse.Namespace) -> RunResult:
    more: dict[str, Any] = timeout_of(options) | {"env": variables_of(options), "cwd": options.cwd}
    if language in _PYTHON:
        argv = json.dumps([_script_of(options) or options.file or "-c", *options.args], default=str)
        place.sandbox.run_code(_PRELUDE, env={"SANDCELL_ARGV": argv}, check=True)
    if not options.json:
        more |= {"on_stdout": _after_hush(place, write_stdout), "on_stderr": _after_hush(place, write_stderr)}
    return place.sandbox.run_code(code, language=language, on_input=_after_hush(place, _ask), **more)


def _script_of(options: argparse.Namespace) -> str | None:
    """Return the name of the file that is run, None where the code comes from elsewhere."""
    return None if options.file is None or str(options.file) == "-" else str(options.file)


def language_of(path: Path | None) -> str:
    """Return the language of a file by the end of its name, python where that says nothing."""
    return "python" if path is None else _SUFFIXES.get(path.suffix.lower(), "python")


def _after_hush(place: Place, function: Any) -> Any:
    def called(*arguments: Any) -> Any:
        place.progress.hush()
        return function(*arguments)

    return called


def _ask(prompt: str, *_: object) -> str:
    """Answer `input()` from standard input; at its end the code is told that it is: Python raises EOFError."""
    write_stdout(prompt)
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else _END_OF_INPUT


def _tell_failure(result: RunResult, script: str | None) -> None:
    if result.error is not None:
        _tell_error(result.error, _called_by_name(result, script))
    if result.end.cause != "exited":
        print(f"sandcell: the run ended: {result.end.cause}", file=sys.stderr)


def _called_by_name(result: RunResult, script: str | None) -> list[str]:
    """Return the traceback as of a file: its cell has no number that anybody knows."""
    lines = [] if result.error is None else result.error.traceback
    if script is None:
        return lines
    cell = re.compile(rf"Cell({_COLOURS} {_COLOURS})In\[{result.execution_count}\]")
    return [cell.sub(lambda found: f"File{found[1]}{script}", line) for line in lines]


def _tell_error(problem: ExecutionError, traceback: list[str]) -> None:
    if problem.name == "SystemExit":
        if not _is_status(problem.value):
            write_stderr(problem.value + "\n")  # as Python does with a reason
        return
    if traceback:
        write_traceback(traceback)
    elif problem.name not in (_DIED, _FAILED):  # of a command that failed its own output tells
        write_stderr(f"{problem}\n")
    if problem.name == _DIED:
        write_stderr(f"sandcell: {problem.value}\n")


def exit_code_of(result: RunResult) -> int:
    """Return the exit code that tells how a run ended, as a shell would tell it of `python FILE`."""
    if result.ok:
        return 0
    if result.timed_out:
        return _TIMED_OUT
    if result.end.cause == "interrupted":
        return _INTERRUPTED
    if result.end.signal is not None:
        return 128 + result.end.signal
    if result.error is not None and result.error.name == "SystemExit":
        return _asked_for(result.error.value)
    if result.error is not None and result.error.name == _DIED and result.end.cause == "exited":
        return 1 if result.end.code is None else result.end.code
    return result.end.code or 1


def _is_status(value: str) -> bool:
    return value in {"", "None"} or value.removeprefix("-").isdecimal()


def _asked_for(value: str) -> int:
    if not _is_status(value):
        return 1
    return 0 if value in {"", "None"} else int(value) & 0xFF
