# Made from ../aio/commands.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Stateless commands: `exec`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from sandcell.client.blocking.channel import call
from sandcell.client.blocking.follow import Follower, read_entries
from sandcell.client.protocol import Cut, Request, path_of
from sandcell.command import CommandOutput, ExecResult, command_failed
from sandcell.job_bodies import EXEC_TYPE, before_stdin
from sandcell.names import encode_names
from sandcell_container.frames import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from sandcell.client.blocking.follow import Followed
    from sandcell.client.blocking.transport import Transport
    from sandcell.client.stdin import StdinFile
    from sandcell.command import StreamName
    from sandcell.job_bodies import ExecRequest

__all__ = ["command_entries", "read_result", "run_command"]


def run_command(
    transport: Transport,
    command: ExecRequest,
    stdin: StdinFile | None,
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
    check: bool,
) -> ExecResult:
    """Run one command and return its result. It ends when this is given up."""
    entries = command_entries(transport, command, stdin)
    result = read_result(transport, entries, max_output=max_output, callbacks=callbacks)
    if check and not result.ok:
        shown = command.command if isinstance(command.command, str) else " ".join(command.command)
        raise command_failed(result, shown)
    return result


def read_result(
    transport: Transport,
    entries: Generator[Followed],
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
) -> ExecResult:
    """Read what comes of one command to its end and return its result; `entries` are closed.

    Raises:
        Gone (SANDBOX_GONE): the sandbox ended under it.
    """
    heard: list[StreamName] = [name for name, callback in callbacks.items() if callback is not None]
    output = CommandOutput(max_output=max_output, heard=heard)
    with closing(entries):
        for followed in entries:
            added = output.add(followed.entry)
            if added is not None:
                _tell(callbacks, *added)
    for name, text in output.rest():
        _tell(callbacks, name, text)
    result = output.result()
    if result.end.cause == "lost":
        raise transport.lost(admitted=True)
    return result


def command_entries(
    transport: Transport, command: ExecRequest, stdin: StdinFile | None
) -> Generator[Followed]:
    """Return what runs one command and yields what comes of it, up to ENDED. It ends when that is closed.

    What `stdin` gives is sent while output comes, as fast as the command reads it. What is left of it at the end of the
    command stays there, but for what was on its way.

    Raises:
        SandcellError: the guest said so; SANDBOX_GONE or UNREACHABLE where it stopped to say anything.
    """
    body = encode_names(command)
    if stdin is not None:
        return _fed_entries(transport, body, stdin)
    request = Request(method="POST", path=path_of("exec"), body=body)
    return Follower(transport, request, None).entries()


def _fed_entries(transport: Transport, body: bytes, stdin: StdinFile) -> Generator[Followed]:
    request = Request(
        method="POST",
        path=path_of("exec"),
        body=before_stdin(body),
        content_type=EXEC_TYPE,
        streamed=True,
        repeatable=False,
    )
    with transport.converse(request, stdin) as answer:
        why = "the stream ended before its end was told"
        try:
            with closing(read_entries(transport, answer)) as entries:
                for followed in entries:
                    yield followed
                    if followed.entry.kind == Kind.ENDED:
                        return
        except Cut as cut:
            why = str(cut)
        raise transport.missed(why, admitted=True)


def _tell(
    callbacks: Mapping[StreamName, Callable[[str], object] | None], name: StreamName, text: str
) -> None:
    callback = callbacks.get(name)
    if callback is not None and text:
        call(callback, text)
