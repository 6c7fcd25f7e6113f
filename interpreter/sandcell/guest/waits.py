"""Waiting for what a process does: it ends, it says something, it answers on a port."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from sandcell.job_bodies import FoundText, PortAnswer
from sandcell.lines import LastLines, Lines, ended_first
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sandcell_container.errors import SandcellError
    from sandcell_container.guest.process import Process

__all__ = ["find_port", "find_text", "within"]

T = TypeVar("T")

_HOSTS = ("127.0.0.1", "::1")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
_TRY_S = 2.0  # for one who takes a connection and does not answer yet
_LAST_OUTPUT = 2**13
_PATH = re.compile(r"/[!-~]*", re.ASCII)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_WELL = range(200, 400)


async def within(waiting: Awaitable[T], seconds: float, what: str) -> T:
    """Return what `waiting` does.

    Raises:
        WaitTimeout: it has not come within so many seconds.
    """
    try:
        async with asyncio.timeout(seconds):
            return await waiting
    except TimeoutError:
        raise error(
            ErrorCode.WAIT_TIMEOUT,
            f"{what[:80]} has not come to it within {seconds:g} s",
            hint="it goes on: wait again",
        ) from None


async def find_text(process: Process, text: str) -> FoundText:
    """Return the first line that holds `text`, of what the process has said and will say; counts as reading.

    Text and no pattern: patterns exist that take for ever, and the guest has one thread for everybody.

    Raises:
        Failed (COMMAND_FAILED): it ended without, see `ended_first`.
    """
    lines, last = Lines(), LastLines()
    with process.read() as journal:
        async for batch in journal.follow():
            for entry in batch:
                for line in lines.add(entry):
                    last.add(line)
                    if text in line.text:
                        cursor = Cursor(journal.epoch, entry.seq, entry.offset)
                        return FoundText(stream=line.stream, line=line.text, cursor=str(cursor))
            await asyncio.sleep(0)  # others have a turn between two batches of what is there already
    raise _ended_first(process, f"said {text[:80]!r}", last)


async def find_port(process: Process, port: int, path: str | None) -> PortAnswer:
    """Return when something in the sandbox takes connections on `port` of the loopback; with `path`, when its GET of that is
    answered with a status of 200 to 399.

    Tries again and again, because no event tells of a port that something else opens; ends at once when the process does.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): `path` is none.
        Failed (COMMAND_FAILED): the process ended before, see `ended_first`.
    """
    if path is not None and _PATH.fullmatch(path) is None:
        raise error(ErrorCode.INVALID_ARGUMENT, f"http={path[:80]!r} is no path", hint="one as /health")
    async with asyncio.TaskGroup() as group:
        trying = group.create_task(_try_on(port, path))
        ending = group.create_task(process.wait())
        await asyncio.wait({trying, ending}, return_when=asyncio.FIRST_COMPLETED)
        trying.cancel()
        ending.cancel()
    if not trying.cancelled():
        return trying.result()
    last, lines = LastLines(), Lines()
    for entry in process.journal.last(_LAST_OUTPUT):
        for line in lines.add(entry):
            last.add(line)
    raise _ended_first(process, f"answered on port {port}", last)


async def _try_on(port: int, path: str | None) -> PortAnswer:
    pause_s = _FIRST_PAUSE_S
    while True:
        for host in _HOSTS:
            with suppress(OSError, TimeoutError):  # nobody there, or not yet: that is what this waits for
                async with asyncio.timeout(_TRY_S):
                    status = await _try_once(host, port, path)
                if path is None or status in _WELL:
                    return PortAnswer(port=port, status=status)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)


async def _try_once(host: str, port: int, path: str | None) -> int | None:
    """Return the status that is answered; None where no path is asked for, or the answer is no HTTP."""
    reader, writer = await asyncio.open_connection(host, port, limit=2**12)
    try:
        if path is None:
            return None
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
        found = _STATUS.match(await reader.read(2**12))
        return int(found[1]) if found else None
    finally:
        writer.transport.abort()


def _ended_first(process: Process, before: str, last: LastLines) -> SandcellError:
    assert process.end is not None, "who waits for its output or end has seen the end"
    return ended_first(process.id, before, process.end, last.lines())
