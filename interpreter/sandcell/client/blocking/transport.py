# Made from ../aio/transport.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Requests to one guest over kept connections: what is sent again and what must not be, and how a guest is missed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from sandcell.client.blocking.answer import Answer, Upload
from sandcell.client.blocking.channel import Channel, call
from sandcell.client.blocking.connection import Connection, OutgoingFile
from sandcell.client.blocking.tunnel import Tunnel
from sandcell.client.protocol import (
    Address,
    Conversation,
    Cut,
    Head,
    Request,
    decode_body,
    error_of,
    gone,
    path_of,
    paused,
    unreachable,
)
from sandcell_container.errors import ErrorCode, Gone, SandcellError
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from sandcell.client.protocol import Admitted
    from sandcell.client.stdin import StdinFile
    from sandcell.ports.tunnel import Guest
    from sandcell_container.end import End

__all__ = ["Transport", "Waker"]

T = TypeVar("T")

_PIECE = 8 * 2**20  # of a file: what the kernel is asked to send at once
_KEPT = 16  # idle connections: more than this many at once are rare, and each holds a descriptor at the guest
_TRIES = 3  # a kept connection that the guest had closed, then two new ones
_QUIET_S = (
    2.0  # from a request until it is looked whether its guest is paused; nearly all are answered long before
)
_ALIVE_S = 2.0  # a guest that serves tells its health in a few milliseconds


class Waker(Protocol):
    """Who can start the guest that a transport leads to."""

    @property
    def is_holding(self) -> bool:
        """Whether the guest knows of it; else it may end under a request."""
        ...

    def wake(self) -> None:
        """Start it; returns when it listens. Raises what keeps it from that."""
        ...

    def ended(self) -> End | None:
        """Return how it ended, where anybody can tell."""
        ...

    def is_paused(self) -> bool:
        """Tell whether it is known that somebody holds it still from outside."""
        ...


class Transport:
    """The way to one guest; usable from several threads and loops. Timeouts in seconds."""

    def __init__(self, address: Address, token: str, *, connect_timeout: float, reply_timeout: float) -> None:
        self.address = address
        self.reply_timeout = reply_timeout
        self.ended = False
        """Whether the guest is known to have ended, or to be ending."""
        self.paused = False
        """Whether it was held still from outside when it last was asked in vain."""
        self.client_id = new_id("cli")
        """What the guest knows this handle by."""
        self.waker: Waker | None = None
        self._token = token
        self._connect_timeout = connect_timeout
        self._lends = bool(address.path)
        # Appended to and popped from only: that is atomic, and a lock might be held when the program forks.
        self._kept = list[Connection]()

    @property
    def guest(self) -> Guest:
        """Where it leads."""
        from sandcell.ports.tunnel import Guest  # who exposes no port pays for none of it

        return Guest(address=self.address, token=self._token, patience=self._connect_timeout)

    def call(self, request: Request, answer: type[T]) -> T:
        """Send `request` and return its answer as `answer`."""
        return decode_body(self.fetch(request), answer)

    def fetch(self, request: Request, *, chunks: Iterator[bytes] | OutgoingFile | None = None) -> bytes:
        """Send `request` and return the body of its answer. `chunks`: see `open`."""
        opened = self.open(request, chunks=chunks)
        try:
            return opened.read_all()
        except Cut as cut:
            raise self.missed(str(cut), admitted=True) from cut
        finally:
            opened.close()

    def open(
        self,
        request: Request,
        *,
        chunks: Iterator[bytes] | OutgoingFile | None = None,
        deadline: float | None = None,
    ) -> Answer:
        """Send `request` and return its answer when its head is there; close it.

        A connection that breaks before the head is there is replaced and the request sent again where that
        is safe. `chunks` is the body of a streamed request, which is never sent again. `deadline`
        (`time.monotonic()`) for the head, where it is sooner than the request's own patience.

        Raises:
            SandcellError: the one that the guest answered; SANDBOX_GONE when nothing listens there any more;
                UNREACHABLE when it does not answer in time, with `details.admitted`.
        """
        admitted = request.admitted
        why = ""
        if request.wakes and self.waker is not None and not self.waker.is_holding:
            self.waker.wake()
        for _ in range(_TRIES):
            connection = self._take(admitted, wakes=request.wakes and admitted == request.admitted)
            try:
                head = self._begin(connection, request, chunks, deadline)
            except TimeoutError as problem:
                connection.close()
                raise self.silent(str(problem), admitted="unknown") from problem
            except Cut as cut:
                connection.close()
                why = str(cut)
                if not (cut.is_reset and self.address.path):
                    admitted = "unknown"
                if not request.repeatable or chunks is not None:
                    raise self.missed(why, admitted=admitted) from cut
            except BaseException:
                connection.close()
                raise
            else:
                try:
                    return self.accept(Answer(self, connection, head))
                except Gone as ending:
                    wakes = request.wakes and chunks is None and admitted == request.admitted
                    self._outlive(ending, admitted, wakes=wakes)
        raise self.missed(why, admitted=admitted)

    def _outlive(self, ending: SandcellError, admitted: Admitted, *, wakes: bool) -> None:
        """Wait for the end of a guest that has refused a request because it is ending, and start it where that `wakes` it.

        Raises:
            SandcellError: `ending`, where it is another error; else SANDBOX_GONE with how it ended.
        """
        if ending.code is not ErrorCode.SANDBOX_GONE or "admitted" not in ending.details:
            raise ending
        problem = self.lost(admitted=admitted)
        if not wakes or self.waker is None:
            raise problem from ending
        self.waker.wake()

    @contextmanager
    def converse(self, request: Request, stdin: StdinFile) -> Generator[Answer]:
        """Send `request`, a streamed one, and yield its answer when its head is there; what `stdin` gives follows the
        request's own body as long as the block goes on. It is never sent again. Raises as `open`, and what `stdin` raises.
        """
        connection = self._connect_awake(admitted=False, wakes=request.wakes)
        talk, deadline = connection.conversation, self._by(request, None)
        try:
            with self.told():
                connection.send(talk.begin(request) + talk.chunk(request.body), deadline)
            with connection.channel.sending(stdin, talk.piece):
                with self.told():
                    head = connection.head(deadline)
                yield self.accept(Answer(self, connection, head))
        finally:
            connection.close()

    def tunnel(self, request: Request) -> Tunnel:
        """Send `request`, which asks for another protocol, and return the connection once it speaks that. Raises as `open`."""
        connection = self._connect_awake(admitted=False, wakes=request.wakes)
        deadline = self._by(request, None)
        try:
            with self.told():
                connection.send(connection.conversation.begin(request), deadline)
                head = connection.head(deadline)
            if head.status != 101:
                self.accept(Answer(self, connection, head))
                raise Cut("it goes on with HTTP")
        except BaseException:
            connection.close()
            raise
        return Tunnel(self, connection)

    def begin_upload(self, request: Request) -> Upload:
        """Send `request`, a streamed one, and return where its body goes. It is never sent again. Raises as `open`."""
        connection = self._connect_awake(admitted=False, wakes=request.wakes)
        upload = Upload(self, connection, request)
        try:
            with self.told():
                connection.send(connection.conversation.begin(request), self._by(request, None))
        except BaseException:
            upload.close()
            raise
        return upload

    def borrow(self, request: Request) -> tuple[int, Upload] | None:
        """Send `request`, which asks for an open file, and return its descriptor and where what follows goes; None where what
        leads to the guest carries no descriptors, and nothing is done then. It is never sent again. Raises as `open`."""
        if not self._lends:
            return None
        connection = self._connect_awake(admitted=False, wakes=request.wakes)
        deadline, fd = self._by(request, None), None
        try:
            with self.told():
                connection.send(connection.conversation.begin(request), deadline)
                fd = connection.file(deadline)
                part = None if fd is not None else connection.conversation.next_part()
            if fd is not None:
                return fd, Upload(self, connection, request)
            if isinstance(part, Head):
                self.accept(Answer(self, connection, part))
            self._lends = False
        except SandcellError as problem:
            if problem.code is not ErrorCode.NOT_FOUND:  # which a guest says that is older than this
                raise
        finally:
            if fd is None:
                connection.close()
        return None

    @contextmanager
    def told(self) -> Generator[None]:
        """Raise what breaks inside the block as an error of ours. Nobody knows whether the request was taken."""
        try:
            yield
        except TimeoutError as problem:
            raise self.silent(str(problem), admitted="unknown") from problem
        except Cut as cut:
            raise self.missed(str(cut), admitted="unknown") from cut

    def missed(self, why: str, *, admitted: Admitted) -> SandcellError:
        """Return the error of an answer that broke off: the guest has ended, or it has not.

        A process that dies closes its connections in no order, so its listener may take one more call: only
        an answer on it means that the guest goes on.
        """
        try:
            for _ in range(_TRIES):
                connection = self.connect(admitted=admitted)
                if self._is_served(connection):
                    break
        except SandcellError as problem:
            return problem
        return unreachable(self.address, why, admitted=admitted)

    def silent(self, why: str, *, admitted: Admitted) -> SandcellError:
        """Return the error of a guest that does not answer in time."""
        if self._is_paused():
            return paused(admitted=admitted)
        return unreachable(self.address, why, admitted=admitted)

    def lost(self, *, admitted: Admitted) -> SandcellError:
        """Return the error of a guest that has ended, with how it ended where anybody can tell."""
        self.ended, self.paused = True, False
        end = self.waker.ended() if self.waker is not None else None
        return gone(self.address, admitted=admitted, end=end)

    def heed(self, problem: SandcellError, *, admitted: Admitted) -> SandcellError:
        """Return an error that the guest told; one that it told while it ended says how, as if it had been too late to."""
        if problem.code is ErrorCode.SANDBOX_GONE:
            return self.lost(admitted=admitted)
        return problem

    def close(self) -> None:
        """Close the kept connections; the transport stays usable."""
        while self._kept:
            self._kept.pop().close()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection that can serve again, close another."""
        if connection.conversation.reusable and len(self._kept) < _KEPT:
            self._kept.append(connection)
        else:
            connection.close()

    def connect(self, *, admitted: Admitted = False) -> Connection:
        """Return a new connection."""
        deadline = time.monotonic() + self._connect_timeout
        try:
            channel = Channel.open(self.address, deadline)
        except TimeoutError as problem:
            raise self.silent(str(problem), admitted=admitted) from problem
        except OSError as problem:
            if self.address.path:
                raise self.lost(admitted=admitted) from problem
            raise unreachable(self.address, str(problem), admitted=admitted) from problem
        return Connection(channel, Conversation(self.address, self._token))

    def _take(self, admitted: Admitted, *, wakes: bool) -> Connection:
        while self._kept:
            try:
                kept = self._kept.pop()
            except IndexError:  # another thread was faster
                break
            if not kept.channel.is_stale():
                return kept
            kept.close()
        return self._connect_awake(admitted=admitted, wakes=wakes)

    def _connect_awake(self, *, admitted: Admitted, wakes: bool) -> Connection:
        """Return a new connection, to a guest that is started first where that `wakes` it."""
        try:
            return self.connect(admitted=admitted)
        except Gone:
            if not wakes or self.waker is None:
                raise
        self.waker.wake()
        return self.connect(admitted=admitted)

    def _is_served(self, connection: Connection) -> bool:
        """Tell whether the guest answers on this connection, or at least does not end it."""
        deadline = time.monotonic() + _ALIVE_S
        try:
            asking = connection.conversation.begin(Request(method="GET", path=path_of("health")))
            connection.send(asking, deadline)
            connection.next_part(deadline)
        except TimeoutError:
            return True
        except Cut:
            return False
        finally:
            connection.close()
        return True

    def _begin(
        self,
        connection: Connection,
        request: Request,
        chunks: Iterator[bytes] | OutgoingFile | None,
        sooner: float | None,
    ) -> Head:
        try:
            connection.send(connection.conversation.begin(request), self._by(request, sooner))
            if chunks is not None:
                self._upload(connection, chunks)
        except Cut:
            pass  # the guest may have refused before it had read all: if so, its answer is there and says why
        head = self._head(connection, self._by(request, sooner))
        self.ended = self.paused = False
        return head

    def _head(self, connection: Connection, deadline: float) -> Head:
        """Return the head of an answer. Where it does not come soon a look tells whether it can: a paused guest would be waited
        for until the deadline, which is long."""
        soon = min(deadline, time.monotonic() + _QUIET_S)
        if not connection.channel.is_heard(soon) and soon < deadline and self._is_paused():
            raise paused(admitted="unknown")
        return connection.head(deadline)

    def _is_paused(self) -> bool:
        self.paused = self.waker is not None and self.waker.is_paused()
        return self.paused

    def _by(self, request: Request, sooner: float | None) -> float:
        own = time.monotonic() + (request.patience or self.reply_timeout)
        return own if sooner is None else min(own, sooner)

    def _upload(self, connection: Connection, chunks: Iterator[bytes] | OutgoingFile) -> None:
        if isinstance(chunks, OutgoingFile):
            self._upload_file(connection, chunks)
            return
        for chunk in chunks:
            connection.send(connection.conversation.chunk(chunk), time.monotonic() + self.reply_timeout)
        connection.send(connection.conversation.end(), time.monotonic() + self.reply_timeout)

    def _upload_file(self, connection: Connection, file: OutgoingFile) -> None:
        done = 0
        while done < file.size:
            count = min(_PIECE, file.size - done)
            sent = connection.send_file(file.fd, done, count, time.monotonic() + self.reply_timeout)
            if not sent:
                raise OSError(f"the file has become shorter than {file.size} bytes meanwhile")
            done += sent
            if file.on_progress is not None:
                call(file.on_progress, done, file.size)
        connection.conversation.end()

    def accept(self, answer: Answer) -> Answer:
        """Return an answer that is none of an error, else raise that."""
        if answer.head.status < 400:
            return answer
        try:
            body = answer.read_all()
        except Cut:
            body = b""
        finally:
            answer.close()
        raise self.heed(error_of(answer.head.status, body), admitted="unknown")
