"""One request to an app in a sandbox and its answer, passed on; and bytes of any kind, both ways.

Of a request as much is passed on as its head says, and no second one behind it: that would reach the app with what is
for us alone. After the heads, bytes are passed on as they came, and each side waits for the slower one; of an answer they
are looked at to find its end, because an app may keep the connection open behind it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sandcell.client.http1 import AnswerReader, Cut, Mark
from sandcell.ports.heads import BadHead, read_answer

if TYPE_CHECKING:
    from sandcell.ports.heads import AnswerHead, RequestHead, Via
    from sandcell.ports.wire import Wire

__all__ = ["NoAnswer", "pass_on", "relay"]

_LINGER_S = (
    2.0  # for a client that still sends while it has its answer: one that is cut off may never read it
)


class NoAnswer(Exception):
    """The app ended the connection before it answered, or what it answered is no HTTP. The client was told nothing."""


async def relay(one: Wire, other: Wire) -> None:
    """Pass bytes on in both directions until both have ended. An end of one direction is told, and so is a reset."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(one, other))
            group.create_task(_copy(other, one))
    except* OSError:
        one.abort()
        other.abort()


async def pass_on(client: Wire, app: Wire, head: RequestHead, via: Via, target: str) -> None:
    """Pass a request on, whose head was read from `client`, and its answer back; an upgrade, and then bytes both ways.

    Returns when the answer is whole, or either side has gone. A client that ends its side has gone.

    Raises:
        NoAnswer: see there.
        BadHead: the request cannot be passed on.
    """
    body = AnswerReader()
    try:
        body.begin_body(head.body_headers())
    except Cut as cut:
        raise BadHead(str(cut)) from cut
    exchange = _Exchange(client, app, head, via)
    try:
        await exchange.run(target, body)
    except _ClientGone:
        return
    except OSError:
        client.abort()


class _ClientGone(Exception):
    """Nobody wants the answer any more."""


class _Exchange:
    """One request and its answer between two wires."""

    def __init__(self, client: Wire, app: Wire, head: RequestHead, via: Via) -> None:
        self._client = client
        self._app = app
        self._head = head
        self._via = via
        self._has_upgraded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def run(self, target: str, body: AnswerReader) -> None:
        """Raises NoAnswer, _ClientGone, and OSError of a connection that broke off in the middle."""
        try:
            await self._app.send(self._head.passed_on(self._via, target))
        except OSError as problem:
            raise NoAnswer(str(problem)) from problem
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(self._ask(body))
                await self._answer()
                await asyncio.wait({asking}, timeout=_LINGER_S)
                asking.cancel()
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None

    async def _ask(self, body: AnswerReader) -> None:
        try:
            await self._send_body(body)
        except OSError:
            pass  # the app takes no more: its answer may say why
        if self._head.is_upgrade and await self._has_upgraded:
            await _copy(self._client, self._app)
            return
        with suppress(OSError):
            while await self._client.receive():
                pass  # behind the request, and for nobody
        raise _ClientGone

    async def _send_body(self, body: AnswerReader) -> None:
        is_chunked = bool(self._head.get("transfer-encoding"))
        while (part := _next_part(body)) is not Mark.END:
            if isinstance(part, bytes):
                await self._app.send(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
                continue
            try:
                body.feed(await self._client.receive())
            except OSError as problem:
                raise _ClientGone from problem
        if is_chunked:
            await self._app.send(b"0\r\n\r\n")

    async def _answer(self) -> None:
        head = await self._next_head()
        while head.status < 200 and head.status != 101:
            await self._client.send(head.passed_on(self._via))
            head = await self._next_head()
        await self._client.send(head.passed_on(self._via))
        self._has_upgraded.set_result(head.status == 101)
        body = _body_of(self._head.method, head)
        await (_copy_answer(self._app, self._client, body) if body else _copy(self._app, self._client))

    async def _next_head(self) -> AnswerHead:
        try:
            head = read_answer(await self._app.receive_head())
        except (BadHead, OSError) as problem:
            raise NoAnswer(str(problem)) from problem
        if head.status == 101 and not self._head.is_upgrade:
            raise NoAnswer("it changes to a protocol that nobody has asked for")
        return head


def _next_part(body: AnswerReader) -> object:
    try:
        return body.next_part()
    except Cut as problem:  # it ended in the middle, or is no body
        raise _ClientGone from problem


def _body_of(method: str, head: AnswerHead) -> AnswerReader | None:
    """Return what finds the end of the body; None where only the end of the connection tells it."""
    if head.status == 101:
        return None
    body = AnswerReader()
    try:
        body.begin_answer_body(method, head.status, head.body_headers())
    except (BadHead, Cut):
        return None  # whoever asked has to make of it what it can
    return body


async def _copy_answer(source: Wire, target: Wire, body: AnswerReader) -> None:
    """Pass on the body of an answer, and its end: of the body or else of the connection."""
    with suppress(Cut):  # it ended in the middle, and so does what is passed on
        while not _is_whole(body):
            data = await source.receive()
            await target.send(data)
            body.feed(data)
    target.end()


def _is_whole(body: AnswerReader) -> bool:
    while isinstance(part := body.next_part(), bytes):
        pass
    return part is Mark.END


async def _copy(source: Wire, target: Wire) -> None:
    """Pass on what comes, and the end of it."""
    while data := await source.receive():
        await target.send(data)
    target.end()
