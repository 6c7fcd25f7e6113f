"""The guest's end of the worker: a process with the user's identity, for what has to be done by that.

It opens files and terminals and reads what is known of processes. Requests go to it one after another; what it says
counts as untrusted: nothing of it is believed but its shape, and it has a bounded time.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from sandcell_container.guest.spawn import Job, Spawner

__all__ = ["Answer", "UserWorker", "believe"]

_T = TypeVar("_T")

# Read while the guest is imported: once it has entered a sandbox it no longer sees its own files.
_PROGRAM = Path(__file__).with_name("user_worker_program.py").read_text("utf-8")
_LONGEST_RECORD = 2**18
_FDS_AT_MOST = 2


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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop()

    async def ask(self, verb: str, what: str, **fields: object) -> Answer:
        """Put one request and return the answer, which may be that it failed; whoever gets it closes it.

        `what` says for a person what the request is about.

        Raises:
            Unavailable (UNREACHABLE): the worker died or did not answer; whether the work was done is not known.
            Gone (SANDBOX_GONE): it died with the sandbox.
            Others: as `Spawner.start`, when it does not start.
        """
        request = json.dumps({"do": verb, **fields}).encode()
        async with self._one_at_a_time:
            link = await self._connect()
            try:
                async with asyncio.timeout(self._deadline_s):
                    return await link.ask(request)
            except (TimeoutError, OSError, _Nonsense) as problem:
                self._drop()
                if self._spawner.problem is not None:
                    raise self._spawner.problem from problem
                raise error(
                    ErrorCode.UNREACHABLE,
                    f"no answer about {what}: {_what_happened(problem, self._deadline_s)}",
                    hint="try again",
                    details={"admitted": "unknown"},
                ) from problem
            except BaseException:
                self._drop()  # its answer would be taken for the next request's
                raise

    async def _connect(self) -> _Link:
        if self._link is not None and self._link.is_usable():
            return self._link
        self._drop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                job = await self._start(theirs.fileno())
            except BaseException:
                ours.close()
                raise
        self._link = _Link(ours, job)
        return self._link

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
    return Start(argv=(python, "-I", "-S", "-c", _PROGRAM), env={}, cwd="/", stdin=stdin)


def _what_happened(problem: Exception, deadline_s: float) -> str:
    if isinstance(problem, TimeoutError):
        return f"the worker took more than {deadline_s:g} s and was ended"
    if isinstance(problem, _Nonsense):
        return "the worker said nonsense and was ended"
    return "the worker died"


class _Nonsense(Exception):
    """The worker said what no worker of ours says."""


class Answer:
    """What the worker said: `number` is an errno, 0 for success; `kind` what a path is that is no regular file."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds
        self.data: object = None
        self.parts: list[object] = []
        self.number = 0
        self.kind = ""

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

    async def ask(self, request: bytes) -> Answer:
        """Send one request and gather its answer. Raises OSError or _Nonsense."""
        self._sock.send(request)
        parts: list[object] = []
        while True:
            said, fds = await self._receive()
            answer = Answer(fds)
            try:
                match said:
                    case {"part": [*entries]}:
                        parts += entries
                    case {"errno": int(number), **more} if number > 0:
                        answer.number, answer.kind = number, str(more.get("is", ""))[:80]
                        return answer
                    case {"ok": data}:
                        answer.data, answer.parts = data, parts
                        return answer
                    case _:
                        raise _Nonsense
            finally:
                if answer.data is None:
                    answer.close()

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
        for fd in struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
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
