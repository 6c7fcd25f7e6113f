"""One stateless command: bytes in, bytes out, one end. Nothing but files survives it.

Driven by the loop's callbacks alone, no task and no thread: a command costs little more than its process.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from sandcell_container.end import CommandEnd, End, Truncation, end_of_status
from sandcell_container.errors import SandcellError
from sandcell_container.guest.spawn import Start
from sandcell_container.guest.spill import Spill
from sandcell_container.headtail import HeadTail
from sandcell_container.journal import Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandcell_container.guest.spawn import Job, JobExit, Spawner
    from sandcell_container.guest.spill import SpillStore

__all__ = ["Exec", "start_exec"]

_CHUNK = 2**18
_STREAM_LIMITS = JournalLimits(memory=2**20, disk=64 * 2**20)
_BOOKKEEPING = 2**16

_OwnCause = Literal["timeout", "killed"]


async def start_exec(
    spawner: Spawner,
    command: str | Sequence[str],
    *,
    exec_id: str,
    epoch: str,
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes | None,
    timeout: float | None,
    max_output: int,
    stream: bool,
    kill_grace: float,
    spill_dir: str | None,
    spill_store: SpillStore | None = None,
) -> Exec:
    """Start a command and return it; what it does goes into its journal.

    A text runs under `bash -c`, or `sh -c` where there is no bash; a list is the program and its arguments.
    `env` is its whole environment. `stdin` is what it may read, None nothing. `timeout` in seconds from its start,
    then SIGTERM and after `kill_grace` seconds SIGKILL to its tree.
    With `stream` the journal gets output as it comes. Without, it gets each stream at the end: at most `max_output`
    bytes of it, head, GAP and tail; the whole of what was cut is then in a file below `spill_dir`, which
    `spill_store` makes with the user's rights (neither: it is dropped).
    Cancelling ends what was started.

    Raises as `Spawner.start`.
    """
    output = [
        _Output("stdout", Kind.STDOUT, None if stream else HeadTail(max_output)),
        _Output("stderr", Kind.STDERR, None if stream else HeadTail(max_output)),
    ]
    limits = _STREAM_LIMITS if stream else JournalLimits(memory=2 * max_output + _BOOKKEEPING)
    feed = None if stdin is None else _Stdin(stdin)
    try:
        job = await _start(spawner, command, cwd, env, feed, output)
    except BaseException:
        for each in output:
            each.close()
        if feed is not None:
            feed.close()
        raise
    job.owner = exec_id
    run = Exec(exec_id, Journal(epoch, limits), job, output, kill_grace)
    if spill_dir is not None and spill_store is not None:
        for each in output:
            each.spill = Spill(spill_store, f"{spill_dir}/{exec_id}.{each.name}")
    run.begin(timeout, feed)
    return run


async def _start(
    spawner: Spawner,
    command: str | Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    feed: _Stdin | None,
    output: list[_Output],
) -> Job:
    def start(*argv: str) -> Start:
        ends = [each.write_end for each in output]
        stdin = None if feed is None else feed.read_end
        return Start(argv=argv, env=env, cwd=cwd, stdin=stdin, stdout=ends[0], stderr=ends[1])

    try:
        if not isinstance(command, str):
            return await spawner.start(start(*command))
        try:
            return await spawner.start(start("bash", "-c", command))
        except SandcellError as problem:
            if problem.details.get("errno") != "ENOENT" or problem.details.get("step") != "exec":
                raise
            return await spawner.start(start("sh", "-c", command))
    finally:
        for each in output:
            os.close(each.write_end)
        if feed is not None:
            os.close(feed.read_end)


class Exec:
    """A command that was started. Its journal ends with ENDED, a CommandEnd as JSON."""

    def __init__(
        self, exec_id: str, journal: Journal, job: Job, output: list[_Output], kill_grace: float
    ) -> None:
        self.id = exec_id
        self.journal = journal
        self._job = job
        self._output = output
        self._kill_grace = kill_grace
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._stdin: _Stdin | None = None
        self._cause: _OwnCause | None = None
        self._exit: JobExit | None = None
        self._leftovers = 0
        self._killing = False
        self._draining = False
        self._end: asyncio.Future[CommandEnd] = self._loop.create_future()

    async def wait(self) -> CommandEnd:
        """Return how it ended. Cancelling leaves it running."""
        return await asyncio.shield(self._end)

    async def cancel(self) -> None:
        """End the command and its tree, with cause "killed", and return when it has ended. Twice is fine."""
        self._end_by("killed")
        await self.wait()

    def begin(self, timeout: float | None, feed: _Stdin | None) -> None:
        """Take what comes from now on: output, the exit, the timeout."""
        for each in self._output:
            self._loop.add_reader(each.fd, self._on_output, each)
        if timeout is not None:
            self._timer = self._loop.call_later(timeout, self._end_by, "timeout")
        if feed is not None:
            self._stdin = feed
            feed.begin(self._loop)
        self._job.when_exited(self._on_exit)

    # output

    def _on_output(self, output: _Output) -> None:
        data = output.read(_CHUNK)
        if data:
            self._take(output, data)
        elif data is not None:
            self._loop.remove_reader(output.fd)

    def _take(self, output: _Output, data: bytes) -> None:
        if output.kept is None:
            self.journal.append(output.kind, data)
        elif (
            output.spill is not None
            and not output.is_spilled
            and len(data) + output.kept.total > output.kept.bound
        ):
            self._loop.remove_reader(output.fd)  # the command waits until the file is there
            output.waiting = data
            output.spill.open_soon(lambda: self._on_spill_open(output))
        else:
            output.keep(data)

    def _on_spill_open(self, output: _Output) -> None:
        output.begin_spill()
        if self._draining:
            self._drain(output)
        else:
            self._loop.add_reader(output.fd, self._on_output, output)

    # the end

    def _end_by(self, cause: _OwnCause) -> None:
        if self._cause is None and self._exit is None and not self._end.done():
            self._cause = cause
            self._kill(self._kill_grace)

    def _kill(self, grace_s: float) -> None:
        self._killing = True
        self._job.start_kill(grace_s, self._on_killed)

    def _on_exit(self, ended: JobExit | None) -> None:
        self._exit = ended
        if self._timer is not None:
            self._timer.cancel()
        if ended is None or (self._job.is_settled and not self._killing):
            self._drain_all()
        elif not self._killing:
            self._kill(0.0)

    def _on_killed(self, count: int | None) -> None:
        """The answer to a kill: the tree is gone, or holds a process that cannot die."""
        if count is not None:
            self._leftovers = count - (self._cause is not None)  # the command itself is no leftover
        self._drain_all()

    def _drain_all(self) -> None:
        """Nobody of the tree is left to write: read what is in the pipes, then end."""
        if self._draining:
            return
        self._draining = True
        for each in self._output:
            if each.waiting is None:
                self._drain(each)

    def _drain(self, output: _Output) -> None:
        self._loop.remove_reader(output.fd)
        left = output.capacity()  # one who got the pipe from the tree may write for ever
        while left > 0 and output.waiting is None and (data := output.read(left)):
            left -= len(data)
            self._take(output, data)
        if output.waiting is None:
            output.close()
        if all(each.is_closed for each in self._output):
            self._finish()

    def _finish(self) -> None:
        if self._stdin is not None:
            self._stdin.close()
        cuts = {each.name: self._append_kept(each) for each in self._output}
        end = self._how_it_ended()
        ended = CommandEnd(
            end=end,
            exit_code=end.code,
            signal=end.signal,
            duration=time.monotonic() - self._began,
            leftovers=self._leftovers,
            truncated={name: cut for name, cut in cuts.items() if cut is not None},
            usage=usage_of(self._exit),
        )
        self.journal.append(Kind.ENDED, msgspec.json.encode(ended))
        self.journal.end()
        self._end.set_result(ended)

    def _append_kept(self, output: _Output) -> Truncation | None:
        if output.kept is None:
            return None
        cut = output.kept.finish()
        if cut.head:
            self.journal.append(output.kind, cut.head)
        if not cut.is_cut:
            return None
        gap = {"stream": output.name, "bytes": cut.gap_bytes, "lines": cut.gap_lines, "entries": 0}
        self.journal.append(Kind.GAP, json.dumps(gap).encode())
        if cut.tail:
            self.journal.append(output.kind, cut.tail)
        path = output.spill.finish() if output.spill is not None else None
        return Truncation(bytes=cut.gap_bytes, lines=cut.gap_lines, total_bytes=cut.total_bytes, path=path)

    def _how_it_ended(self) -> End:
        if self._exit is None:
            # the spawner is gone, or the process could not be ended
            return End(cause=self._cause or "lost", at=time.time())
        return end_of_status(
            self._exit.status, at=self._exit.at, peak_memory=self._exit.peak_memory, cause=self._cause
        )


def usage_of(ended: JobExit | None) -> dict[str, float]:
    """Return the CPU seconds of a process that was reaped."""
    return {} if ended is None else {"cpu_user": ended.cpu_user, "cpu_system": ended.cpu_system}


class _Output:
    """One stream: the read end of its pipe, and what is kept of it."""

    def __init__(self, name: str, kind: Kind, kept: HeadTail | None) -> None:
        self.name = name
        self.kind = kind
        self.kept = kept
        self.spill: Spill | None = None
        self.is_spilled = False
        self.waiting: bytes | None = None  # what was read, while the file that it goes to is made
        self.is_closed = False
        self.fd, self.write_end = os.pipe()
        os.set_blocking(self.fd, False)

    def read(self, size: int) -> bytes | None:
        """Return what is there, empty at the end of file, None where there is nothing yet."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return None

    def capacity(self) -> int:
        return fcntl.fcntl(self.fd, fcntl.F_GETPIPE_SZ)

    def keep(self, data: bytes) -> None:
        if self.kept is not None:
            self.kept.feed(data)
        if self.is_spilled and self.spill is not None:
            self.spill.write(data)

    def begin_spill(self) -> None:
        """The file is there: all that came so far goes into it, as nothing of that was cut yet."""
        data, self.waiting = self.waiting, None
        assert self.kept is not None and self.spill is not None and data is not None
        self.is_spilled = True
        self.spill.write(self.kept.held())
        self.keep(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self.fd)


class _Stdin:
    """The bytes that a command may read, written as it reads them."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.read_end, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._write()  # most fit into the pipe: then there is nothing left to wait for

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._fd >= 0:
            self._loop = loop
            loop.add_writer(self._fd, self._write)

    def close(self) -> None:
        """Write no more: the command sees the end of file."""
        if self._fd < 0:
            return
        if self._loop is not None:
            self._loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._rest = memoryview(b"")  # it reads no more
        self.close()
