"""Sessions: persistent shells with a name, in each of which commands run one after another.

What the shell is and how it runs a command is `shell`'s business. Output goes to the command that is running; what
background jobs say later goes to the last command, marked LATE: with one pipe a session nobody can tell whose it is.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import struct
import termios
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol, Self

import msgspec

from sandcell_container.end import CommandEnd, End, end_of_status
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.shell import first_of, start_shell
from sandcell_container.ids import check_id
from sandcell_container.journal import LATE, Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.shell import Shell
    from sandcell_container.guest.spawn import JobExit, Spawner

__all__ = ["Session", "SessionCommand", "SessionSettings", "Sessions"]

log = logging.getLogger(__name__)

_CHUNK = 2**18
_LONGEST_COMMAND = 2**20  # bash reads it byte by byte: half a second
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 0.2
_READY_S = 10.0  # for bash between two commands, where nothing of the user's runs

_StopCause = Literal["interrupted", "timeout", "killed"]


class SessionSettings(Protocol):
    """What sessions need of the configuration. Seconds and bytes."""

    @property
    def interrupt_grace(self) -> float: ...
    @property
    def kill_grace(self) -> float: ...
    @property
    def max_queue(self) -> int: ...
    @property
    def journal_memory(self) -> int: ...
    @property
    def journal_disk(self) -> int: ...


class SessionCommand:
    """One command of a session. Its journal ends with ENDED, a CommandEnd as JSON; output of background jobs may
    follow, marked LATE. `end.state` is "lost" when the session ended with this command."""

    def __init__(self, text: bytes, timeout: float | None, journal: Journal) -> None:
        self.text = text
        self.timeout = timeout
        self.journal = journal
        self.began: float | None = None
        self.cause: _StopCause | None = None
        self.stop: asyncio.Future[_StopCause] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[CommandEnd] = asyncio.get_running_loop().create_future()

    async def wait(self) -> CommandEnd:
        """Return how it ended. Cancelling leaves it running."""
        return await asyncio.shield(self._ended)

    def cancel(self) -> None:
        """End it: interrupted when it runs, taken from the queue when it waits. Its journal tells."""
        self.end_by("killed")

    # for the Session

    def end_by(self, cause: _StopCause) -> None:
        if not self.stop.done():
            self.stop.set_result(cause)

    def finish(self, end: End, *, leftovers: int = 0) -> None:
        duration = 0.0 if self.began is None else time.monotonic() - self.began
        ended = CommandEnd(
            end=end, exit_code=end.code, signal=end.signal, duration=duration, leftovers=leftovers
        )
        self.journal.append(Kind.ENDED, msgspec.json.encode(ended))
        self.journal.end()
        self._ended.set_result(ended)


class Session:
    """One persistent shell. Made by `Sessions`."""

    def __init__(
        self, session_id: str, shell: Shell, pipes: _Pipes, epoch: str, settings: SessionSettings
    ) -> None:
        self.id = session_id
        self._shell = shell
        self._pipes = pipes
        self._epoch = epoch
        self._settings = settings
        self._queue: deque[SessionCommand] = deque()
        self._current: SessionCommand | None = None
        self._news = asyncio.Event()
        self._deleted = False
        self._over = asyncio.Event()
        shell.exited.add_done_callback(lambda _: self._news.set())

    @property
    def ended(self) -> bool:
        """Whether its shell has ended, or is to be ended."""
        return self._deleted or self._shell.exited.done() or self._over.is_set()

    def run(self, command: str, *, timeout: float | None = None) -> SessionCommand:
        """Queue a command. Its journal gets output as it comes.

        After `timeout` seconds of running it is interrupted, and after a grace killed with the whole session.
        Its standard input is /dev/null. A redirection by `exec >file` lasts for this command only.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): it holds a NUL character, or is no text.
            InvalidRequest (TOO_LARGE): it has more than 1 MiB.
            Conflict (BUSY): the queue is full.
            Gone (SESSION_ENDED): the shell has ended.
        """
        if self.ended:
            raise error(
                ErrorCode.SESSION_ENDED, f"the session {self.id!r} has ended", hint="ask for it again"
            )
        if len(self._queue) >= self._settings.max_queue:
            raise error(ErrorCode.BUSY, f"{len(self._queue)} commands wait in the session {self.id!r}")
        limits = JournalLimits(memory=self._settings.journal_memory, disk=self._settings.journal_disk)
        queued = SessionCommand(_encode(command), timeout, Journal(self._epoch, limits))
        self._queue.append(queued)
        queued.stop.add_done_callback(lambda _: self._unqueue(queued))
        self._news.set()
        return queued

    def interrupt(self) -> None:
        """Interrupt the command that runs, as ^C would; one that goes on for the grace is killed with the session."""
        if self._current is not None:
            self._current.end_by("interrupted")

    async def delete(self) -> None:
        """End the shell and all that it started, and return when that is done. Commands end as "killed"."""
        self._deleted = True
        for command in [*self._queue, *([self._current] if self._current else [])]:
            command.end_by("killed")
        self._news.set()
        await self._over.wait()

    async def serve(self) -> None:
        """Run commands until the shell has ended. For Sessions, which owns the task."""
        try:
            while await self._is_ready() and (command := await self._next()) is not None:
                self._current = command
                await self._run(command)
        except SandcellError as problem:
            log.info("the shell is lost session=%s code=%s", self.id, problem.code)
        finally:
            await self._end()

    async def _is_ready(self) -> bool:
        try:
            async with asyncio.timeout(_READY_S):
                return await self._shell.ready()
        except TimeoutError:
            return False  # user code stopped it, or broke it on purpose

    async def _next(self) -> SessionCommand | None:
        """Return the next command, None when the session is to end."""
        while not self._queue:
            if self.ended:
                return None
            self._news.clear()
            await self._news.wait()
        return self._queue.popleft()

    async def _run(self, command: SessionCommand) -> None:
        """Run one command to its end; one that ends bash with it is left to `_end`."""
        self._pipes.give_to(command.journal)
        command.began = time.monotonic()
        finish = self._shell.begin(command.text)
        await first_of(finish, command.stop, timeout_s=command.timeout)
        if not finish.done():
            command.end_by("timeout")
            command.cause = command.stop.result()
            await self._interrupt(finish)
        status = await finish
        if status is None or self._shell.exited.done():
            return
        self._current = None
        self._pipes.drain()
        command.finish(End(cause=command.cause or "exited", code=status, at=time.time()))
        self._pipes.is_late = True

    async def _interrupt(self, finish: asyncio.Future[int | None]) -> None:
        """Interrupt the command; after the grace, kill the shell with all that is in it.

        Bash overlooks a SIGINT that comes while it forks. Then there are processes that were not there before it,
        and it is sent again. Nothing else tells of that, so it is looked for, more and more seldom.
        """
        job, pause_s = self._shell.job, _FIRST_LOOK_S
        try:
            async with asyncio.timeout(self._settings.interrupt_grace):
                there = set(await self._shell.interrupt())
                while not finish.done():
                    await first_of(finish, timeout_s=pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
                    if set(await job.pids()) - there and not finish.done():
                        there = set(await self._shell.interrupt())
        except TimeoutError:
            # Bash first: it ignores SIGTERM, and would go on with the next line once what it waits for is ended.
            job.signal(signal.SIGKILL, "process")
            await job.kill_tree(self._settings.kill_grace)
            await first_of(self._shell.exited)

    async def _end(self) -> None:
        """End bash and all of its tree, then tell every command that had not ended."""
        exited, job = self._shell.exited, self._shell.job
        self._shell.close()
        leftovers = 0
        try:
            if self._deleted:
                await first_of(exited, timeout_s=self._settings.kill_grace)  # for its EXIT trap
            self._deleted = True
            leftovers = await job.kill_tree()
        except SandcellError as problem:
            log.debug("nothing left to end session=%s code=%s", self.id, problem.code)
        self._pipes.drain()
        if self._current is not None:
            end = _end_of(exited.result() if exited.done() else None, self._current.cause)
            self._current.finish(end, leftovers=leftovers)
        while self._queue:
            self._queue.popleft().finish(End(cause="lost", at=time.time(), state="lost"))
        self._pipes.close()
        self._over.set()

    def _unqueue(self, command: SessionCommand) -> None:
        if command in self._queue:
            self._queue.remove(command)
            command.finish(End(cause=command.stop.result(), at=time.time()))


class _Pipes:
    """What a shell's commands say: read as it comes, given to the journal of the command that runs."""

    def __init__(self) -> None:
        self.is_late = False
        self._journal: Journal | None = None
        self._loop = asyncio.get_running_loop()
        self._ends: dict[int, Kind] = {}
        self.write_ends: list[int] = []
        for kind in (Kind.STDOUT, Kind.STDERR):
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            self._ends[read_end] = kind
            self.write_ends.append(write_end)
            self._loop.add_reader(read_end, self._on_readable, read_end)

    def give_to(self, journal: Journal) -> None:
        """Take what was said until now for the one before, what comes from now on for `journal`."""
        self.drain()
        self._journal, self.is_late = journal, False

    def drain(self) -> None:
        """Read what is there now, and no more: a background job may write for ever."""
        for fd, kind in self._ends.items():
            left = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
            while left > 0 and (data := os.read(fd, min(left, _CHUNK))):
                left -= len(data)
                self._take(kind, data)

    def close_write_ends(self) -> None:
        """The shell has them now."""
        while self.write_ends:
            os.close(self.write_ends.pop())

    def close(self) -> None:
        self.close_write_ends()
        for fd in self._ends:
            self._loop.remove_reader(fd)
            os.close(fd)
        self._ends.clear()

    def _on_readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._take(self._ends[fd], data)
        else:
            self._loop.remove_reader(fd)

    def _take(self, kind: Kind, data: bytes) -> None:
        """What is said before the first command is the rc files' affair."""
        if self._journal is not None:
            self._journal.append(kind, data, flags=LATE if self.is_late else 0)


class Sessions:
    """The sessions of a sandbox by id. An async context manager: leaving it ends them all."""

    def __init__(self, spawner: Spawner, boot: GuestBoot, settings: SessionSettings) -> None:
        self._spawner = spawner
        self._boot = boot
        self._settings = settings
        self._known: dict[str, Session] = {}
        self._starting = asyncio.Lock()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    async def get_or_create(self, session_id: str) -> Session:
        """Return the live session of this id, a new one where there is none or it has ended.

        A new one begins in the working directory, with the user's environment, and reads ~/.bashrc.

        Raises:
            InvalidRequest (INVALID_NAME): it cannot be an id. UNSUPPORTED: there is no bash.
            Unavailable (START_FAILED): bash did not start, or ended in its rc files.
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        check_id(session_id, what="id of a session")
        async with self._starting:
            found = self._known.get(session_id)
            if found is None or found.ended:
                found = self._known[session_id] = await self._create(session_id)
        return found

    async def _create(self, session_id: str) -> Session:
        pipes = _Pipes()
        try:
            stdout, stderr = pipes.write_ends
            boot = self._boot
            shell = await start_shell(
                self._spawner, cwd=boot.workdir, env=boot.base_env, stdout=stdout, stderr=stderr
            )
        except BaseException:
            pipes.close()
            raise
        pipes.close_write_ends()
        shell.job.owner = session_id
        session = Session(session_id, shell, pipes, boot.epoch, self._settings)
        task = self._group.create_task(self._serve(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    async def _serve(self, session: Session) -> None:
        await session.serve()
        if self._known.get(session.id) is session:
            del self._known[session.id]


def _encode(command: str) -> bytes:
    if "\0" in command:
        raise error(
            ErrorCode.INVALID_ARGUMENT, "the command holds a NUL character", hint="bash cannot read one"
        )
    try:
        text = command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        raise error(ErrorCode.INVALID_ARGUMENT, f"the command is no text: {problem.reason}") from None
    if len(text) > _LONGEST_COMMAND:
        raise error(
            ErrorCode.TOO_LARGE,
            f"the command has {len(text)} bytes",
            hint="write it to a file, and source that",
        )
    return text


def _end_of(ended: JobExit | None, cause: _StopCause | None) -> End:
    """Return the end of a command that ended bash with it, or was lost with it."""
    if ended is None:
        return End(cause=cause or "lost", at=time.time(), state="lost")
    return replace(end_of_status(ended.status, at=ended.at, cause=cause), state="lost")
