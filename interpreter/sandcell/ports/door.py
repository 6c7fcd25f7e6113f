"""The listener of one exposure: an origin of its own, which lets in who has the token and passes bytes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell.client.sockets import own
from sandcell.ports.entry import Admitted, Lock, Stopped, Welcomed, admit
from sandcell.ports.exchange import NoAnswer, pass_on
from sandcell.ports.heads import BadHead, RequestHead, Via, read_request
from sandcell.ports.listener import listen_on_loopback
from sandcell.ports.pages import problem_answer, stopped, welcome_answer
from sandcell.ports.tunnel import open_tunnel
from sandcell.ports.wire import Wire
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    import socket

    from sandcell.ports.tunnel import Guest

__all__ = ["Door"]

_log = logging.getLogger(__name__)

_MOST = 128  # connections at once; more wait in the backlog
_HEAD_S = 20.0
_LAST_WORDS_S = 5.0  # for a client to take the few bytes of an answer of ours
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_S = 1.0  # until the next try to accept, when no descriptor is left


class Door:
    """See the module. It listens once it is made; `serve` answers. Its methods are for the loop that serves."""

    def __init__(self, guest: Guest, port: int, token: str, public_host: str | None) -> None:
        self._guest = guest
        self._listener = listen_on_loopback(is_shared=public_host is not None)
        self._address, listener = self._listener.getsockname()
        self._lock = Lock(port=port, token=token, listener=listener, public_host=public_host)
        self._room = asyncio.Semaphore(_MOST)

    @property
    def url(self) -> str:
        """What opens it in a browser."""
        lock = self._lock
        if lock.host:
            return f"http://{lock.host}:{lock.listener}/"
        return f"http://{self._address}:{lock.listener}/{lock.token}/"

    def opens_with(self, token: str) -> bool:
        return hmac.compare_digest(self._lock.token, token)

    def change_token(self, token: str) -> None:
        """Let in who has this one. Who is in stays."""
        self._lock = replace(self._lock, token=token)

    async def serve(self) -> None:
        """Answer until this is cancelled, then close the listener and all connections."""
        with self._listener:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._room.acquire()
                    connected, client = await self._accept()
                    group.create_task(self._serve_one(Wire(own(connected)), client))

    async def _accept(self) -> tuple[socket.socket, str]:
        """Return the next connection and the address of who made it."""
        while True:
            try:
                connected, (client, _) = await asyncio.get_running_loop().sock_accept(self._listener)
            except ConnectionAbortedError:
                continue  # it has gone already
            except OSError as problem:
                if problem.errno not in _NO_ROOM:
                    raise
                _log.warning("cannot accept a connection: %s", problem)
                await asyncio.sleep(_PAUSE_S)
            else:
                return connected, client

    async def _serve_one(self, client: Wire, address: str) -> None:
        try:
            with client:
                await self._answer(client, address)
        except (OSError, TimeoutError) as problem:
            _log.debug("a client has gone port=%d: %s", self._lock.port, problem)
        except Exception:  # noqa: BLE001 -- the outermost place of a connection: logged
            _log.exception("failed port=%d", self._lock.port)
        finally:
            self._room.release()

    async def _answer(self, client: Wire, address: str) -> None:
        head: RequestHead | None = None
        try:
            async with asyncio.timeout(_HEAD_S):
                data = await client.receive_head()
            if not data:
                return
            head = read_request(data)
            await self._let_in(client, address, head)
        except (SandcellError, BadHead, NoAnswer) as problem:
            answer = problem_answer(_error_of(problem, self._lock.port), head)
            await _say(client, answer)

    async def _let_in(self, client: Wire, address: str, head: RequestHead) -> None:
        lock = self._lock
        match admit(head, lock):
            case Welcomed(target):
                await _say(client, welcome_answer(target, lock))
            case Stopped() as why:
                raise stopped(why, lock.port)
            case Admitted() as entry:
                via = self._via(entry, head, address)
                with await open_tunnel(self._guest, lock.port, lock.token) as app:
                    await pass_on(client, app, head, via, entry.target)

    def _via(self, entry: Admitted, head: RequestHead, address: str) -> Via:
        host = head.get("host") or f"{self._address}:{self._lock.listener}"
        return Via(
            port=self._lock.port,
            origin=f"http://{host}",
            client=address,
            prefix=entry.prefix,
            secret=self._lock.token,
            told_host=host.partition(".")[2] if entry.by_host else host,
            hides_url=entry.by_host or bool(entry.prefix),
        )


async def _say(client: Wire, answer: bytes) -> None:
    """Answer, and hear out what is still sent: one that is cut off while it sends may never read the answer."""
    async with asyncio.timeout(_LAST_WORDS_S):
        await client.send(answer)
        client.end()
        with contextlib.suppress(OSError):
            while await client.receive():
                pass


def _error_of(problem: Exception, port: int) -> SandcellError:
    match problem:
        case SandcellError():
            return problem
        case NoAnswer():
            return error(
                ErrorCode.PORT_NOT_LISTENING,
                f"what listens on port {port} of the sandbox ended the connection without an answer",
                hint="its own output may say why",
                details={"port": port},
            )
        case _:
            return error(ErrorCode.INVALID_ARGUMENT, f"the request is no HTTP/1.1: {problem}"[:200])
