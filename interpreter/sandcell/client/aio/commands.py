"""Stateless commands: `exec`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from sandcell.client.aio.channel import call
from sandcell.client.aio.follow import AsyncFollower
from sandcell.client.protocol import Request, path_of
from sandcell.command import CommandOutput, ExecResult, command_failed
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from sandcell.api import ExecRequest
    from sandcell.client.aio.follow import Followed
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.command import StreamName

__all__ = ["read_result", "run_command"]


async def run_command(
    transport: AsyncTransport,
    request: ExecRequest,
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
    check: bool,
) -> ExecResult:
    """Run one command and return its result. It ends when this is given up."""
    first = Request(method="POST", path=path_of("exec"), body=encode_names(request))
    entries = AsyncFollower(transport, first, None).entries()
    result = await read_result(entries, max_output=max_output, callbacks=callbacks)
    if check and not result.ok:
        shown = request.command if isinstance(request.command, str) else " ".join(request.command)
        raise command_failed(result, shown)
    return result


async def read_result(
    entries: AsyncGenerator[Followed],
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
) -> ExecResult:
    """Read what comes of one command to its end and return its result; `entries` are closed.

    Raises:
        Gone (SANDBOX_GONE): the sandbox ended under it.
    """
    output = CommandOutput(max_output=max_output)
    async with aclosing(entries):
        async for followed in entries:
            added = output.add(followed.entry)
            if added is not None:
                await _tell(callbacks, *added)
    for name, text in output.rest():
        await _tell(callbacks, name, text)
    result = output.result()
    if result.end.cause == "lost":
        raise error(
            ErrorCode.SANDBOX_GONE,
            "the sandbox ended under the command: how that ended is not known",
            hint="create a new sandbox",
            details={"admitted": True},
        )
    return result


async def _tell(
    callbacks: Mapping[StreamName, Callable[[str], object] | None], name: StreamName, text: str
) -> None:
    callback = callbacks.get(name)
    if callback is not None and text:
        await call(callback, text)
