"""A process as its caller holds it: follow it, wait for it, write to it, end it."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

import msgspec

from sandcell.client.aio.channel import Beside, call
from sandcell.client.aio.follow import AsyncFollower
from sandcell.client.aio.pages import fetch_page
from sandcell.client.aio.waits import wait_in_turns
from sandcell.client.checks import check_count, check_data, check_text
from sandcell.client.process_options import (
    ProcessCallbacks,
    Scope,
    StreamName,
    check_grace,
    check_pattern,
    check_scope,
    check_signal,
    page_query,
    seconds_of,
)
from sandcell.client.protocol import Request, path_of
from sandcell.client.turns import deadline_of, is_past, turn_of
from sandcell.events import Ended, Event, Stderr, Stdout
from sandcell.job_bodies import KillProcess, PortAnswer, ProcessInfo, SendSignal
from sandcell.lines import ended_first
from sandcell.logs import LogDecoder, LogMatch, LogSearch, Page, text_of
from sandcell_container.end import End, KillReport
from sandcell_container.errors import ErrorCode, SandcellError, WaitTimeout, error

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from sandcell.client.aio.transport import AsyncTransport

__all__ = ["AsyncProcess"]

T = TypeVar("T")

_SETTLE_S = 0.1  # of a line that may go on: then what has matched at its end is taken
_PIECE = 2**20
_END_PATIENCE_S = 60.0  # what killing may take beside the grace


class AsyncProcess:
    """One process. It goes on whatever becomes of this handle, until nothing of its tree is left.

    With callbacks it is followed in a task, which ends with the process, with `close`, or with the sandbox's handle.
    """

    def __init__(
        self, transport: AsyncTransport, info: ProcessInfo, callbacks: ProcessCallbacks | None = None
    ) -> None:
        self._transport = transport
        self._info = info
        self._callbacks = callbacks or ProcessCallbacks()
        self._told: str | None = None  # the cursor behind what the callbacks have been told
        self._is_told = not self._callbacks
        self._beside = Beside(self._tell) if self._callbacks else None

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def pid(self) -> int:
        """Its number inside the sandbox."""
        return self._info.pid

    @property
    def command(self) -> str | tuple[str, ...]:
        return self._info.command

    @property
    def cwd(self) -> str:
        return self._info.cwd

    @property
    def session_id(self) -> str | None:
        return self._info.session_id

    @property
    def status(self) -> str:
        """What was last heard: running or ended."""
        return self._info.status

    @property
    def started_at(self) -> float:
        return self._info.started_at

    @property
    def end(self) -> End | None:
        """How it ended, where that was heard."""
        return self._info.end

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not hold as asked."""
        return self._info.warnings

    async def refresh(self) -> ProcessInfo:
        """Ask for what is known of it now."""
        self._info = await self._transport.call(Request(method="GET", path=self._path()), ProcessInfo)
        return self._info

    # --- what it writes

    async def output(self, stream: StreamName = "stdout") -> str:
        """Return what is kept of a stream so far, as text; a line says where some is missing."""
        events, cursor = list[Event](), None
        while True:
            page = await self.logs(cursor, stream=stream)
            events += page.events
            if page.done or page.next_cursor == cursor or not page.events:
                return text_of(events)
            cursor = page.next_cursor

    async def logs(
        self,
        cursor: str | None = None,
        *,
        limit: int | None = None,
        stream: StreamName | None = None,
        tail: int | None = None,
    ) -> Page:
        """Return what it has written so far: from the start or behind `cursor`, about 1 MiB at most.

        `limit`: at most so many pieces of output. `stream`: only of that one. `tail`: the last so many lines.

        Raises:
            InvalidRequest (STALE_CURSOR): the cursor is of another life of the sandbox.
        """
        if limit is not None:
            check_count(limit, what="limit", least=1)
        if tail is not None:
            check_count(tail, what="tail", least=0)
        decoder = LogDecoder(cursor)
        query = page_query(decoder.start, limit=limit, stream=stream, tail=tail)
        page = await fetch_page(
            self._transport, Request(method="GET", path=self._path("events"), query=query)
        )
        return Page(
            events=[event for entry in page.entries for event in decoder.events(entry, page.epoch)],
            next_cursor=decoder.cursor(page.cursor),
            done=page.is_done,
            truncated=page.is_truncated,
        )

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.follow()

    async def follow(self, cursor: str | None = None) -> AsyncGenerator[Event]:
        """Yield its events from the start, or behind the `cursor` of an event, up to and with Ended.

        Following again from the cursor of the last event gives the rest, without loss or repetition; what is no
        longer kept is told by a Gap.

        Raises:
            InvalidRequest (STALE_CURSOR): the cursor is of another life of the sandbox.
        """
        decoder = LogDecoder(cursor)
        async with aclosing(self._follower(decoder.start).entries()) as entries:
            async for entry, place in entries:
                for event in decoder.events(entry, place.epoch):
                    self._note(event)
                    yield event

    # --- what it reads

    async def write(self, data: str | bytes, *, timeout: float | None = 30.0) -> None:
        """Write to its standard input, as fast as it reads; text as UTF-8.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): it was started without `stdin=True`.
            Gone (LOST): it has ended, or reads its input no more.
            WaitTimeout: it has not read all within `timeout` seconds; `details["written"]` says how many bytes it took.
        """
        given, deadline = check_data(data, what="data"), deadline_of(timeout)
        written = 0
        while written < len(given):
            try:
                await self._send(given[written : written + _PIECE], turn_of(deadline))
                written += len(given[written : written + _PIECE])
            except WaitTimeout as problem:
                written += problem.details.get("written", 0)
                if is_past(deadline):
                    raise error(
                        ErrorCode.WAIT_TIMEOUT,
                        f"the process {self.id} has read {written} of {len(given)} bytes within {timeout} s",
                        hint=problem.hint,
                        details={"written": written},
                    ) from problem

    async def close_stdin(self) -> None:
        """Let it see the end of its input. Twice is fine."""
        await self._transport.fetch(Request(method="POST", path=self._path("stdin"), query={"close": "true"}))

    # --- waits

    async def wait(self, timeout: float | None = None) -> End:
        """Wait until nothing of its tree is left and return how the started process ended; it goes on after `timeout`.

        Callbacks have been called for all of it then. In the blocking client this is where they are called.

        Raises:
            WaitTimeout (WAIT_TIMEOUT): it has not ended within so many seconds.
        """
        seconds, deadline = seconds_of(timeout), deadline_of(timeout)
        if self._beside is not None and not self._is_told:
            try:
                await self._beside.join(deadline)
            except TimeoutError as problem:
                raise self._late("ended", seconds) from problem
        end = await self._wait_for({"for": "exit"}, End, "ended", seconds, deadline)
        self._note_end(end)
        return end

    async def wait_for_log(self, pattern: str | re.Pattern[str], timeout: float | None = None) -> LogMatch:
        """Wait until a line of its output matches `pattern`, which may be one that came before; returns the match.

        `pattern` is searched in each line of either stream, without its end; also in one that is not finished, such as
        a prompt. A line of more than 64 KiB is looked at in part.

        Raises:
            Failed (COMMAND_FAILED): it ended without; its end and last lines are in the error's details.
            WaitTimeout (WAIT_TIMEOUT): it has not come within `timeout` seconds.
        """
        search, seconds, late = LogSearch(check_pattern(pattern)), seconds_of(timeout), deadline_of(timeout)
        follower = self._follower(None)
        follower.deadline = late
        try:
            async with aclosing(follower.entries()) as entries:
                async for followed in entries:
                    if (found := search.add(followed.entry, followed.cursor.epoch)) is not None:
                        return found
                    soon = time.monotonic() + _SETTLE_S
                    follower.deadline = late if search.maybe is None else min(soon, late or soon)
        except SandcellError as problem:
            if not (follower.is_late and isinstance(problem.__cause__, TimeoutError)):
                raise
            if search.maybe is None:
                raise self._late(f"said what matches {search.pattern.pattern!r}", seconds) from problem
        if search.maybe is not None:
            return search.maybe
        end = await self.wait()
        raise ended_first(self.id, f"said what matches {search.pattern.pattern!r}", end, search.last_lines)

    async def wait_for_port(
        self, port: int, timeout: float | None = None, http: str | None = None
    ) -> PortAnswer:
        """Wait until something in the sandbox takes connections on `port` of its loopback; with `http`, a path such as
        "/health", until a GET of that is answered with a status of 200 to 399.

        Raises:
            Failed (COMMAND_FAILED): the process ended before; its end and last lines are in the error's details.
            WaitTimeout (WAIT_TIMEOUT): it has not come to it within `timeout` seconds.
        """
        seconds, deadline = seconds_of(timeout), deadline_of(timeout)
        query = {"for": "port", "port": str(check_count(port, what="port", least=1))}
        if http is not None:
            query["http"] = check_text(http, what="http")
        return await self._wait_for(query, PortAnswer, f"answered on port {port}", seconds, deadline)

    # --- signals and the end

    async def signal(self, signal: int | str, *, scope: Scope = "group") -> None:
        """Send a signal, by number or name ("HUP", "SIGHUP"), to its process group, to the started process alone, or to
        its whole tree. One that has ended is left alone.

        Raises:
            InvalidRequest (UNKNOWN_SIGNAL): there is no such signal.
        """
        body = msgspec.json.encode(SendSignal(signal=check_signal(signal), scope=check_scope(scope)))
        self._info = await self._transport.call(
            Request(method="POST", path=self._path("signal"), body=body, repeatable=False), ProcessInfo
        )

    async def kill(self, grace: float = 2.0) -> KillReport:
        """End its whole tree: SIGTERM, `grace` seconds, SIGKILL; with 0 SIGKILL at once. Ended already is fine.

        Returns how many processes were signalled, and how many could not be ended: these run on.
        """
        seconds = check_grace(grace)
        body = msgspec.json.encode(KillProcess(grace=seconds))
        request = Request(
            method="POST", path=self._path("kill"), body=body, patience=seconds + _END_PATIENCE_S
        )
        return await self._transport.call(request, KillReport)

    async def remove(self) -> None:
        """End it where it runs, and forget it with its output: its id is free again."""
        await self._transport.fetch(Request(method="DELETE", path=self._path(), patience=_END_PATIENCE_S))

    async def close(self) -> None:
        """Call no callback any more; the process goes on. Twice is fine."""
        if self._beside is not None:
            await self._beside.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.status})>"

    # --- insides

    async def _tell(self, deadline: float | None) -> None:
        """Follow it from where the callbacks were told last, and tell them. TimeoutError past `deadline`."""
        decoder = LogDecoder(self._told)
        follower = self._follower(decoder.start)
        follower.deadline = deadline
        try:
            async with aclosing(follower.entries()) as entries:
                async for entry, place in entries:
                    for event in decoder.events(entry, place.epoch):
                        self._told = event.cursor
                        await self._tell_one(event)
        except SandcellError as problem:
            if follower.is_late and isinstance(problem.__cause__, TimeoutError):
                raise TimeoutError(str(problem)) from problem
            raise
        self._is_told = True

    async def _tell_one(self, event: Event) -> None:
        self._note(event)
        callbacks = self._callbacks
        if isinstance(event, Stdout | Stderr) and callbacks.on_output is not None:
            await call(callbacks.on_output, event)
        elif isinstance(event, Ended) and callbacks.on_exit is not None:
            await call(callbacks.on_exit, event.end)

    async def _wait_for(
        self,
        query: Mapping[str, str],
        kind: type[T],
        what: str,
        seconds: float | None,
        deadline: float | None,
    ) -> T:
        try:
            return await wait_in_turns(self._transport, self._path("wait"), query, kind, deadline)
        except WaitTimeout as problem:
            raise self._late(what, seconds) from problem

    async def _send(self, data: bytes, turn: float) -> None:
        await self._transport.fetch(
            Request(
                method="POST",
                path=self._path("stdin"),
                query={"timeout": f"{turn:.3f}"},
                body=data,
                content_type="application/octet-stream",
                repeatable=False,
                patience=turn + self._transport.reply_timeout,
            )
        )

    def _follower(self, start: str | None) -> AsyncFollower:
        first = Request(
            method="GET", path=self._path("events"), query={} if start is None else {"cursor": start}
        )
        return AsyncFollower(self._transport, first, first)

    def _path(self, *verb: str) -> str:
        return path_of("processes", self.id, *verb)

    def _note(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._note_end(event.end)

    def _note_end(self, end: End) -> None:
        self._info = msgspec.structs.replace(self._info, status="ended", end=end)

    def _late(self, what: str, seconds: float | None) -> SandcellError:
        return error(
            ErrorCode.WAIT_TIMEOUT,
            f"the process {self.id} has not {what} within {seconds} s",
            hint="it goes on: wait again, or kill it",
        )
