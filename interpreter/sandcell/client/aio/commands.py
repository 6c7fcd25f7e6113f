"""Stateless commands: `exec`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from sandcell.client.aio.channel import call
from sandcell.client.aio.follow import AsyncFollower, read_entries
from sandcell.client.protocol import Cut, Request, path_of
from sandcell.command import CommandOutput, ExecResult, command_failed
from sandcell.job_bodies import EXEC_TYPE, before_stdin
from sandcell.names import encode_names
from sandcell_container.frames import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from sandcell.client.aio.follow import Followed
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.stdin import StdinFile
    from sandcell.command import StreamName
    from sandcell.job_bodies import ExecRequest

__all__ = ["command_entries", "read_result", "run_command"]


async def run_command(
    transport: AsyncTransport,
    command: ExecRequest,
    stdin: StdinFile | None,
    *,
    max_output: int,
    callbacks: Mapping[StreamName, Callable[[str], object] | None],
    check: bool,
) -> ExecResult:
    """Run one command and return its result. It ends when this is given up."""
    entries = command_entries(transport, command, stdin)
    result = await read_result(transport, entries, max_output=max_output, callbacks=callbacks)
    if check and not result.ok:
        shown = command.command if isinstance(command.command, str) else " ".join(command.command)
        raise command_failed(result, shown)
    return result


async def read_result(
    transport: AsyncTransport,
    entries: AsyncGenerator[Followed],
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
    async with aclosing(entries):
        async for followed in entries:
            added = output.add(followed.entry)
            if added is not None:
                await _tell(callbacks, *added)
    for name, text in output.rest():
        await _tell(callbacks, name, text)
    result = output.result()
    if result.end.cause == "lost":
        raise await transport.lost(admitted=True)
    return result


def command_entries(
    transport: AsyncTransport, command: ExecRequest, stdin: StdinFile | None
) -> AsyncGenerator[Followed]:
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
    return AsyncFollower(transport, request, None).entries()


async def _fed_entries(transport: AsyncTransport, body: bytes, stdin: StdinFile) -> AsyncGenerator[Followed]:
    request = Request(
        method="POST",
        path=path_of("exec"),
        body=before_stdin(body),
        content_type=EXEC_TYPE,
        streamed=True,
        repeatable=False,
    )
    async with transport.converse(request, stdin) as answer:
        why = "the stream ended before its end was told"
        try:
            async with aclosing(read_entries(transport, answer)) as entries:
                async for followed in entries:
                    yield followed
                    if followed.entry.kind == Kind.ENDED:
                        return
        except Cut as cut:
            why = str(cut)
        raise await transport.missed(why, admitted=True)


async def _tell(
    callbacks: Mapping[StreamName, Callable[[str], object] | None], name: StreamName, text: str
) -> None:
    callback = callbacks.get(name)
    if callback is not None and text:
        await call(callback, text)
