"""`sandcell exec`: one command, alone or in a session, its output passed on as it comes and byte for byte."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from sandcell.cli.output import write_stderr, write_stdout
from sandcell.cli.place import open_place
from sandcell.cli.variables import variables_of
from sandcell.client.blocking.commands import command_entries
from sandcell.client.blocking.session import session_entries
from sandcell.client.options import NOT_GIVEN, make_command
from sandcell.client.session_options import make_session_exec
from sandcell.client.stdin import StdinFile
from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

    from sandcell.cli.place import Place
    from sandcell.client.blocking.follow import Followed
    from sandcell.client.blocking.transport import Transport
    from sandcell.client.options import NotGiven
    from sandcell.config import Config
    from sandcell_container.frames import Entry

__all__ = ["exit_code_of", "run_command"]

_TIMED_OUT = 124  # as timeout(1) has it
_MOST_STDIN = 5 * 2**20  # of a command in a session: it goes in the body of the request


def run_command(options: argparse.Namespace, config: Config) -> int:
    """Run what the options name, and return the exit code."""
    begin = _in_session(options) if options.session is not None else _alone(options)
    with open_place(options, config, label="running") as place:
        for entry in _entries(place, config, begin):
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


_Begin = Callable[["Place", "Transport"], "Generator[Followed]"]


def _alone(options: argparse.Namespace) -> _Begin:
    """Return what starts the command and yields what comes of it."""
    words = [*options.command, *options.rest]
    command = make_command(
        words[0] if len(words) == 1 else words,
        cwd=options.cwd,
        env=variables_of(options),
        stdin=None,
        timeout=_timeout_of(options),
        max_output=None,
        stream=True,
    )
    stdin = StdinFile.of_descriptor(sys.stdin.fileno()) if options.stdin else None
    return lambda _, transport: command_entries(transport, command, stdin)


def _in_session(options: argparse.Namespace) -> _Begin:
    """Return what runs the line in a session, which is made, or started anew, where it does not live."""
    words = [*options.command, *options.rest]
    if len(words) != 1:
        hint = "one argument, in quotes: a shell reads it"
        raise error(ErrorCode.INVALID_ARGUMENT, "a session takes one line", hint=hint)
    body = make_session_exec(
        words[0],
        cwd=options.cwd,
        env=variables_of(options),
        stdin=_read_stdin() if options.stdin else None,
        timeout=_timeout_of(options),
        queue_timeout=None,
        max_output=None,
        stream=True,
    )

    def begin(place: Place, transport: Transport) -> Generator[Followed]:
        session = place.sandbox.create_session(options.session)
        if session.status == "ended":
            session.restart()
        return session_entries(transport, session.id, body)

    return begin


def _timeout_of(options: argparse.Namespace) -> float | NotGiven | None:
    if options.timeout is None:
        return NOT_GIVEN
    return None if options.timeout == math.inf else options.timeout


def _read_stdin() -> bytes:
    data = sys.stdin.buffer.read(_MOST_STDIN + 1)
    if len(data) > _MOST_STDIN:
        what = f"standard input has more than {_MOST_STDIN} bytes"
        raise error(ErrorCode.TOO_LARGE, what, hint="without --session it may have any length")
    return data


def _entries(place: Place, config: Config, begin: _Begin) -> Generator[Entry]:
    """Yield what comes out of the command. The SDK's own `exec` hands on text, which may not be what was written."""
    with (
        closing(place.transport(config)) as transport,
        closing(begin(place, transport)) as found,
    ):
        for followed in found:
            yield followed.entry
