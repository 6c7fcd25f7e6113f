"""One stateless command: bytes in, bytes out, one end. Nothing but files survives it.

Driven by the loop's callbacks alone, no task and no thread: a command costs little more than its process.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from sandcell_container.end import CommandEnd, End
from sandcell_container.guest.command_line import start_command
from sandcell_container.guest.kept_output import KeptOutput
from sandcell_container.guest.masks import StreamMask
from sandcell_container.guest.process_pipes import OutputPipe
from sandcell_container.guest.spill import Spill
from sandcell_container.guest.start import Start
from sandcell_container.journal import Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandcell_container.end import Truncation
    from sandcell_container.guest.job import Job, JobExit
    from sandcell_container.guest.masks import Masks
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.spill import SpillStore

__all__ = ["Exec", "Input", "start_exec"]

_STREAM_LIMITS = JournalLimits(memory=2**22, head=2**20)
_BEHIND = 2**20  # bytes that a follower of a stream may be behind before the command has to wait for it
_BOOKKEEPING = 2**16

_OwnCause = Literal["timeout", "killed"]


class Input(Protocol):
    """What stands as the standard input of a command."""

    @property
    def read_end(self) -> int:
        """The descriptor that the command gets."""
        ...

    def close_read_end(self) -> None:
        """The command has it now, or there is none. Twice is fine."""
        ...

    def close(self) -> None:
        """The command has ended. Twice is fine."""
        ...


async def start_exec(
    spawner: Spawner,
    command: str | Sequence[str],
    *,
    exec_id: str,
    epoch: str,
    cwd: str,
    env: Mapping[str, str],
    stdin: Input | None,
    timeout: float | None,
    max_output: int | None,
    stream: bool,
    kill_grace: float,
    spill_dir: str | None,
    spill_store: SpillStore | None = None,
    masks: Masks | None = None,
) -> Exec:
    """Start a command and return it; what it does goes into its journal.

    A text runs under `bash -c`, or `sh -c` where there is no bash; a list is the program and its arguments.
    `env` is its whole environment. `stdin` is what it may read, closed here at its end; None is nothing. `timeout`
    in seconds from its start, then SIGTERM and after `kill_grace` seconds SIGKILL to its tree.

    Without `stream` the journal gets each stream at the end: at most `max_output` bytes of it, head, GAP and tail.
    With `stream` it gets all as it comes, and the command waits while a follower of the journal is 1 MiB behind.
    Either way an output of more than `max_output` bytes is, whole, in a file too, up to 64 MiB:
    `spill_dir/exec_id.stdout` or `.stderr`, made by `spill_store` with the user's rights and named in `truncated`
    of ENDED. Where one of the three is None there is no file. `masks` takes secrets out of all that.

    Cancelling ends what was started. Raises as `Spawner.start`.
    """
    outputs = (_Output("stdout", Kind.STDOUT), _Output("stderr", Kind.STDERR))
    if max_output is not None:
        for each in outputs:
            spill = _spill_of(spill_store, spill_dir, f"{exec_id}.{each.name}")
            each.kept = KeptOutput(each.name, each.kind, max_output, spill=spill)
    if masks is not None:
        for each in outputs:
            each.mask = StreamMask(masks)
    limits = _STREAM_LIMITS if stream else JournalLimits(memory=2 * (max_output or 0) + _BOOKKEEPING)
    run = Exec(exec_id, Journal(epoch, limits), outputs, stdin=stdin, stream=stream, kill_grace=kill_grace)
    try:
        job = await start_command(spawner, command, run.make_start(cwd, env))
    except BaseException:
        run.give_back()
        raise
    job.owner = exec_id
    run.begin(job, timeout)
    return run


def _spill_of(store: SpillStore | None, folder: str | None, name: str) -> Spill | None:
    return None if store is None or folder is None else Spill(store, f"{folder}/{name}")


class Exec:
    """A command. Its journal ends with ENDED, a CommandEnd as JSON."""

    def __init__(
        self,
        exec_id: str,
        journal: Journal,
        outputs: tuple[_Output, _Output],
        *,
        stdin: Input | None,
        stream: bool,
        kill_grace: float,
    ) -> None:
        self.id = exec_id
        self.journal = journal
        self.cuts: dict[str, Truncation] = {}
        """What was cut of each stream, and where the whole is; known at its end."""
        self._outputs = outputs
        self._pipes = tuple(OutputPipe(partial(self._take, each)) for each in outputs)
        self._stdin = stdin
        self._stream = stream
        self._kill_grace = kill_grace
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._job: Job | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cause: _OwnCause | None = None
        self._exit: JobExit | None = None
        self._leftovers = 0
        self._killing = False
        self._draining = False
        self._drained = False
        self._end: asyncio.Future[CommandEnd] = self._loop.create_future()

    async def wait(self) -> CommandEnd:
        """Return how it ended. Cancelling leaves it running."""
        return await asyncio.shield(self._end)

    async def cancel(self) -> None:
        """End the command and its tree, with cause "killed", and return when it has ended. Twice is fine."""
        self._end_by("killed")
        await self.wait()

    # for start_exec

    def make_start(self, cwd: str, env: Mapping[str, str]) -> Start:
        stdout, stderr = (each.write_end for each in self._pipes)
        stdin = None if self._stdin is None else self._stdin.read_end
        return Start(argv=(), env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)

    def begin(self, job: Job, timeout: float | None) -> None:
        """Take what comes from now on: output, the exit, the timeout.

        The write ends stay open here: it is the exit that ends a command, and an end of file would only wake the loop.
        """
        self._job, self._began = job, time.monotonic()
        if self._stdin is not None:
            self._stdin.close_read_end()
        if timeout is not None:
            self._timer = self._loop.call_later(timeout, self._end_by, "timeout")
        if self._stream:
            self.journal.when_read(self._look_after)
        self._look_after()
        job.when_exited(self._on_exit)

    def give_back(self) -> None:
        for each in self._pipes:
            each.close()
        if self._stdin is not None:
            self._stdin.close()

    # output

    def _take(self, output: _Output, data: bytes) -> None:
        shown = data if output.mask is None else output.mask.feed(data)
        if shown:
            self._keep(output, shown)

    def _keep(self, output: _Output, data: bytes) -> None:
        if self._stream:
            self.journal.append(output.kind, data)
        if output.kept is not None:
            output.kept.take(data, self._look_after)
        if not self._draining:
            self._look_after()

    def _look_after(self) -> None:
        """Read outputs as they come, or let the command wait: a file is being made, or a follower is behind."""
        if self._draining:
            self._finish_when_kept()
            return
        is_behind = self._stream and self.journal.backlog > _BEHIND
        for output, pipe in zip(self._outputs, self._pipes, strict=True):
            if is_behind or output.is_waiting:
                pipe.pause()
            else:
                pipe.resume()

    # the end

    def _end_by(self, cause: _OwnCause) -> None:
        if self._cause is None and self._exit is None and not self._end.done():
            self._cause = cause
            self._kill(self._kill_grace)

    def _kill(self, grace_s: float) -> None:
        assert self._job is not None
        self._killing = True
        self._job.start_kill(grace_s, self._on_killed)

    def _on_exit(self, ended: JobExit | None) -> None:
        self._exit = ended
        if self._timer is not None:
            self._timer.cancel()
        is_settled = self._job is not None and self._job.is_settled
        if ended is None or (is_settled and not self._killing):
            self._drain()
        elif not self._killing:
            self._kill(0.0)

    def _on_killed(self, count: int | None) -> None:
        """The answer to a kill: the tree is gone, or holds a process that cannot die."""
        if count == 0:
            self._cause = None  # it had ended by itself before
        elif count is not None:
            self._leftovers = count - (self._cause is not None)  # the command itself is no leftover
        self._drain()

    def _drain(self) -> None:
        """Nobody of the tree is left to write: read what is in the pipes, then end."""
        if self._draining:
            return
        self._draining = True
        for each in self._pipes:
            each.finish()
        for output in self._outputs:
            if output.mask is not None and (rest := output.mask.finish()):
                self._keep(output, rest)
        self._drained = True
        self._finish_when_kept()

    def _finish_when_kept(self) -> None:
        if not self._drained or any(each.is_waiting for each in self._outputs) or self._end.done():
            return
        self.give_back()
        for each in self._outputs:
            self._append_kept(each)
        end = self._how_it_ended()
        ended = CommandEnd(
            end=end,
            exit_code=end.code,
            signal=end.signal,
            duration=time.monotonic() - self._began,
            leftovers=self._leftovers,
            truncated=self.cuts,
            usage=usage_of(self._exit),
        )
        self.journal.append(Kind.ENDED, msgspec.json.encode(ended))
        self.journal.end()
        self._end.set_result(ended)

    def _append_kept(self, output: _Output) -> None:
        if output.kept is None:
            return
        said = output.kept.finish() if self._stream else output.kept.finish_into(self.journal)
        if said is not None:
            self.cuts[output.name] = said

    def _how_it_ended(self) -> End:
        if self._exit is None:
            # the spawner is gone, or the process could not be ended
            return End(cause=self._cause or "lost", at=time.time())
        return self._exit.end(self._cause)


def usage_of(ended: JobExit | None) -> dict[str, float]:
    """Return the CPU seconds of a process that was reaped."""
    return {} if ended is None else {"cpu_user": ended.cpu_user, "cpu_system": ended.cpu_system}


class _Output:
    """One stream, and what is kept of it."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.kind = kind
        self.kept: KeptOutput | None = None
        self.mask: StreamMask | None = None

    @property
    def is_waiting(self) -> bool:
        return self.kept is not None and self.kept.is_waiting
