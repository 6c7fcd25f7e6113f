"""The client of the spawner: starts processes in the sandbox, tells how they end, and ends their trees.

The one module that knows the spawner's protocol, which its own docstring fixes. One loop owns a Spawner.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Literal, Self

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.job import Job, JobExit, OwnedProcess, fail
from sandcell_container.guest.oom_watch import OomWatch
from sandcell_container.guest.start import Start, encode_start, start_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sandcell_container.errors import SandcellError

__all__ = ["Spawner"]

_SHORT = 2**16  # longer requests go as a memfd: one record has to fit into the socket's buffer
_MAX_RECORD = 2**17
_MAX_QUEUE = 256  # requests that the spawner has not taken yet


class Spawner:
    """The other end of the spawner's socket, which it owns. Entered: the spawner said that it is ready.

    Every start and every question has a deadline. A spawner that lets one pass is lost (user code can stop a
    process between fork and exec), and so is the sandbox: everything that waits ends with SANDBOX_GONE, and
    `gone` returns. Leaving closes the socket, which ends everything in the sandbox.
    """

    def __init__(
        self, sock: socket.socket, *, deadline_s: float = 10.0, oom_kills: Callable[[], int] = lambda: 0
    ) -> None:
        self._sock = sock
        self._oom_watch = OomWatch(oom_kills)
        self._deadline_s = deadline_s
        self._numbers = itertools.count(1)
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._jobs: dict[str, Job] = {}
        self._answers: dict[str, asyncio.Future[list[int]]] = {}
        self._trees: dict[str, list[OwnedProcess]] = {}
        self._gone: asyncio.Future[None] | None = None
        self._problem: SandcellError | None = None

    async def __aenter__(self) -> Self:
        """Raises Gone (SANDBOX_GONE) when the spawner ended, or said nothing within the deadline."""
        loop = asyncio.get_running_loop()
        self._gone = loop.create_future()
        self._sock.settimeout(0.0)
        loop.add_reader(self._sock.fileno(), self._on_readable)
        try:
            await self._expect("ready", "did not say that it is ready", self._deadline_s)
        except BaseException:
            self._lose("was given up before it was ready")
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lose("was told to end")

    async def gone(self) -> None:
        """Return when the spawner's end closed, or the spawner was given up; `problem` then says why."""
        assert self._gone is not None, "entered"
        await asyncio.shield(self._gone)

    @property
    def problem(self) -> SandcellError | None:
        """Why the spawner is gone, None while it is there."""
        return self._problem

    async def start(self, start: Start) -> Job:
        """Start a process and return it once it runs its program. Cancelling ends it.

        Raises:
            InvalidRequest (CWD_NOT_FOUND): `cwd` is no folder.
            InvalidRequest (INVALID_ENV_NAME): a name is empty or holds "=" or NUL.
            InvalidRequest (INVALID_ARGUMENT): no such program, no right to execute it, NUL in an argument, or
                arguments and environment too long; `details["errno"]` where the system said it.
            Refused (PERMISSION_DENIED): the user may not enter `cwd`.
            Unavailable (START_FAILED): the process limit, or another lack of the system.
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        return await self._start("start", start)

    async def start_server(self, start: Start) -> Job:
        """Start a fork server, whose children `adopt` then names; else as `start`.

        Where trees are told apart by marks it has the capability to mark its children: what it runs must be
        nothing that user code can write.
        """
        return await self._start("server", start)

    async def adopt(
        self, pid: int, descriptors: Sequence[int], *, kind: Literal["child", "server"] = "child"
    ) -> Job:
        """Own what a fork server has forked, with the descriptors that came with the number. Cancelling ends it.

        Where trees are told apart by marks these are the child's pidfd and its mark; elsewhere they are a socket to its
        keeper, `pid`, and the pidfd of that.

        Raises:
            Unavailable (START_FAILED): it has ended already.
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        try:
            return await self._begin("adopt", [b"%d" % pid, kind.encode()], descriptors)
        except _NotStarted:
            raise error(ErrorCode.START_FAILED, f"the process {pid} ended before it was owned") from None

    async def _start(self, verb: str, start: Start) -> Job:
        fields = encode_start(start)
        named = (
            (b"0", start.stdin),
            (b"1", start.stdout),
            (b"2", start.stderr),
            (b"3", start.extra),
            (b"t", start.terminal),
        )
        given = [(number, fd) for number, fd in named if fd is not None]
        fds = [fd for _, fd in given]
        try:
            return await self._begin(verb, [b"".join(number for number, _ in given), *fields], fds)
        except _NotStarted as failed:
            raise start_error(failed.number, failed.step, start) from None

    async def _begin(self, verb: str, fields: Sequence[bytes], fds: Sequence[int]) -> Job:
        job_id = f"j{next(self._numbers)}"
        job = self._jobs[job_id] = Job(self, job_id)
        answer = self._expect(job_id, f"did not answer a {verb}", self._deadline_s)
        try:
            self._send([verb.encode(), job_id.encode(), *fields], fds)
            job.pid = (await answer)[0]
        except _NotStarted:
            del self._jobs[job_id]
            raise
        except asyncio.CancelledError:
            job.start_kill(0.0, lambda _: None)
            raise
        return job

    async def processes(self) -> list[OwnedProcess]:
        """Return the live processes of every job that has an owner, as numbers inside the sandbox.

        Raises:
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        call = f"c{next(self._numbers)}"
        found = self._trees[call] = []
        try:
            answer = self._expect(call, "did not answer 'trees'", self._deadline_s)
            self.tell("trees", call)
            await answer
        finally:
            del self._trees[call]
        return found

    # for Job

    def tell(self, *fields: str) -> None:
        """Send a request that has no answer."""
        self._send([field.encode() for field in fields], [])

    def ask(self, verb: str, job_id: str, *fields: str, patience_s: float = 0.0) -> asyncio.Future[list[int]]:
        """Send a request that is answered with numbers, within `patience_s` and the deadline."""
        call = f"c{next(self._numbers)}"
        answer = self._expect(call, f"did not answer {verb!r}", patience_s + self._deadline_s)
        self.tell(verb, job_id, call, *fields)
        return answer

    # deadlines and the end

    def _expect(self, key: str, what: str, seconds: float) -> asyncio.Future[list[int]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[int]] = loop.create_future()
        if self._problem is not None:
            fail(answer, self._problem)
            return answer
        self._answers[key] = answer
        timer = loop.call_later(seconds, self._expire, answer, f"{what} within {seconds:g} s")
        answer.add_done_callback(lambda _: self._answered(key, timer))
        return answer

    def _expire(self, answer: asyncio.Future[list[int]], reason: str) -> None:
        """The time for an answer is over; but one of a loop that stood still is read in the same turn, before this."""
        if not answer.done():
            self._lose(reason)

    def _answered(self, key: str, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._answers.pop(key, None)

    def _lose(self, reason: str) -> None:
        if self._problem is not None or self._gone is None:
            return
        problem = self._problem = error(
            ErrorCode.SANDBOX_GONE, f"the sandbox ended: its spawner {reason}", hint="make a new sandbox"
        )
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock.fileno())
        loop.remove_writer(self._sock.fileno())
        self._sock.close()
        while self._outbox:
            _close_all(self._outbox.popleft()[1])
        for answer in self._answers.values():
            fail(answer, problem)
        for job in self._jobs.values():
            job.note_lost(problem)
        self._jobs.clear()
        self._gone.set_result(None)

    # messages

    def _send(self, fields: Sequence[bytes], fds: Sequence[int]) -> None:
        """Send now, or queue what the spawner cannot take yet."""
        if self._problem is not None:
            return
        message = b"\0".join(fields)
        if len(message) <= _SHORT:
            self._post(message, fds)
            return
        memfd = os.memfd_create("request")
        try:
            with open(memfd, "wb", closefd=False) as file:
                file.write(message)
            self._post(b"long\0" + fields[1], [memfd, *fds])
        finally:
            os.close(memfd)

    def _post(self, message: bytes, fds: Sequence[int]) -> None:
        if not self._outbox and self._try_to_post(message, fds):
            return
        if len(self._outbox) >= _MAX_QUEUE:
            self._lose(f"left {_MAX_QUEUE} requests unread")
            return
        if not self._outbox:
            asyncio.get_running_loop().add_writer(self._sock.fileno(), self._on_writable)
        self._outbox.append((message, [os.dup(fd) for fd in fds]))

    def _try_to_post(self, message: bytes, fds: Sequence[int]) -> bool:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
        try:
            self._sock.sendmsg([message], rights)
        except BlockingIOError:
            return False
        except ConnectionError:
            self._lose("is gone")
        return True

    def _on_writable(self) -> None:
        while self._outbox:
            message, fds = self._outbox[0]
            if not self._try_to_post(message, fds):
                return
            if self._outbox:
                self._outbox.popleft()
            _close_all(fds)
        if self._problem is None:
            asyncio.get_running_loop().remove_writer(self._sock.fileno())

    def _on_readable(self) -> None:
        while self._problem is None:
            try:
                message = self._sock.recv(_MAX_RECORD)
            except BlockingIOError:
                return
            except ConnectionError:
                message = b""
            if not message:
                self._lose("is gone")
                return
            self._take(message.decode().split(" "))

    def _take(self, event: list[str]) -> None:
        match event:
            case ["started", job_id, pid]:
                self._answer(job_id, [int(pid)])
            case ["failed", job_id, number, step]:
                self._refuse(job_id, _NotStarted(int(number), step))
            case ["exit", job_id, status, peak, user, system, settled]:
                ended = JobExit(
                    status=int(status),
                    peak_memory=int(peak) or None,
                    cpu_user=float(user),
                    cpu_system=float(system),
                    at=time.time(),
                    is_starved=self._oom_watch.is_starved(os.waitstatus_to_exitcode(int(status))),
                )
                self._note_exit(job_id, ended, settled=settled == "1")
            case ["settled", job_id]:
                if (job := self._jobs.pop(job_id, None)) is not None:
                    job.note_settled()
            case ["ready", _]:
                self._answer("ready", [])
            case ["tree", call, job_id, *numbers]:
                self._note_tree(call, job_id, numbers)
            case ["killed" | "pids" | "forks" | "trees", call, *numbers]:
                self._answer(call, [int(number) for number in numbers])
            case _:
                self._lose(f"said {' '.join(event)[:80]!r}")

    def _note_exit(self, job_id: str, ended: JobExit, *, settled: bool) -> None:
        job = self._jobs.pop(job_id, None) if settled else self._jobs.get(job_id)
        if job is not None:
            job.note_exit(ended, settled=settled)

    def _note_tree(self, call: str, job_id: str, numbers: list[str]) -> None:
        job = self._jobs.get(job_id)
        if job is not None and job.owner and call in self._trees:
            self._trees[call] += (OwnedProcess(int(number), job.owner) for number in numbers)

    def _answer(self, key: str, numbers: list[int]) -> None:
        answer = self._answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(numbers)

    def _refuse(self, job_id: str, failed: _NotStarted) -> None:
        answer = self._answers.get(job_id)
        if answer is not None and not answer.done():
            answer.set_exception(failed)
        else:
            self._jobs.pop(job_id, None)  # its start was cancelled


class _NotStarted(Exception):
    def __init__(self, number: int, step: str) -> None:
        self.number, self.step = number, step


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
