"""The guest's end of the worker: a process with the user's identity, for what has to be done by that.

It opens files and terminals and reads what is known of processes. Requests go to it one after another; what may take long
is done by an errand, which is a process of its own. What it says counts as untrusted: nothing of it is believed but its
shape, and it has a bounded time.
"""

from __future__ import annotations

import array
import asyncio
import errno
import json
import os
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.shipment import PROGRAM
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from sandcell_container.guest.job import Job
    from sandcell_container.guest.spawn import Spawner

__all__ = ["Answer", "Errand", "UserWorker", "believe"]

_T = TypeVar("_T")

_LONGEST_RECORD = 2**18
_FDS_AT_MOST = 2
_SHORT = 2**15  # a longer request goes as a file: a record has to fit into the buffer of the socket
_ERRANDS_AT_MOST = 48


class UserWorker:
    """The worker of a sandbox. An async context manager: leaving it ends the process.

    That is started when it is first needed, and again after it died or let a request wait for more than `deadline_s`
    seconds. `python` runs it where the user may not run the guest's own interpreter.
    """

    def __init__(self, spawner: Spawner, python: str, *, deadline_s: float = 10.0) -> None:
        self._spawner = spawner
        self._python = python
        self._deadline_s = deadline_s
        self._one_at_a_time = asyncio.Lock()
        self._link: _Link | None = None
        self._errands = set[_Link]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop()
        for each in list(self._errands):
            each.close()

    async def ask(self, verb: str, what: str, **fields: object) -> Answer:
        """Put one request and return the answer, which may be that it failed; whoever gets it closes it.

        `what` says for a person what the request is about.

        Raises:
            Unavailable (UNREACHABLE): the worker died or did not answer; whether the work was done is not known.
            Gone (SANDBOX_GONE): it died with the sandbox.
            Others: as `Spawner.start`, when it does not start.
        """
        async with self._one_at_a_time:
            link = await self._connect()
            try:
                link.send({"do": verb, **fields})
                async with asyncio.timeout(self._deadline_s):
                    return await link.answer()
            except (TimeoutError, OSError, _Nonsense) as problem:
                self._drop()
                raise self._no_answer(what, problem, self._deadline_s) from problem
            except BaseException:
                self._drop()  # its answer would be taken for the next request's
                raise

    @asynccontextmanager
    async def errand(self, verb: str, what: str, **fields: object) -> AsyncGenerator[Errand]:
        """Put one request to a worker of its own, which ends with the block.

        Raises:
            Limited (RATE_LIMITED): there are 48 already.
            Others: as `ask`.
        """
        if len(self._errands) >= _ERRANDS_AT_MOST:
            what = f"{_ERRANDS_AT_MOST} searches, copies, archives and watches are going on"
            raise error(ErrorCode.RATE_LIMITED, what, hint="end some of them")
        link = await self._open()
        self._errands.add(link)
        try:
            link.send({"do": verb, **fields})
            yield Errand(link, lambda problem, after: self._no_answer(what, problem, after))
        finally:
            self._errands.discard(link)
            link.close()

    def _no_answer(self, what: str, problem: Exception, deadline_s: float) -> SandcellError:
        if self._spawner.problem is not None:
            return self._spawner.problem
        return error(
            ErrorCode.UNREACHABLE,
            f"no answer about {what}: {_what_happened(problem, deadline_s)}",
            hint="try again",
            details={"admitted": "unknown"},
        )

    async def _connect(self) -> _Link:
        if self._link is None or not self._link.is_usable():
            self._drop()
            self._link = await self._open()
        return self._link

    async def _open(self) -> _Link:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                job = await self._start(theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return _Link(ours, job)

    async def _start(self, stdin: int) -> Job:
        """Start the worker by the guest's own interpreter, which user code cannot write, where the user may run it."""
        try:
            return await self._spawner.start(_worker_start(sys.executable, stdin))
        except SandcellError as problem:
            if problem.code != ErrorCode.INVALID_ARGUMENT:
                raise
            return await self._spawner.start(_worker_start(self._python, stdin))

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def believe(data: object, shape: type[_T]) -> _T:
    """Return what the worker said as what it has to be. Raises InternalError where it is something else."""
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as problem:
        raise error(ErrorCode.INTERNAL, f"the worker said nonsense: {problem}") from problem


def _worker_start(python: str, stdin: int) -> Start:
    return Start(argv=(python, "-I", "-S", "-c", PROGRAM), env={}, cwd="/", stdin=stdin)


def _what_happened(problem: Exception, deadline_s: float) -> str:
    if isinstance(problem, TimeoutError):
        return f"the worker took more than {deadline_s:g} s and was ended"
    if isinstance(problem, _Nonsense):
        return "the worker said nonsense and was ended"
    return "the worker died"


class _Nonsense(Exception):
    """The worker said what no worker of ours says."""


class Answer:
    """What the worker said. `number` is an errno, 0 for none; `kind` what a path is that is no regular file, `at` which one.
    `refused` is a code of ours where it has another reason, `why` that in words, `details` facts of it."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds
        self.is_last = True
        self.data: object = None
        self.parts: list[object] = []
        self.number = 0
        self.kind = ""
        self.at = ""
        self.refused = ""
        self.why = ""
        self.details: dict[str, Any] = {}

    def note_failure(self, said: dict[str, Any]) -> None:
        number = said.get("errno")
        self.number = number if isinstance(number, int) else 0
        self.kind, self.at = str(said.get("is", ""))[:80], str(said.get("at", ""))[:4096]
        self.refused, self.why = str(said.get("refused", "")), str(said.get("why", ""))[:500]
        details: object = said.get("details")
        if isinstance(details, dict):
            self.details = cast("dict[str, Any]", details)

    @property
    def fd(self) -> int:
        """The first descriptor that came, -1 where there is none."""
        return self._fds[0] if self._fds else -1

    def take_fd(self) -> int:
        """Return that descriptor, which is the caller's from now on, and close what else came."""
        first = self._fds.pop(0)
        self.close()
        return first

    def take_fds(self) -> list[int]:
        """Return all descriptors that came, which are the caller's from now on."""
        fds, self._fds = self._fds, []
        return fds

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


class Errand:
    """One request that a worker of its own is at. Each of these may be given so many seconds, after which it is UNREACHABLE."""

    def __init__(self, link: _Link, fail: Callable[[Exception, float], SandcellError]) -> None:
        self._link = link
        self._fail = fail

    async def answer(self, deadline_s: float) -> Answer:
        """Return the whole answer; whoever gets it closes it."""
        return await self._within(self._link.answer(), deadline_s)

    async def next(self, deadline_s: float | None) -> Answer:
        """Return the next piece of the answer: entries, a stream that was opened, or the end; whoever gets it closes it."""
        return await self._within(self._link.next(), deadline_s)

    async def _within(self, answer: Coroutine[Any, Any, Answer], deadline_s: float | None) -> Answer:
        try:
            async with asyncio.timeout(deadline_s):
                return await answer
        except (TimeoutError, OSError, _Nonsense) as problem:
            raise self._fail(problem, deadline_s or 0.0) from problem


class _Link:
    """One live worker: its process, and our end of its socket."""

    def __init__(self, sock: socket.socket, job: Job) -> None:
        self._sock = sock
        self._job = job
        sock.settimeout(0.0)

    def is_usable(self) -> bool:
        """Whether the worker is there and owes nothing: one that died has closed its end."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def send(self, request: dict[str, object]) -> None:
        """Send one request; a long one as a file, whose descriptor goes along."""
        text = json.dumps(request).encode()
        if len(text) <= _SHORT:
            self._sock.send(text)
            return
        file = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            view = memoryview(text)
            while view:
                view = view[os.write(file, view) :]
            rights = array.array("i", [file]).tobytes()
            self._sock.sendmsg([b'{"long": true}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        finally:
            os.close(file)

    async def answer(self) -> Answer:
        """Gather the answer. Raises OSError or _Nonsense."""
        parts: list[object] = []
        while True:
            answer = await self.next()
            if answer.is_last:
                answer.parts = parts
                return answer
            parts += answer.parts
            answer.close()

    async def next(self) -> Answer:
        """Return the next piece of an answer: some entries, the opening of a stream, or its end."""
        said, fds = await self._receive()
        answer = Answer(fds)
        match said:
            case {"part": [*entries]}:
                answer.parts, answer.is_last = entries, False
            case {"opened": _}:
                answer.is_last = False
            case {"errno": int(number)} if number > 0:
                answer.note_failure(said)
            case {"refused": str()}:
                answer.note_failure(said)
            case {"ok": data}:
                answer.data = data
            case _:
                answer.close()
                raise _Nonsense
        return answer

    def close(self) -> None:
        self._sock.close()
        self._job.start_kill(0.0, lambda _: None)

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        while True:
            try:
                return _parse(self._sock)
            except BlockingIOError:
                await _readable(self._sock.fileno())


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _parse(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return one record and the descriptors that came with it. Raises BlockingIOError where there is none yet."""
    message, ancillary, flags, _ = sock.recvmsg(
        _LONGEST_RECORD, socket.CMSG_SPACE(4 * _FDS_AT_MOST), socket.MSG_CMSG_CLOEXEC
    )
    fds = [
        fd
        for level, kind, data in ancillary
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        for fd in array.array("i", data[: len(data) // 4 * 4])
    ]
    try:
        if not message:
            raise ConnectionResetError(errno.ECONNRESET, "its end is closed")
        if flags & socket.MSG_TRUNC:
            raise _Nonsense
        said = json.loads(message)
        if not isinstance(said, dict):
            raise _Nonsense
    except (ValueError, RecursionError, OSError, _Nonsense) as problem:
        Answer(fds).close()
        raise problem if isinstance(problem, OSError) else _Nonsense from problem
    return cast("dict[str, Any]", said), fds
