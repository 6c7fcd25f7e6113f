# Made from ../aio/terminal.py by `python -m sandcell.client.generate`: change that file, not this one.
"""A terminal as its caller holds it: type into it, read what it shows, resize it, end it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from sandcell.client.blocking.follow import Follower
from sandcell.client.blocking.making import make, own_place
from sandcell.client.blocking.waits import wait_in_turns
from sandcell.client.checks import check_count, check_data, check_text
from sandcell.client.protocol import Cut, Request, decode_body, error_of, path_of
from sandcell.client.terminal_options import make_terminal
from sandcell.client.turns import deadline_of, is_past, turn_of
from sandcell.events import Ended
from sandcell.job_bodies import ResizeTerminal, TerminalInfo
from sandcell.logs import LogDecoder, text_of
from sandcell.names import encode_names
from sandcell_container.end import CommandEnd, End
from sandcell_container.errors import Conflict, ErrorCode, WaitTimeout, error
from sandcell_container.frames import Cursor, FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from sandcell.client.blocking.transport import Transport
    from sandcell.events import Event
    from sandcell_container.frames import Entry

__all__ = ["Terminal", "Terminals"]

_PIECE = 2**16
_INPUT_PATIENCE_S = 60.0  # what the guest waits for somebody to read what is typed, and others' turns
_END_PATIENCE_S = 60.0


class Terminal:
    """One terminal, with a program on it. It goes on whatever becomes of this handle.

    Plain requests and not the viewers' WebSocket: the same code serves a program with and without an event loop, and what
    is typed is answered for.
    """

    def __init__(self, transport: Transport, info: TerminalInfo) -> None:
        self._transport = transport
        self._info = info
        self._decoder = LogDecoder()
        self._place: str | None = None  # behind what was read

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def pid(self) -> int:
        """The number of the program that was started on it, inside the sandbox."""
        return self._info.pid

    @property
    def command(self) -> str | tuple[str, ...] | None:
        """None is a shell."""
        return self._info.command

    @property
    def cwd(self) -> str:
        return self._info.cwd

    @property
    def cols(self) -> int:
        """What was last heard, as for all that follows."""
        return self._info.cols

    @property
    def rows(self) -> int:
        return self._info.rows

    @property
    def status(self) -> str:
        """running or ended."""
        return self._info.status

    @property
    def end(self) -> End | None:
        """How it ended."""
        return self._info.end

    def refresh(self) -> TerminalInfo:
        """Ask for what is known of it now."""
        self._info = self._transport.call(Request(method="GET", path=self._path()), TerminalInfo)
        return self._info

    def write(self, data: str | bytes) -> None:
        """Type `data`, text as UTF-8, and return when the terminal has taken it. Enter is "\\r" or "\\n", ^C is "\\x03".

        Raises:
            Conflict (BUSY): nothing on it reads; `details["written"]` says how many bytes were typed.
            Gone (LOST): it has ended.
        """
        given = check_data(data, what="data")
        for start in range(0, len(given), _PIECE):
            piece = given[start : start + _PIECE]
            try:
                self._transport.fetch(
                    Request(
                        method="POST",
                        path=self._path("input"),
                        body=piece,
                        content_type="application/octet-stream",
                        repeatable=False,
                        patience=_INPUT_PATIENCE_S,
                    )
                )
            except Conflict as problem:
                problem.details["written"] = start + problem.details.get("written", 0)
                raise

    def read(self, timeout: float | None = None) -> str:
        """Return as text what it has shown since the last `read` of this handle, at first the last 256 KiB.

        Waits until there is something; "" when all was read and it has ended. A line says where some is missing. Bytes
        that are no UTF-8 are U+FFFD; a character is never cut.

        Raises:
            WaitTimeout (WAIT_TIMEOUT): nothing came within `timeout` seconds.
        """
        deadline = deadline_of(timeout)
        while True:
            entries, epoch = self._entries(deadline)
            events = [event for entry in entries for event in self._decoder.events(entry, epoch)]
            if events or not entries:
                return text_of(events)

    def read_bytes(self, timeout: float | None = None) -> bytes:
        """Return what `read` does, as the bytes that were written; nothing says where some are missing."""
        entries, _ = self._entries(deadline_of(timeout))
        return b"".join(entry.data for entry in entries if entry.kind == Kind.STDOUT)

    def __iter__(self) -> Iterator[Event]:
        return self.follow()

    def follow(self, cursor: str | None = None) -> Generator[Event]:
        """Yield what it shows, the last 256 KiB first or from behind the `cursor` of an event: Stdout, and at last Ended.

        Following again from the cursor of the last event gives exactly the rest; what is no longer kept, as this was too
        slow, is told by a Gap.

        Raises:
            InvalidRequest (STALE_CURSOR): the cursor is of another life of the sandbox.
        """
        decoder = LogDecoder(cursor)
        first = Request(
            method="GET",
            path=self._path("events"),
            query={} if decoder.start is None else {"cursor": decoder.start},
        )
        with closing(Follower(self._transport, first, first).entries()) as entries:
            for entry, place in entries:
                for event in decoder.events(entry, place.epoch):
                    self._note(event)
                    yield event

    def resize(self, cols: int, rows: int) -> None:
        """Change its size, for all who look at it; in characters."""
        size = ResizeTerminal(
            cols=check_count(cols, what="cols", least=1), rows=check_count(rows, what="rows", least=1)
        )
        self._info = self._transport.call(
            Request(method="POST", path=self._path("resize"), body=encode_names(size)), TerminalInfo
        )

    def wait(self, timeout: float | None = None) -> End:
        """Wait until it has ended and return how; it goes on after `timeout` seconds.

        Raises:
            WaitTimeout (WAIT_TIMEOUT): it has not ended by then.
        """
        try:
            end = wait_in_turns(self._transport, self._path("wait"), {}, End, deadline_of(timeout))
        except WaitTimeout as problem:
            raise error(
                ErrorCode.WAIT_TIMEOUT,
                f"the terminal {self.id} has not ended within {timeout} s",
                hint="it goes on: wait again, or delete it",
            ) from problem
        self._note_end(end)
        return end

    def delete(self) -> End:
        """Hang up: end all that runs on it, and forget it. Its id is free again. Returns how it ended."""
        end = self._transport.call(Request(method="DELETE", path=self._path(), patience=_END_PATIENCE_S), End)
        self._note_end(end)
        return end

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.status})>"

    # --- insides

    def _entries(self, deadline: float | None) -> tuple[list[Entry], str]:
        """Return what comes behind the last ones, as soon as there is something, and the epoch of their cursors.

        None are to come where there are none. Raises WaitTimeout at the deadline.
        """
        while True:
            turn = turn_of(deadline)
            query = {"follow": "false", "wait": f"{turn:.3f}"}
            if self._place is not None:
                query["cursor"] = self._place
            answer = self._transport.open(
                Request(
                    method="GET",
                    path=self._path("events"),
                    query=query,
                    patience=turn + self._transport.reply_timeout,
                )
            )
            try:
                entries = list(FrameDecoder().feed(answer.read_all()))
            except Cut as cut:
                raise self._transport.missed(str(cut), admitted=True) from cut
            finally:
                answer.close()
            epoch = answer.head.headers["sandcell-epoch"]
            if entries:
                self._take(entries[-1], epoch)
            if entries or answer.head.headers.get("sandcell-ended"):
                return entries, epoch
            if is_past(deadline):
                raise error(
                    ErrorCode.WAIT_TIMEOUT,
                    f"the terminal {self.id} has shown nothing by then",
                    hint="it goes on: read again, or look at its status",
                )

    def _take(self, last: Entry, epoch: str) -> None:
        if last.kind == Kind.ERROR:
            raise error_of(500, last.data)
        self._place = str(Cursor(epoch, last.seq, last.offset))
        if last.kind == Kind.ENDED:
            self._note_end(decode_body(last.data, CommandEnd).end)

    def _path(self, *verb: str) -> str:
        return path_of("terminals", self.id, *verb)

    def _note(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._note_end(event.end)

    def _note_end(self, end: End) -> None:
        self._info = msgspec.structs.replace(self._info, status="ended", end=end)


class Terminals:
    """What a sandbox's handle can do with terminals. `_transport` is the handle's."""

    _transport: Transport

    def create_terminal(
        self,
        id: str | None = None,
        *,
        command: str | Sequence[str] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cols: int = 80,
        rows: int = 24,
    ) -> Terminal:
        """Open a terminal and return it: with a shell that reads ~/.bashrc, a line for `bash`, or a program and its words.

        It ends when that ends. The same `id` gives the same terminal, also when it has ended, until it is deleted. `env`
        are changes to the environment; None takes a variable away. The size is in characters.

        Raises:
            InvalidRequest: CWD_NOT_FOUND; INVALID_ARGUMENT: no such program, or the size; INVALID_NAME, INVALID_ENV_NAME.
            Conflict (EXISTS): the id is that of a terminal with another command, folder or environment.
            Unavailable (START_FAILED): the sandbox has no more terminals or processes.
        """
        body = make_terminal(id, command=command, cwd=cwd, env=env, cols=cols, rows=rows)
        request = Request(method="POST", path=path_of("terminals"), body=encode_names(body))
        own = own_place("terminals", id, body.id)
        return Terminal(self._transport, make(self._transport, request, TerminalInfo, own=own))

    def terminal(self, id: str) -> Terminal:
        """Return the terminal `id`, whoever opened it. NOT_FOUND where there is none."""
        request = Request(method="GET", path=path_of("terminals", check_text(id, what="id")))
        return Terminal(self._transport, self._transport.call(request, TerminalInfo))

    def terminals(self) -> list[Terminal]:
        """Return the terminals, oldest first; the last ones that have ended are among them."""
        request = Request(method="GET", path=path_of("terminals"))
        found = self._transport.call(request, list[TerminalInfo])
        return [Terminal(self._transport, each) for each in found]
