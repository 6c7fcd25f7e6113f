"""The route of stateless commands."""

from __future__ import annotations

import asyncio
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tornado.web import stream_request_body

from sandcell.guest.connections import Phase, stream_of
from sandcell.guest.detached import Detached
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import send_journal
from sandcell.job_bodies import EXEC_TYPE, STDIN_AFTER, ExecRequest
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.stdin_pipe import StdinPipe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from tornado.httputil import HTTPHeaders

    from sandcell.guest.state import Guest

__all__ = ["ExecHandler", "FedExecHandler"]

_LINGER_S = 1.0  # for a client that hears an answer only when it has sent all


class ExecHandler(ApiHandler):
    """POST /v1/exec"""

    @classmethod
    def for_body(cls, headers: HTTPHeaders, *, is_short: bool) -> type[ApiHandler]:
        if headers.get("Content-Type") == EXEC_TYPE:
            return FedExecHandler
        return super().for_body(headers, is_short=is_short)

    async def post(self) -> None:
        await self.run(self.body(ExecRequest, lone="surrogateescape"))

    async def run(self, body: ExecRequest, stdin: StdinPipe | None = None) -> None:
        """Answer with what the command says and how it ends."""
        self.cancel_when_client_goes()
        with self.guest.leases.work():
            async with self.guest.commands.follow(body, stdin) as command:
                self.set_header("Sandcell-Id", command.id)
                await send_journal(self, command.journal)


@stream_request_body
class FedExecHandler(ExecHandler):
    """A command whose standard input follows in the body, while its output goes out.

    The body is read as fast as the command reads. When the command has ended, or was refused, before the body has, the
    answer is sent at once, and its end when the body ends or shortly after: what comes till then is dropped.
    """

    def initialize(self, guest: Guest) -> None:
        super().initialize(guest)
        self._stdin: StdinPipe | None = None
        self._running: Detached[None] | None = None
        self._is_read = False
        self._is_answered = False
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        if not self._is_answered and self._stdin is None:
            chunk = self._take_before(chunk)
        if self._is_answered:
            self._drop(chunk)
        elif self._stdin is not None and chunk:
            return self._stdin.send(chunk)
        return None

    async def post(self) -> None:
        self._is_read = True
        if self._is_answered:
            return
        if self._stdin is None or self._running is None:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                "the body ends before its first part does",
                hint="4 bytes, the length of the JSON, the JSON, standard input",
            )
        self._stdin.end()
        try:
            await self._running.wait()
        except asyncio.CancelledError:
            if not self.client_gone:
                raise

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> asyncio.Future[None]:
        if self._is_read or not isinstance(chunk, bytes | None):
            return super().finish(chunk)
        if self._is_answered:  # tornado makes sure after a refusal
            return self.flush()
        self._is_answered = True
        if not self.headers_written:
            self.set_header("Content-Length", len(chunk or b""))
        if chunk:
            self.write(chunk)
        self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self._end_answer)
        return self.flush()

    def on_finish(self) -> None:
        self._stop_waiting()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._stop_waiting()
        if self._stdin is not None:
            self._stdin.give_up()

    # the body

    def _take_before(self, chunk: bytes) -> bytes:
        """Take what comes before the standard input; returns what of `chunk` is standard input already."""
        self._taken += chunk
        if len(self._taken) < STDIN_AFTER.size:
            return b""
        length: int = STDIN_AFTER.unpack_from(self._taken)[0]
        end = STDIN_AFTER.size + length
        self._size = length
        if len(self._taken) < end and length <= self.guest.config.max_body:
            return b""
        rest = bytes(self._taken[end:])
        self._taken = self._taken[STDIN_AFTER.size : end]
        self._begin()
        return rest

    def _begin(self) -> None:
        try:
            body = self.body(ExecRequest, lone="surrogateescape")
            if body.stdin is not None:
                raise error(
                    ErrorCode.INVALID_ARGUMENT,
                    "stdin is given twice",
                    hint="in the JSON, or behind it",
                    details={"field": "stdin"},
                )
            self._stdin = StdinPipe(more=True)
        except Exception as problem:  # noqa: BLE001 -- whatever it is, it is answered
            self._refuse(problem)
            return
        stream = stream_of(self.request.connection)
        if stream is not None:
            stream.phase = Phase.SERVED  # from now on it may be silent: somebody may type it
        self._running = Detached(self.guest.group, self._serve(body, self._stdin))

    async def _serve(self, body: ExecRequest, stdin: StdinPipe) -> None:
        try:
            with self._hearing_of_its_end():
                await self.run(body, stdin)
        except Exception as problem:  # noqa: BLE001 -- whatever it is, it is answered
            self._refuse(problem)
        finally:
            stdin.close()

    def _refuse(self, problem: Exception) -> None:
        self.log_exception(type(problem), problem, problem.__traceback__)
        if not self._is_answered and not self.client_gone:
            self.send_error(500, exc_info=(type(problem), problem, problem.__traceback__))

    # after the answer

    def _drop(self, chunk: bytes) -> None:
        self._dropped += len(chunk)
        if self._dropped > self.guest.config.max_body:
            self._end_answer()

    def _end_answer(self) -> None:
        """Nobody can be waited for any longer: end the answer, and with it the connection."""
        if not self._finished:
            super().finish()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # while nothing is read

    @contextmanager
    def _hearing_of_its_end(self) -> Generator[None]:
        """Inside the block a client that goes is noticed, also while the command reads nothing and so nothing is read
        from the connection: then neither tornado nor asyncio looks at it."""
        stream = stream_of(self.request.connection)
        if stream is None or stream.socket is None:
            yield
            return

        def vanished() -> None:
            self.on_connection_close()
            stream.close()

        with hearing_of_end(stream.socket.fileno(), vanished):
            yield


@contextmanager
def hearing_of_end(fd: int, callback: Callable[[], object]) -> Generator[None]:
    """Call back once the other side of the socket `fd` has closed it, whatever of its bytes is unread."""
    loop = asyncio.get_running_loop()
    with select.epoll(1) as poll:
        poll.register(fd, select.EPOLLRDHUP)

        def on_end() -> None:
            loop.remove_reader(poll.fileno())
            callback()

        loop.add_reader(poll.fileno(), on_end)
        try:
            yield
        finally:
            loop.remove_reader(poll.fileno())
