# Made from ../aio/commands.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Stateless commands: `exec`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from sandcell.client.blocking.channel import call
from sandcell.client.blocking.follow import Follower
from sandcell.client.protocol import Request, path_of
from sandcell.command import CommandOutput, ExecResult, command_failed
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from sandcell.api import ExecRequest
    from sandcell.client.blocking.follow import Followed
    from sandcell.client.blocking.transport import Transport
    from sandcell.command import StreamName

__all__ = ["read_result", "run_command"]


def run_command(
    transport: Transport,
    request: ExecRequest,
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
    check: bool,
) -> ExecResult:
    """Run one command and return its result. It ends when this is given up."""
    first = Request(method="POST", path=path_of("exec"), body=encode_names(request))
    entries = Follower(transport, first, None).entries()
    result = read_result(entries, max_output=max_output, callbacks=callbacks)
    if check and not result.ok:
        shown = request.command if isinstance(request.command, str) else " ".join(request.command)
        raise command_failed(result, shown)
    return result


def read_result(
    entries: Generator[Followed],
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
) -> ExecResult:
    """Read what comes of one command to its end and return its result; `entries` are closed.

    Raises:
        Gone (SANDBOX_GONE): the sandbox ended under it.
    """
    output = CommandOutput(max_output=max_output)
    with closing(entries):
        for followed in entries:
            added = output.add(followed.entry)
            if added is not None:
                _tell(callbacks, *added)
    for name, text in output.rest():
        _tell(callbacks, name, text)
    result = output.result()
    if result.end.cause == "lost":
        raise error(
            ErrorCode.SANDBOX_GONE,
            "the sandbox ended under the command: how that ended is not known",
            hint="create a new sandbox",
            details={"admitted": True},
        )
    return result


def _tell(
    callbacks: Mapping[StreamName, Callable[[str], object] | None], name: StreamName, text: str
) -> None:
    callback = callbacks.get(name)
    if callback is not None and text:
        call(callback, text)
