"""Terminals over HTTP, and over the WebSocket that a viewer has. Source: docs/protocol.md, "The terminal's WebSocket"."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from tornado.websocket import WebSocketClosedError

from sandcell.environment import merge_env
from sandcell.guest.births import id_of
from sandcell.guest.journal_socket import JournalSocket
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import await_news, send_journal
from sandcell.guest.waits import within
from sandcell.job_bodies import CreateTerminal, ResizeTerminal, TerminalInfo
from sandcell_container.errors import SandcellError
from sandcell_container.frames import Cursor, encode_entry
from sandcell_container.guest.pty import Size
from sandcell_container.guest.terminal import TerminalPlan

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sandcell_container.frames import Entry
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.terminal import Terminal
    from sandcell_container.journal import Journal

__all__ = [
    "TerminalEventsHandler",
    "TerminalHandler",
    "TerminalInputHandler",
    "TerminalIo",
    "TerminalResizeHandler",
    "TerminalWaitHandler",
    "TerminalsHandler",
    "plan_of",
]

SDK = "sdk"
WAIT_S = 20.0
MAX_WAIT_S = 600.0
MAX_TYPED = 2**20  # bytes of one frame: they are held while nothing reads them
_NORMAL = 1000
_BAD_DATA = 1007


class TerminalsHandler(ApiHandler):
    """POST, GET /v1/terminals"""

    async def post(self) -> None:
        body = self.body(CreateTerminal, lone="surrogateescape")
        terminals, given = self.guest.terminals, id_of(body.id, "trm")
        take_back = partial(terminals.delete, who=SDK)
        async with self.guest.births.making(
            self, ("terminal", given), find=terminals.get, take_back=take_back
        ):
            terminal = await terminals.create(given, plan_of(body, self.guest.boot))
        self.reply(_info_of(terminal), status=201)

    def get(self) -> None:
        self.reply([_info_of(each) for each in self.guest.terminals.list()])


class TerminalHandler(ApiHandler):
    """GET, DELETE /v1/terminals/{id}"""

    def get(self, terminal_id: str) -> None:
        self.reply(_info_of(self.guest.terminals.get(terminal_id)))

    async def delete(self, terminal_id: str) -> None:
        self.reply(await self.guest.terminals.delete(terminal_id, who=SDK))


class TerminalResizeHandler(ApiHandler):
    """POST /v1/terminals/{id}/resize"""

    def post(self, terminal_id: str) -> None:
        terminal = self.guest.terminals.get(terminal_id)
        body = self.body(ResizeTerminal)
        terminal.resize(Size(body.cols, body.rows))
        self.reply(_info_of(terminal))


class TerminalInputHandler(ApiHandler):
    """POST /v1/terminals/{id}/input: raw bytes, typed."""

    async def post(self, terminal_id: str) -> None:
        terminal = self.guest.terminals.get(terminal_id)
        await terminal.write(self.raw_body())
        self.reply(_info_of(terminal))


class TerminalWaitHandler(ApiHandler):
    """GET /v1/terminals/{id}/wait?timeout=: its End, once it has come."""

    async def get(self, terminal_id: str) -> None:
        terminal = self.guest.terminals.get(terminal_id)
        timeout = self.number("timeout", most=MAX_WAIT_S)
        with self.while_client_waits():
            ended = await within(terminal.wait(), WAIT_S if timeout is None else timeout, terminal_id)
            self.reply(ended.end)


class TerminalEventsHandler(ApiHandler):
    """GET /v1/terminals/{id}/events: what came out, as frames."""

    async def get(self, terminal_id: str) -> None:
        terminal = self.guest.terminals.get(terminal_id)
        journal = terminal.journal
        cursor = self.get_query_argument("cursor", "")
        after = Cursor.parse(cursor, epoch=journal.epoch) if cursor else terminal.replay_start
        if self.flag("follow", default=True):
            with terminal.view():
                await send_journal(self, journal, after=after)
            return
        patience = self.number("wait", most=MAX_WAIT_S) or 0.0
        with self.while_client_waits():
            await await_news(journal, after, patience)
            await send_journal(self, journal, after=after, follow=False)


class TerminalIo(JournalSocket):
    """WS /v1/terminals/{id}/io: one viewer, who sees what comes out and types.

    Down: the greeting, then binary frames that hold journal frames; after ENDED the connection is closed. Up: binary
    frames are typed, text frames are notes. Without a cursor the last output is replayed.
    """

    def find(self, noun_id: str) -> Journal:
        self._terminal = self.guest.terminals.get(noun_id)
        return self._terminal.journal

    def start(self) -> Cursor:
        return self._terminal.replay_start

    def attached(self) -> AbstractContextManager[None]:
        return self._terminal.view()

    @property
    def max_message_size(self) -> int:
        return MAX_TYPED

    async def on_message(self, message: str | bytes) -> None:
        """Act on a frame. The next one is read when this one is done: who types faster than it is taken waits."""
        try:
            if isinstance(message, bytes):
                await self._terminal.write(message)
            else:
                note = msgspec.json.decode(message, type=_ResizeNote)
                self._terminal.resize(Size(note.cols, note.rows))
        except msgspec.MsgspecError as problem:
            self.close(_BAD_DATA, f"no note: {problem}"[:100])
        except SandcellError as problem:
            self._refuse(problem)

    async def greet(self, after: Cursor) -> None:
        size, live = self._terminal.size, self._terminal.journal.cursor
        await self.note(
            "hello", epoch=after.epoch, cursor=str(after), live=str(live), cols=size.cols, rows=size.rows
        )

    async def tell(self, batch: list[Entry]) -> None:
        await self.write_message(b"".join(map(encode_entry, batch)), binary=True)

    def over(self) -> None:
        self.close(_NORMAL, "the terminal has ended")

    def _refuse(self, problem: SandcellError) -> None:
        """Say what was not done. A connection that broke meanwhile hears nothing any more."""
        with suppress(WebSocketClosedError):
            self.note("refused", **problem.to_dict())


class _ResizeNote(msgspec.Struct, tag_field="note", tag="resize", frozen=True):
    cols: int
    rows: int


def plan_of(body: CreateTerminal, boot: GuestBoot) -> TerminalPlan:
    return TerminalPlan(
        command=body.command,
        cwd=boot.folder_of(body.cwd),
        env=merge_env(boot.base_env, body.env),
        own=body.env or {},
        size=Size(body.cols, body.rows),
    )


def _info_of(terminal: Terminal) -> TerminalInfo:
    return TerminalInfo(
        id=terminal.id,
        command=terminal.plan.command,
        cwd=terminal.plan.cwd,
        cols=terminal.size.cols,
        rows=terminal.size.rows,
        pid=terminal.pid,
        status="running" if terminal.end is None else "ended",
        created_at=terminal.created_at,
        viewers=terminal.viewers,
        end=terminal.end,
    )
