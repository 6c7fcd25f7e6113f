"""One process: a job with a life of its own, whatever becomes of the request and the client that started it.

Driven by the loop's callbacks, no task and no thread. It runs until nothing of its tree is left; how it ended is how
the process itself did that was started.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from sandcell_container.descriptors import leave_room
from sandcell_container.end import End, KillReport
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.command_line import argv_of, start_command
from sandcell_container.guest.ending import Ending
from sandcell_container.guest.masks import Masks, StreamMasks
from sandcell_container.guest.process_pipes import InputPipe, OutputPipe
from sandcell_container.guest.start import Start
from sandcell_container.guest.throttle import Throttle
from sandcell_container.journal import Cursor, Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from sandcell_container.guest.ending import OwnCause
    from sandcell_container.guest.job import Job, JobExit, Scope
    from sandcell_container.guest.spawn import Spawner

__all__ = ["OnFull", "Process", "ProcessPlan", "start_process"]

_RESTING_MEMORY = 2**14  # of a journal whose process has ended; what is over it goes to its disk

OnFull = Literal["drop_oldest", "block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """A process to start.

    `command` is a line for bash or words, as the caller gave it; `argv` what is started instead of it, with `extra` as
    its descriptor 3, which stays the caller's. `env` is the whole environment, `cwd` absolute. `timeout` in seconds from
    its start, then SIGTERM, `kill_grace` seconds, SIGKILL to its tree. `stdin`: whether it can be written to, else it
    has none. `memory` in bytes for each process of the tree. `limits` of its journal. `on_full`: whether the oldest
    output is dropped where the journal is full, or the process waits until somebody has read half of it. `judge` may
    see in an end that memory was short. `masks` takes secrets out of the output.
    """

    id: str
    command: str | tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    epoch: str
    limits: JournalLimits
    kill_grace: float
    argv: tuple[str, ...] | None = None
    extra: int | None = None
    session_id: str | None = None
    timeout: float | None = None
    stdin: bool = False
    memory: int | None = None
    on_full: OnFull = "drop_oldest"
    judge: Callable[[End], End] = field(default=lambda end: end)
    masks: Masks | None = None


async def start_process(
    spawner: Spawner, plan: ProcessPlan, *, on_end: Callable[[Process], None] = lambda _: None
) -> Process:
    """Start a process and return it. `on_end` is called once, when nothing of it is left. Cancelling ends it.

    Raises as `Spawner.start`, and Unavailable (START_FAILED) where the guest can open no more pipes.
    """
    process = Process(plan, on_end)
    try:
        process.begin(await start_command(spawner, plan.argv or plan.command, process.describe_start()))
    except BaseException:
        process.close()
        raise
    return process


class Process:
    """See the module. Its journal holds STARTED, its output, and last ENDED, a CommandEnd as JSON."""

    def __init__(self, plan: ProcessPlan, on_end: Callable[[Process], None]) -> None:
        self.plan = plan
        self.pid = 0
        self.started_at = 0.0
        self.end: End | None = None
        self.journal = Journal(plan.epoch, plan.limits)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._masks = None if plan.masks is None else StreamMasks(plan.masks, self._take)
        take = self._take if self._masks is None else self._masks.take
        self._pipes = _Pipes(take, has_input=plan.stdin)
        self._throttle = Throttle(self._pipes, self.journal, plan.limits, must_keep=plan.on_full == "block")
        self._ending = Ending(plan.judge)
        self._job: Job | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._kills = 0  # that have not been answered: they know what was left behind
        self._readers = 0
        self._is_dropped = False
        self._over: asyncio.Future[End] = self._loop.create_future()

    @property
    def id(self) -> str:
        return self.plan.id

    @property
    def is_running(self) -> bool:
        """Whether something of its tree is there."""
        return self.end is None

    async def wait(self) -> End:
        """Return how it ended, once nothing of it is left. Cancelling leaves it running."""
        return await asyncio.shield(self._over)

    def signal(self, number: int, scope: Scope = "group") -> None:
        """Send a signal to the started process, its process group, or its tree; once that process has ended, to
        what is left of its tree. One that has ended wholly is left alone.

        Raises:
            InvalidRequest (UNKNOWN_SIGNAL): there is no signal of that number.
        """
        if self.is_running and self._job is not None:
            self._job.signal(number, "tree" if self._ending.has_exited else scope)

    async def kill(self, grace_s: float | None = None, *, who: str | None = None) -> KillReport:
        """End its tree: SIGTERM, `grace_s` seconds (by default the plan's), SIGKILL; 0 is SIGKILL at once.

        Returns when nothing of it is left, or 2 s after SIGKILL where something cannot die. What has ended already is
        no error. Cancelling does not take it back.

        Raises:
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        if not self.is_running or self._job is None:
            return KillReport()
        killed = await asyncio.shield(self._begin_kill(self._job, "killed", who, grace_s))
        if killed is None:
            await self._job.settled()  # raises: the spawner was lost
        if self._job.is_settled:
            await self.wait()
            return KillReport(killed=killed or 0)
        return KillReport(killed=killed or 0, survived=len(await self._job.pids()))

    async def write(self, data: bytes, *, timeout_s: float) -> None:
        """Write to its standard input, as fast as that is read. Cancelling leaves a part of it written.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): it was started without one.
            Gone (LOST): it has ended, its input was closed, or nobody is left who could read it.
            WaitTimeout: not all was read by then; `details["written"]` says how many bytes were taken.
        """
        written = await self._input().write(data, timeout_s=timeout_s)
        if written < len(data):
            raise error(
                ErrorCode.WAIT_TIMEOUT,
                f"the process {self.id} has read {written} of {len(data)} bytes within {timeout_s:g} s",
                hint="write the rest later, when it reads again",
                details={"written": written},
            )

    def close_stdin(self) -> None:
        """Let it see the end of its input. Twice is fine. Raises as `write` where it has none."""
        self._input().close()

    def note_read(self, cursor: Cursor) -> None:
        """Somebody has read as far as `cursor`, and does not read just now: with `on_full="block"` the process goes on
        where it waits for that. Readers of the journal are heard of by that."""
        self._throttle.note_read(cursor)

    @contextmanager
    def read(self) -> Generator[Journal]:
        """Yield the journal, which outlives `drop` for as long."""
        self._readers += 1
        try:
            yield self.journal
        finally:
            self._readers -= 1
            if self._is_dropped and not self._readers:
                self.journal.close()

    def drop(self) -> None:
        """Give the journal of what has ended back, when nobody reads it any more."""
        self._is_dropped = True
        if not self._readers:
            self.journal.close()

    def close(self) -> None:
        """Give back the journal and the pipes; what still runs is not ended by it. Twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
        self._throttle.stop()
        self._pipes.close()
        self.journal.close()

    # for start_process

    def describe_start(self) -> Start:
        plan, pipes = self.plan, self._pipes
        return Start(
            argv=plan.argv or argv_of(plan.command),
            env=plan.env,
            cwd=plan.cwd,
            stdin=pipes.stdin.read_end if pipes.stdin is not None else None,
            stdout=pipes.stdout.write_end,
            stderr=pipes.stderr.write_end,
            extra=plan.extra,
            memory=plan.memory,
        )

    def begin(self, job: Job) -> None:
        """It has been started: take what comes from now on."""
        self._job, self.pid, job.owner = job, job.pid, self.id
        self.started_at = time.time()
        self._ending.note_start()
        self._pipes.hand_over()
        self.journal.append(Kind.STARTED, json.dumps({"pid": job.pid}).encode())
        self._pipes.resume()
        if self.plan.timeout is not None:
            self._timer = self._loop.call_later(
                self.plan.timeout, self._begin_kill, job, "timeout", None, None
            )
        job.when_exited(self._on_exit)
        job.when_settled(self._on_news)

    # what comes

    def _take(self, kind: Kind, data: bytes) -> None:
        self.journal.append(kind, data)
        self._throttle.note_written()

    def _begin_kill(
        self, job: Job, cause: OwnCause, who: str | None, grace_s: float | None
    ) -> asyncio.Future[int | None]:
        """Begin to end its tree; the future is how many processes were signalled, None where the spawner was lost."""
        answer: asyncio.Future[int | None] = self._loop.create_future()
        others = int(not self._ending.has_exited)
        self._ending.note_cause(cause, who)
        self._kills += 1

        def answered(count: int | None) -> None:
            self._kills -= 1
            self._ending.note_leftovers((count or 0) - others)
            self._on_news()
            answer.set_result(count)

        job.start_kill(self.plan.kill_grace if grace_s is None else grace_s, answered)
        return answer

    def _on_exit(self, ended: JobExit | None) -> None:
        self._ending.note_exit(ended)
        self._on_news()

    def _on_news(self) -> None:
        settled = self._job is not None and self._job.is_settled
        if settled and self._ending.has_exited and not self._kills and self.end is None:
            self._finish()

    def _finish(self) -> None:
        """Nobody of the tree is left, or the sandbox is lost: read what is in the pipes, then end."""
        if self._timer is not None:
            self._timer.cancel()
        self._pipes.finish()
        if self._masks is not None:
            self._masks.finish()
        self._throttle.stop()
        ended = self._ending.result()
        self.end = ended.end
        self.journal.append(Kind.ENDED, msgspec.json.encode(ended))
        self.journal.end()
        self.journal.rest(_RESTING_MEMORY)
        self._over.set_result(self.end)
        self._on_end(self)

    def _input(self) -> InputPipe:
        if self._pipes.stdin is None:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"the process {self.id} has no standard input",
                hint="start it with stdin=True",
            )
        return self._pipes.stdin


class _Pipes:
    """The three of a process."""

    def __init__(self, take: Callable[[Kind, bytes], None], *, has_input: bool) -> None:
        held = list[OutputPipe | InputPipe]()
        try:
            self.stdout = OutputPipe(lambda data: take(Kind.STDOUT, data))
            held.append(self.stdout)
            self.stderr = OutputPipe(lambda data: take(Kind.STDERR, data))
            held.append(self.stderr)
            self.stdin = InputPipe() if has_input else None
            held += [self.stdin] if self.stdin is not None else []
            leave_room(self.stdin.read_end if self.stdin is not None else self.stderr.write_end)
        except OSError as problem:
            for each in held:
                each.close()
            raise error(
                ErrorCode.START_FAILED,
                f"no pipe for the process: {os.strerror(problem.errno or 0)}",
                hint="end some of the sandbox's processes",
                retryable=True,
            ) from problem

    def hand_over(self) -> None:
        """The process has its ends now."""
        self.stdout.close_write_end()
        self.stderr.close_write_end()
        if self.stdin is not None:
            self.stdin.close_read_end()

    def resume(self) -> None:
        self.stdout.resume()
        self.stderr.resume()

    def pause(self) -> None:
        self.stdout.pause()
        self.stderr.pause()

    def finish(self) -> None:
        """Take what is there and close."""
        self.stdout.finish()
        self.stderr.finish()
        self.close()

    def close(self) -> None:
        for each in (self.stdout, self.stderr, self.stdin):
            if each is not None:
                each.close()
