"""`sandcell exec`: one command, its output passed on as it comes and byte for byte."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from sandcell.cli.output import write_stderr, write_stdout
from sandcell.cli.place import open_place
from sandcell.client.blocking.commands import command_entries
from sandcell.client.options import NOT_GIVEN, make_command
from sandcell.client.stdin import StdinFile
from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

    from sandcell.api import ExecRequest
    from sandcell.cli.place import Place
    from sandcell.config import Config
    from sandcell_container.frames import Entry

__all__ = ["exit_code_of", "run_command"]

_TIMED_OUT = 124  # as timeout(1) has it


def run_command(options: argparse.Namespace, config: Config) -> int:
    """Run what the options name, and return the exit code."""
    words = [*options.command, *options.rest]
    command = make_command(
        words[0] if len(words) == 1 else words,
        cwd=options.cwd,
        env=None,
        stdin=None,
        timeout=NOT_GIVEN if options.timeout is None else options.timeout,
        max_output=None,
        stream=True,
    )
    stdin = StdinFile.of_descriptor(sys.stdin.fileno()) if options.stdin else None
    with open_place(options, config, label="running") as place:
        for entry in _entries(place, config, command, stdin):
            place.progress.hush()
            match entry.kind:
                case Kind.STDOUT:
                    write_stdout(entry.data)
                case Kind.STDERR:
                    write_stderr(entry.data)
                case Kind.ENDED:
                    return _tell_end(msgspec.json.decode(entry.data, type=CommandEnd))
                case Kind.GAP:
                    what = "a part of the output was lost on its way"
                    raise error(ErrorCode.LOST, what, hint="send it to a file in the sandbox")
                case _:
                    pass  # news of a later version
    raise AssertionError("a command ends with ENDED or raises")


def _tell_end(end: CommandEnd) -> int:
    if end.end.cause not in {"exited", "signaled"}:  # a shell tells of neither
        print(f"sandcell: the command ended: {end.end.cause}", file=sys.stderr)
    return exit_code_of(end)


def exit_code_of(end: CommandEnd) -> int:
    """Return the exit code that tells how a command ended, as a shell would tell it."""
    if end.end.cause == "timeout":
        return _TIMED_OUT
    if end.exit_code is not None:
        return end.exit_code
    return 128 + (end.signal or 0)


def _entries(place: Place, config: Config, command: ExecRequest, stdin: StdinFile | None) -> Generator[Entry]:
    """Yield what comes out of the command. The SDK's own `exec` hands on text, which may not be what was written."""
    with (
        closing(place.transport(config)) as transport,
        closing(command_entries(transport, command, stdin)) as found,
    ):
        for followed in found:
            yield followed.entry
