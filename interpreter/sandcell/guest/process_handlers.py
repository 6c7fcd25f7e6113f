"""Processes over HTTP: start, look, follow, wait, signal, end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import structs

from sandcell.guest.births import id_of
from sandcell.guest.pages import PageQuery, read_page
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import join_entries, journal_headers, send_journal
from sandcell.guest.waits import find_port, find_text, within
from sandcell.job_bodies import CreateProcess, KillProcess, ProcessStatus, Removed, SendSignal
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor, Kind
from sandcell_container.signals import signal_number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandcell.job_bodies import FoundText, PortAnswer, ProcessInfo
    from sandcell_container.guest.process import Process

__all__ = [
    "ProcessEventsHandler",
    "ProcessHandler",
    "ProcessKillHandler",
    "ProcessSignalHandler",
    "ProcessStdinHandler",
    "ProcessWaitHandler",
    "ProcessesHandler",
]

SDK = "sdk"
STREAMS = {"stdout": Kind.STDOUT, "stderr": Kind.STDERR}
STATUSES = ("running", "ended")
WAIT_S = 20.0
MAX_WAIT_S = 600.0
MAX_COUNT = 10**6


class ProcessesHandler(ApiHandler):
    """POST, GET, DELETE /v1/processes"""

    async def post(self) -> None:
        processes, body = self.guest.processes, self.body(CreateProcess, lone="surrogateescape")
        body = structs.replace(body, id=id_of(body.id, "prc"))
        take_back = partial(processes.remove, who=SDK)
        async with self.guest.births.making(
            self, ("process", str(body.id)), find=processes.get, take_back=take_back
        ):
            process = await processes.start(body)
        self.set_header("Sandcell-Id", process.id)
        self.reply(processes.describe(process), status=201)

    def get(self) -> None:
        processes = self.guest.processes
        session_id = self.get_query_argument("session", "") or None
        status = cast("ProcessStatus | None", self.choice("status", STATUSES) or None)
        self.reply(
            [processes.describe(each) for each in processes.list(session_id=session_id, status=status)]
        )

    async def delete(self) -> None:
        """End all that run; with `status=ended` forget those that have ended."""
        if self.choice("status", STATUSES, default="running") == "ended":
            self.reply(Removed(removed=self.guest.processes.clean()))
        else:
            self.reply(await self.guest.processes.kill_all(who=SDK))


class ProcessHandler(ApiHandler):
    """GET, DELETE /v1/processes/{id}"""

    def get(self, process_id: str) -> None:
        self.reply(_describe(self, process_id))

    async def delete(self, process_id: str) -> None:
        self.reply(await self.guest.processes.remove(process_id, who=SDK))


class ProcessSignalHandler(ApiHandler):
    """POST /v1/processes/{id}/signal"""

    def post(self, process_id: str) -> None:
        body = self.body(SendSignal)
        self.guest.processes.get(process_id).signal(signal_number(body.signal), body.scope)
        self.reply(_describe(self, process_id))


class ProcessKillHandler(ApiHandler):
    """POST /v1/processes/{id}/kill"""

    async def post(self, process_id: str) -> None:
        grace = self.body(KillProcess).grace
        if grace is not None and not 0 <= grace <= MAX_WAIT_S:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"grace={grace} is not from 0 to {MAX_WAIT_S:g} seconds",
                details={"field": "grace"},
            )
        self.reply(await self.guest.processes.kill(process_id, grace, who=SDK))


class ProcessStdinHandler(ApiHandler):
    """POST /v1/processes/{id}/stdin: raw bytes; answered when they have been taken."""

    async def post(self, process_id: str) -> None:
        process = self.guest.processes.get(process_id)
        data, timeout = self.raw_body(), self.number("timeout", most=MAX_WAIT_S)
        if data:
            await process.write(data, timeout_s=WAIT_S if timeout is None else timeout)
        if self.flag("close", default=False):
            process.close_stdin()
        self.reply({"written": len(data)})


class ProcessEventsHandler(ApiHandler):
    """GET /v1/processes/{id}/events: as they come, or with `follow=false` a page of what is there."""

    async def get(self, process_id: str) -> None:
        process = self.guest.processes.get(process_id)
        query, follow = self._query(process), self.flag("follow", default=True)
        if query.after is not None:
            process.note_read(query.after)
        if not follow:
            self._send_page(process, query)
            return
        if query.limit is not None or query.tail is not None:
            raise error(ErrorCode.INVALID_ARGUMENT, "limit and tail are for follow=false")
        wanted = query.wants if query.stream is not None else None
        with process.read() as journal:
            await send_journal(self, journal, after=query.after, wanted=wanted)

    def _query(self, process: Process) -> PageQuery:
        cursor, stream = self.get_query_argument("cursor", ""), self.choice("stream", STREAMS)
        limit, tail = self.number("limit", least=1, most=MAX_COUNT), self.number("tail", most=MAX_COUNT)
        if tail is not None and cursor:
            raise error(ErrorCode.INVALID_ARGUMENT, "cursor and tail exclude each other")
        return PageQuery(
            after=Cursor.parse(cursor, epoch=process.journal.epoch) if cursor else None,
            stream=STREAMS.get(stream),
            limit=None if limit is None else int(limit),
            tail=None if tail is None else int(tail),
        )

    def _send_page(self, process: Process, query: PageQuery) -> None:
        page = read_page(process.journal, query)
        encode = journal_headers(self, process.journal.epoch)
        self.set_header("Sandcell-Cursor", str(page.cursor))
        self.set_header("Sandcell-Ended", "true" if page.is_done else "false")
        self.set_header("Sandcell-Truncated", "true" if page.is_truncated else "false")
        self.finish(join_entries(page.entries, encode))


class ProcessWaitHandler(ApiHandler):
    """GET /v1/processes/{id}/wait?for=exit, log or port"""

    async def get(self, process_id: str) -> None:
        waits: dict[str, Callable[[str], Awaitable[object]]] = {
            "exit": self.guest.processes.wait,
            "log": self._text,
            "port": self._port,
        }
        wait = waits[self.choice("for", waits, default="exit")]
        timeout = self.number("timeout", most=MAX_WAIT_S)
        with self.while_client_waits():
            self.reply(await within(wait(process_id), WAIT_S if timeout is None else timeout, process_id))

    async def _text(self, process_id: str) -> FoundText:
        text = self.get_query_argument("text", "", strip=False)
        if not text:
            raise error(ErrorCode.INVALID_ARGUMENT, "what to wait for is missing", hint="for=log&text=ready")
        return await find_text(self.guest.processes.get(process_id), text)

    async def _port(self, process_id: str) -> PortAnswer:
        port = self.number("port", least=1, most=2**16 - 1)
        if port is None:
            raise error(ErrorCode.INVALID_ARGUMENT, "the port is missing", hint="for=port&port=8000")
        path = self.get_query_argument("http", "") or None
        return await find_port(self.guest.processes.get(process_id), int(port), path)


def _describe(handler: ApiHandler, process_id: str) -> ProcessInfo:
    processes = handler.guest.processes
    return processes.describe(processes.get(process_id))
