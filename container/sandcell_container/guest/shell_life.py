"""One bash of a session, from its start to its end: the commands that wait for it, run one after another.

Output goes to the command that is running; what background jobs say later goes to the last command, marked LATE: with
one pipe a session nobody can tell whose it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.shell import first_of
from sandcell_container.guest.shell_lines import INTERRUPTED, ShellOrder, not_run, refusal_of
from sandcell_container.holes import write_all

if TYPE_CHECKING:
    from sandcell_container.guest.job import JobExit
    from sandcell_container.guest.session_command import SessionCommand, StopCause
    from sandcell_container.guest.session_pipes import SessionPipes
    from sandcell_container.guest.shell import Finish, Shell
    from sandcell_container.guest.spill import SpillStore

__all__ = ["LifeSettings", "ShellLife", "session_ended"]

log = logging.getLogger(__name__)

_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.2
_READY_S = 10.0  # for bash between two commands, where nothing of the user's runs


class LifeSettings(Protocol):
    """Seconds, and how many commands may wait."""

    @property
    def interrupt_grace(self) -> float: ...
    @property
    def kill_grace(self) -> float: ...
    @property
    def max_queue(self) -> int: ...


class ShellLife:
    """See the module. `end` is how bash ended, None while it lives. The inputs of commands are kept in `input_dir`."""

    def __init__(
        self,
        session_id: str,
        shell: Shell,
        pipes: SessionPipes,
        settings: LifeSettings,
        store: SpillStore,
        input_dir: str,
    ) -> None:
        self.running: SessionCommand | None = None
        self.end: End | None = None
        self.last_active = 0.0  # when a command last ended, in seconds since the epoch
        self._session_id = session_id
        self._shell = shell
        self._pipes = pipes
        self._settings = settings
        self._store = store
        self._input_dir = input_dir
        self._queue: deque[SessionCommand] = deque()
        self._inherited = dict[str, bytes | None]()
        self._lasting = dict[str, bytes | None]()
        self._changes = deque[tuple[dict[str, bytes | None], asyncio.Future[None]]]()
        self._news = asyncio.Event()
        self._is_stopping = False
        self._over = asyncio.Event()
        shell.exited.add_done_callback(lambda _: self._news.set())

    @property
    def is_over(self) -> bool:
        """Whether bash has ended, or is being ended."""
        return self._is_stopping or self._shell.exited.done() or self.end is not None

    @property
    def pid(self) -> int:
        return self._shell.job.pid

    @property
    def cwd(self) -> str:
        return self._shell.cwd

    @property
    def waiting(self) -> list[SessionCommand]:
        """The commands that wait, the next one first."""
        return list(self._queue)

    @property
    def last_output(self) -> bytes:
        """The end of what its last command said."""
        return self._pipes.last_output

    def add(self, command: SessionCommand) -> None:
        """Queue a command; it is not over.

        Raises:
            Limited (QUOTA_EXCEEDED): the queue is full.
        """
        if len(self._queue) >= self._settings.max_queue:
            raise error(
                ErrorCode.QUOTA_EXCEEDED,
                f"{len(self._queue)} commands wait in the session {self._session_id!r}",
                hint="wait for some of them, or make another session",
            )
        self._queue.append(command)
        command.stop.add_done_callback(lambda _: self._unqueue(command))
        seconds = command.order.queue_timeout
        if seconds is not None:
            loop = asyncio.get_running_loop()
            command.queue_timer = loop.call_later(seconds, self._give_up, command, seconds)
        self._news.set()

    async def set_env(self, changes: dict[str, bytes | None]) -> None:
        """Change variables, all or none: at once where no command runs or waits, else before the next one.

        Cancelling leaves open whether it is done.

        Raises:
            InvalidRequest (INVALID_ENV_NAME): one is read-only. Gone (SESSION_ENDED).
        """
        if self.running is not None or self._queue:
            self.keep_env(changes)
            return
        if self.is_over:
            raise session_ended(self._session_id, self.end, self.last_output)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.append((changes, done))
        self._news.set()
        await done

    def keep_env(self, changes: dict[str, bytes | None]) -> None:
        """Change variables before the next command, which is refused where one is read-only."""
        self._lasting |= changes

    def inherit_env(self, changes: dict[str, bytes | None]) -> None:
        """Do the same with what comes from the sandbox: a variable that is read-only here stays as it is."""
        self._inherited |= changes

    async def stop(self) -> None:
        """End bash and all that it started, and return when that is done. Commands end as "killed"."""
        self._is_stopping = True
        for command in [*self._queue, *([self.running] if self.running else [])]:
            command.end_by("killed")
        self._news.set()
        await self.over()

    async def over(self) -> None:
        """Return when bash has ended, and all that it started."""
        await self._over.wait()

    async def serve(self) -> None:
        """Run commands until bash has ended. For the room, which owns the task."""
        try:
            while await self._is_ready() and await self._have_next():
                command = self.running = self._queue.popleft()
                if not await self._is_ready():
                    break
                await self._run(command)
        except SandcellError as problem:
            log.info("the shell is lost session=%s code=%s", self._session_id, problem.code)
        finally:
            await self._end()

    async def _is_ready(self) -> bool:
        try:
            async with asyncio.timeout(_READY_S):
                return await self._shell.ready()
        except TimeoutError:
            return False  # user code stopped it, or broke it on purpose

    async def _have_next(self) -> bool:
        """Return True when a command waits, False when bash is to end."""
        while self._changes or not self._queue:
            if self.is_over:
                return False
            if self._changes:
                if not await self._is_ready():
                    return False
                await self._change(*self._changes.popleft())
                continue
            self._news.clear()
            await self._news.wait()
        return True

    async def _change(self, changes: dict[str, bytes | None], done: asyncio.Future[None]) -> None:
        """Change variables between two commands. A bash that hangs meanwhile is found by who wants it ready."""
        order = ShellOrder(command=b"", lasting=tuple(changes.items()), changes=True)
        finish = self._shell.begin(order)
        await first_of(finish, timeout_s=_READY_S)
        told = finish.result() if finish.done() else None
        if done.done():
            return  # nobody waits for it any more
        if told is None:
            done.set_exception(session_ended(self._session_id, self.end, self.last_output))
        elif told.refusal is not None:
            done.set_exception(refusal_of(told.refusal, order))
        else:
            done.set_result(None)

    # one command

    async def _run(self, command: SessionCommand) -> None:
        """Run one command to its end; one that ends bash with it is left to `_end`."""
        command.note_start()
        order = replace(
            command.shell_order,
            inherited=tuple(self._inherited.items()),
            lasting=tuple(self._lasting.items()),
        )
        if command.order.stdin is not None:
            path = await self._provide_input(command, command.order.stdin)
            if path is None:
                self.running = None
                command.refuse(not_run())
                return
            order = replace(order, stdin=path)
        self._inherited.clear()
        self._lasting.clear()
        await self._pipes.give_to(command)
        finish = self._shell.begin(order)
        self._shell.begun.add_done_callback(lambda begun: command.note_begun() if begun.result() else None)
        await first_of(finish, command.stop, timeout_s=command.order.timeout)
        if not finish.done():
            command.end_by("timeout")
            command.cause = command.stop.result()
            await self._interrupt(finish)
        await self._conclude(command, await finish)

    async def _conclude(self, command: SessionCommand, finish: Finish | None) -> None:
        if command.order.stdin is not None:
            self._store.remove_soon(self._input_path(command))
        if finish is None or self._shell.exited.done():
            return
        await self._pipes.drain()
        self.running, self.last_active = None, time.time()
        if finish.refusal is not None:
            command.refuse(refusal_of(finish.refusal, command.shell_order))
        elif not finish.ran and finish.status != INTERRUPTED:
            command.refuse(not_run())
        else:
            command.finish(End(cause=command.cause or "exited", code=finish.status, at=time.time()))

    async def _interrupt(self, finish: asyncio.Future[Finish | None]) -> None:
        """Interrupt the command; after the grace, kill the shell with all that is in it.

        Bash may overlook a SIGINT. Nothing tells of that, so it is looked for, more and more seldom; then it is sent
        again. A program that takes its time to end is sent one alone.
        """
        job, pause_s = self._shell.job, _FIRST_LOOK_S
        try:
            async with asyncio.timeout(self._settings.interrupt_grace):
                sent = await self._shell.interrupt()
                while not finish.done():
                    await first_of(finish, timeout_s=pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
                    if not finish.done() and await self._shell.is_overlooked(sent):
                        sent = await self._shell.interrupt()
        except TimeoutError:
            # Bash first: it ignores SIGTERM, and would go on with the next line once what it waits for is ended.
            job.signal(signal.SIGKILL, "process")
            await job.kill_tree(self._settings.kill_grace)
            await first_of(self._shell.exited)

    # its input: a file, as bash can be given no descriptor

    async def _provide_input(self, command: SessionCommand, data: bytes) -> bytes | None:
        """Write the input where bash finds it; returns the path, None where that did not work."""
        path = self._input_path(command)
        fd = await self._open_input(path)
        if fd is None:
            return None
        try:
            _write_and_close(fd, data)
        except OSError as problem:
            log.info("no input session=%s: %s", self._session_id, os.strerror(problem.errno or 0))
            self._store.remove_soon(path)
            return None
        return path.encode(errors="surrogateescape")

    async def _open_input(self, path: str) -> int | None:
        opened: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        def on_open(fd: int | None) -> None:
            if not opened.done():
                opened.set_result(fd)
            elif fd is not None:
                os.close(fd)

        self._store.open_soon(path, on_open)
        return await opened

    def _input_path(self, command: SessionCommand) -> str:
        return f"{self._input_dir}/{command.id}"

    # the end

    async def _end(self) -> None:
        """End bash and all of its tree, then tell every command that had not ended."""
        exited, job = self._shell.exited, self._shell.job
        was_stopped, self._is_stopping = self._is_stopping, True
        self._shell.close()
        leftovers = 0
        try:
            if was_stopped:
                await first_of(exited, timeout_s=self._settings.kill_grace)  # for its EXIT trap
            leftovers = await job.kill_tree()
        except SandcellError as problem:
            log.debug("nothing left to end session=%s code=%s", self._session_id, problem.code)
        await self._pipes.drain()
        how = exited.result() if exited.done() and not self._shell.is_broken else None
        cause = self.running.cause if self.running is not None else None
        self.end = _end_of(how, cause or ("killed" if was_stopped else None))
        if self.running is not None and self.running.started_at is None:
            self._queue.appendleft(self.running)  # bash could not be made ready for it
        elif self.running is not None:
            self.running.finish(self.end, leftovers=leftovers)
        self.running = None
        while self._queue:
            self._queue.popleft().refuse(session_ended(self._session_id, self.end, self.last_output))
        for _, done in self._changes:
            if not done.done():
                done.set_exception(session_ended(self._session_id, self.end, self.last_output))
        self._changes.clear()
        self._pipes.close()
        self._over.set()

    def _unqueue(self, command: SessionCommand) -> None:
        if command in self._queue:
            self._queue.remove(command)
            command.finish(End(cause=command.stop.result(), at=time.time()))

    def _give_up(self, command: SessionCommand, seconds: float) -> None:
        if command in self._queue:
            self._queue.remove(command)
            message = f"the command waited for {seconds:g} s and its turn did not come"
            command.refuse(error(ErrorCode.BUSY, message, hint="try again later"))


def session_ended(session_id: str, end: End | None, last_output: bytes) -> SandcellError:
    """Return the error of a command for a session whose shell has ended so, or is just ending."""
    cause, code = (end.cause, end.code) if end is not None else (None, None)
    how = "".join((f": {cause}" if cause else "", f", exit code {code}" if code is not None else ""))
    return error(
        ErrorCode.SESSION_ENDED,
        f"the session {session_id!r} has ended{how}",
        hint="restart() starts it anew",
        details={
            "cause": cause,
            "exit_code": code,
            "last_output": last_output.decode(errors="replace"),
        },
    )


def _write_and_close(fd: int, data: bytes) -> None:
    """Write `data` and close."""
    with open(fd, "wb", buffering=0):
        write_all(fd, data)


def _end_of(ended: JobExit | None, cause: StopCause | None) -> End:
    """Return the end of a shell, and of the command that ended with it."""
    if ended is None:
        return End(cause=cause or "lost", at=time.time(), state="lost")
    return replace(ended.end(cause), state="lost")
