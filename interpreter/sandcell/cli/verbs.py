"""Chooses the verb, and turns what was raised into one line and an exit code.

A verb is imported when it is called: `sandcell --help` loads no client, no server, no Jupyter.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from sandcell.cli.options import OWN_FAILURE, parse
from sandcell.cli.output import Unwritten
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from sandcell.config import Config

__all__ = ["main"]

_log = logging.getLogger(__name__)

_VERBS = {
    "run": "sandcell.cli.code:run_source",
    "diff": "sandcell.cli.diff:show_changes",
    "exec": "sandcell.cli.command:run_command",
    "start": "sandcell.cli.jobs:start_process",
    "logs": "sandcell.cli.jobs:show_logs",
    "follow": "sandcell.cli.jobs:follow_process",
    "kill": "sandcell.cli.jobs:end_processes",
    "shell": "sandcell.cli.shell:run_shell",
    "cp": "sandcell.cli.files:copy_files",
    "ls": "sandcell.cli.files:list_files",
    "cat": "sandcell.cli.files:show_files",
    "edit": "sandcell.cli.files:edit_file",
    "open": "sandcell.cli.open:open_port",
    "top": "sandcell.cli.top:list_processes",
    "ps": "sandcell.cli.sandboxes:list_sandboxes",
    "update": "sandcell.cli.update:update_sandbox",
    "stop": "sandcell.cli.sandboxes:stop_sandboxes",
    "rm": "sandcell.cli.sandboxes:remove_sandboxes",
    "snapshots": "sandcell.cli.sandboxes:list_snapshots",
    "prune": "sandcell.cli.sandboxes:prune_sandboxes",
    "image": "sandcell.cli.image:build_image",
    "kernel": "sandcell.cli.kernel:install_kernel",
    "doctor": "sandcell.cli.doctor:examine",
}
_NO_READER = 141  # as a program that SIGPIPE ended


def main(argv: Sequence[str]) -> int:
    """Do what `argv` says and return the exit code. KeyboardInterrupt goes through."""
    options = parse(argv)
    try:
        _check_stdout()
        return _verb(options.verb)(options, _configure())
    except SandcellError as problem:
        return _tell(problem)
    except Unwritten as problem:
        _give_up_stdout()
        what = f"cannot write the output: {problem.strerror}"
        return _tell(error(ErrorCode.NO_SPACE, what, hint="make room, or send it elsewhere"))
    except BrokenPipeError:
        _give_up_stdout()
        return _NO_READER
    except OSError as problem:
        return _tell(_failure_here(problem))


def _check_stdout() -> None:
    if sys.stdout is None:
        what = "standard output is closed"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="send what is not wanted to /dev/null")


def _tell(problem: SandcellError) -> int:
    _log.debug("details: %s", problem.details, exc_info=problem)
    with suppress(OSError):  # standard error is full as well: the exit code is all that can be told
        print(f"sandcell: {problem}", file=sys.stderr, flush=True)
    return OWN_FAILURE


def _failure_here(problem: OSError) -> SandcellError:
    """Return the error of what this machine refused: a path of its own is not there, or may not be written."""
    from sandcell_container.guest.file_errors import error_of_errno

    names = [problem.filename, problem.filename2]
    path = next((os.fsdecode(each) for each in names if isinstance(each, str | bytes)), None)
    if problem.errno is None or path is None:
        return error(ErrorCode.INTERNAL, f"this machine refuses: {problem}")
    return error_of_errno(problem.errno, path)


def _give_up_stdout() -> None:
    """The interpreter flushes standard output once more at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _verb(name: str) -> Callable[[argparse.Namespace, Config], int]:
    module, _, function = _VERBS[name].partition(":")
    found: Callable[[argparse.Namespace, Config], int] = getattr(importlib.import_module(module), function)
    return found


def _configure() -> Config:
    from sandcell.config import Config

    config = Config.from_environ()
    logging.basicConfig(level=config.log_level, format="%(levelname)s %(name)s: %(message)s")
    return config
