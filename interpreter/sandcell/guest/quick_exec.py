"""The short cut of the usual command: `POST /v1/exec` as our client sends it, in one piece, and not streamed.

Tornado's way from a request to its handler and back took a fourth of what a short command takes in all, most of it
because so much code is cold when a request comes. What is taken here is one regular expression away from its command, and
its answer is one write. Everything else goes tornado's way, and so does every refusal: `ExecHandler` says it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from typing import TYPE_CHECKING

import msgspec
from tornado.iostream import StreamClosedError

from sandcell.guest.stream import HEAD_AFTER_S, JOURNAL_TYPE
from sandcell.job_bodies import ExecRequest
from sandcell_container.errors import SandcellError
from sandcell_container.frames import encode_head

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell.guest.connections import GuestStream
    from sandcell.guest.state import Guest
    from sandcell_container.guest.exec import Exec

__all__ = ["QuickExec"]

log = logging.getLogger(__name__)

# As `client.protocol.Conversation` writes it. A head that has anything else is not ours to understand.
_HEAD = re.compile(
    rb"POST /v1/exec HTTP/1\.1\r\nHost: [!-~]+\r\nAuthorization: Bearer ([!-~]+)\r\n"
    rb"Content-Type: application/json\r\nContent-Length: (\d{1,6})\r\n\r\n"
)
_EVERYTHING = 2**62
_SHORT = 2**16  # bytes of an answer that are put together for one write
_decode = msgspec.json.Decoder(ExecRequest).decode


class QuickExec:
    """Takes such requests from connections; a `Shortcut`."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._token = guest.boot.token.encode()

    def take(self, request: bytes, stream: GuestStream) -> asyncio.Task[None] | None:
        """Return what answers `request` on `stream`; None where it is not for here. It ends with `stream.resume`."""
        head = _HEAD.match(request)
        if head is None or len(request) - head.end() != int(head[2]):
            return None
        if not hmac.compare_digest(head[1], self._token) or self._guest.leases.is_over:
            return None
        try:
            body = _decode(memoryview(request)[head.end() :])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return None if body.stream else self._guest.group.create_task(self._answer(stream, request, body))

    async def _answer(self, stream: GuestStream, request: bytes, body: ExecRequest) -> None:
        rest = b""
        try:
            with self._guest.leases.work():
                async with self._guest.commands.follow(body) as command:
                    await self._send(stream, command)
        except SandcellError:
            rest = request  # nothing was started, so trying it again says the same
        except StreamClosedError:
            log.debug("a client went while it was answered")
        except Exception:
            log.exception("failed path=/v1/exec")
            stream.close()
        finally:
            stream.resume(rest)

    async def _send(self, stream: GuestStream, command: Exec) -> None:
        journal = command.journal
        lines = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {JOURNAL_TYPE}\r\nX-Request-Id: {self._guest.next_request_id()}\r\n"
            f"Sandcell-Epoch: {journal.epoch}\r\nSandcell-Id: {command.id}\r\n"
        )
        answer = _Answer(stream, lines.encode())
        timer = asyncio.get_running_loop().call_later(HEAD_AFTER_S, answer.begin)
        try:
            while not journal.ended:
                await journal.changed()
        finally:
            timer.cancel()
        entries = journal.read(journal.start, _EVERYTHING)
        answer.finish([part for entry in entries for part in (encode_head(entry), entry.data)])


class _Answer:
    """One answer: at once with its length, or its head first, because a client has to know soon that it was heard."""

    def __init__(self, stream: GuestStream, lines: bytes) -> None:
        self._stream = stream
        self._lines = lines
        self._has_begun = False

    def begin(self) -> None:
        if not self._stream.closed():
            self._has_begun = True
            self._stream.write(self._lines + b"Transfer-Encoding: chunked\r\n\r\n")

    def finish(self, parts: list[bytes]) -> None:
        size = sum(map(len, parts))
        if self._has_begun:
            self._write((b"%x\r\n" % size, *parts, b"\r\n0\r\n\r\n"), size)
        else:
            self._write((self._lines, b"Content-Length: %d\r\n\r\n" % size, *parts), size)

    def _write(self, parts: Iterable[bytes], size: int) -> None:
        """One write where it is short; a long one is not copied."""
        for each in (b"".join(parts),) if size < _SHORT else parts:
            self._stream.write(each)
