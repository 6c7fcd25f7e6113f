"""Answers that go on: a journal as binary frames for our own ends, as server-sent events for people."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from sandcell.failure import failure_of
from sandcell_container.frames import Cursor, Entry, Kind, encode_head
from sandcell_container.journal import JournalReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tornado.iostream import IOStream

    from sandcell.guest.request import ApiHandler
    from sandcell_container.journal import Journal

    Encode = Callable[[Entry], Sequence[bytes]]

__all__ = ["await_news", "join_entries", "journal_headers", "send_journal"]

JOURNAL_TYPE = "application/vnd.sandcell.journal"
EVENT_STREAM = "text/event-stream"

HEAD_AFTER_S = 0.05
_LARGE = 2**16

_BINARY = {Kind.STDOUT, Kind.STDERR, Kind.MESSAGE}


async def send_journal(
    handler: ApiHandler,
    journal: Journal,
    *,
    after: Cursor | None = None,
    follow: bool = True,
    wanted: Callable[[Entry], bool] | None = None,
) -> None:
    """Send the entries after `after` as they come, until the journal's end; without `follow` what is there now.

    `wanted` leaves others out. Each batch is written at once, and head, frames and end together where the journal
    has ended by then. A fault after the head becomes an ERROR frame. Cancelled when the client goes; that is
    swallowed here, because then nobody waits for this answer any more.
    """
    encode = journal_headers(handler, journal.epoch)
    if journal.ended and after is not None and after.seq >= journal.cursor.seq:
        handler.set_header("Sandcell-Ended", "true")  # else an empty answer reads as one that was cut
    handler.cancel_when_client_goes()
    try:
        if follow:
            await _follow(_Taker(handler, encode, wanted), journal, after or journal.start)
        else:
            _send_present(handler, journal, after or journal.start, encode)
    except asyncio.CancelledError:
        if not handler.client_gone:
            raise
    except StreamClosedError:
        return
    except Exception as problem:  # noqa: BLE001 -- the outermost place of a stream: logged and told
        failure = failure_of(problem, request_id=handler.request_id)
        handler.log_exception(type(problem), problem, problem.__traceback__)
        told = Entry(0, 0, Kind.ERROR, 0, 0.0, json.dumps(failure.to_dict()).encode())
        handler.finish(join_entries((told,), encode))


async def await_news(journal: Journal, after: Cursor, patience_s: float) -> None:
    """Wait until there is something behind `after`, or nothing more is to come."""
    if patience_s and not journal.ended and not journal.read(after, 1):
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await journal.changed()  # in this very step: what comes before somebody waits wakes nobody


def journal_headers(handler: ApiHandler, epoch: str) -> Encode:
    """Set the headers of a stream and return how its entries are written, by what the client accepts."""
    handler.set_header("Sandcell-Epoch", epoch)
    if EVENT_STREAM in handler.request.headers.get("Accept", ""):
        handler.set_header("Content-Type", EVENT_STREAM)
        handler.set_header("Cache-Control", "no-store")
        handler.set_header("X-Accel-Buffering", "no")  # proxies hold back what comes in pieces
        return lambda entry: (_server_sent(entry, epoch),)
    handler.set_header("Content-Type", JOURNAL_TYPE)
    return _frame


def join_entries(entries: Iterable[Entry], encode: Encode) -> bytes:
    """Return the entries as they are written."""
    return b"".join(part for entry in entries for part in encode(entry))


def _frame(entry: Entry) -> tuple[bytes, bytes]:
    return encode_head(entry), entry.data


class _Taker(NamedTuple):
    """Who follows, and what of it."""

    handler: ApiHandler
    encode: Encode
    wanted: Callable[[Entry], bool] | None

    def parts(self, batch: list[Entry]) -> list[bytes]:
        entries = batch if self.wanted is None else filter(self.wanted, batch)
        return [part for entry in entries for part in self.encode(entry)]


async def _follow(taker: _Taker, journal: Journal, after: Cursor) -> None:
    handler = taker.handler
    # Head and first entries go together; but a client has to know soon that its request was taken.
    head = asyncio.get_running_loop().call_later(HEAD_AFTER_S, handler.flush)
    try:
        with JournalReader(journal, after) as reader:
            while batch := await reader.next():
                head.cancel()
                parts = taker.parts(batch)
                if journal.ended and batch[-1].seq == journal.cursor.seq:
                    handler.finish(b"".join(parts))
                    return
                await _write(handler, parts)
    finally:
        head.cancel()
    handler.finish()


async def _write(handler: ApiHandler, parts: list[bytes]) -> None:
    """Send a piece of the body, and return when the connection has taken it.

    A large one goes straight to the connection, as one chunk of the body: tornado would copy it three times, which
    costs as much as all else that is done with it.
    """
    size, stream = sum(map(len, parts)), _stream_of(handler)
    if stream is None or size < _LARGE:
        handler.write(b"".join(parts))
        await handler.flush()
        return
    stream.write(b"%x\r\n" % size + parts[0])
    for part in parts[1:]:
        stream.write(part)
    await stream.write(b"\r\n")


def _stream_of(handler: ApiHandler) -> IOStream | None:
    """Return the connection itself, where the body of the answer has begun and goes in chunks."""
    connection = handler.request.connection
    is_chunked = handler.headers_written and handler.request.version == "HTTP/1.1"
    return connection.stream if is_chunked and isinstance(connection, HTTP1Connection) else None


def _send_present(handler: ApiHandler, journal: Journal, after: Cursor, encode: Encode) -> None:
    while batch := journal.read(after):
        handler.write(join_entries(batch, encode))
        after = Cursor(journal.epoch, batch[-1].seq, batch[-1].offset)
    handler.finish()


def _server_sent(entry: Entry, epoch: str) -> bytes:
    cursor = Cursor(epoch, entry.seq, entry.offset)
    name = Kind(entry.kind).name.lower()
    return f"id: {cursor}\nevent: {name}\ndata: {_json_of(entry)}\n\n".encode()


def _json_of(entry: Entry) -> str:
    if entry.kind in _BINARY:
        late = {"late": True} if entry.flags else {}
        try:
            shown = {"text": entry.data.decode()}
        except UnicodeDecodeError:  # a command may write any bytes; a person is shown these as base64
            shown = {"base64": base64.b64encode(entry.data).decode()}
        return json.dumps({**shown, "time": entry.time, **late})
    return entry.data.decode() or "{}"
