"""One process that the spawner has started, and how it ended. Knows of the spawner what it says and asks, and not how."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from sandcell_container.end import end_of_status
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.end import Cause, End
    from sandcell_container.errors import SandcellError
    from sandcell_container.guest.spawn import Spawner

__all__ = ["ForkedProcess", "Job", "JobExit", "OwnedProcess", "Scope", "fail"]

_BY_SIGNAL = 128  # and its number: the exit code of a shell whose last command a signal has ended
_LIMITS: dict[int, str] = {signal.SIGXFSZ: "disk", signal.SIGXCPU: "cpu"}
_HARD_S = 2.0  # what the spawner lets a tree die in after SIGKILL, before it answers anyway

Scope = Literal["process", "group", "tree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExit:
    """How the started process ended: its raw wait status; peak memory in bytes, None where that was no more than what the
    spawner has had itself, which Linux counts as that of a program it starts; CPU in seconds; `at` in seconds since the epoch. `is_starved`: the
    system has killed it, or what it waited for, for want of memory."""

    status: int
    peak_memory: int | None
    cpu_user: float
    cpu_system: float
    at: float
    is_starved: bool = False

    def end(self, cause: Cause | None = None) -> End:
        """Return its end. `cause` is that of who ended it on purpose; else a limit is one that it hit, or what it waited
        for: the want of memory, or the size of a file or the CPU time that there may be."""
        end = end_of_status(self.status, at=self.at, peak_memory=self.peak_memory, cause=cause)
        if cause is not None:
            return end
        if self.is_starved:
            return replace(end, cause="oom", limit="memory")
        limit = _LIMITS.get(end.signal or (end.code or 0) - _BY_SIGNAL)
        return end if limit is None else replace(end, cause="limit", limit=limit)


class ForkedProcess(NamedTuple):
    """One process of a tree. `is_forked`: it has run no program since it was forked, as a subshell, or as a child that is
    about to."""

    pid: int
    parent: int
    is_forked: bool


class OwnedProcess(NamedTuple):
    """One process of the sandbox, and the id of what it belongs to."""

    pid: int
    owner: str


class Job:
    """One started process and the tree of all that descends from it.

    `owner` is the id of the context, command, session, process or terminal that it was started for: whoever starts it
    says so. Without one it is machinery of ours, which nobody is shown.
    """

    def __init__(self, spawner: Spawner, job_id: str) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.owner = ""
        self._spawner = spawner
        self._id = job_id
        self._exited: asyncio.Future[JobExit] = loop.create_future()
        self._settled: asyncio.Future[None] = loop.create_future()
        self._on_exit: list[Callable[[JobExit | None], None]] = []

    @property
    def is_settled(self) -> bool:
        """Whether nothing of the tree is left, or the spawner was lost."""
        return self._settled.done()

    def when_exited(self, callback: Callable[[JobExit | None], None]) -> None:
        """Call `callback` once the process was reaped, with None when the spawner was lost before.

        From the loop, and from where the news comes in: a turn of the loop costs a short command a hundredth.
        """
        if self._exited.done():
            done = self._exited
            asyncio.get_running_loop().call_soon(
                lambda: callback(None if done.exception() else done.result())
            )
        else:
            self._on_exit.append(callback)

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` from the loop once nothing of the tree is left, or the spawner was lost."""
        self._settled.add_done_callback(lambda _: callback())

    async def wait(self) -> JobExit:
        """Return how the started process ended, once it was reaped. Cancelling leaves it running.

        Raises:
            Gone (SANDBOX_GONE): the spawner was lost before.
        """
        return await asyncio.shield(self._exited)

    async def settled(self) -> None:
        """Return when nothing of the tree is left. Raises as `wait` does."""
        await asyncio.shield(self._settled)

    def signal(self, number: int, scope: Scope = "group") -> None:
        """Send a signal to the started process, its process group or its tree. What has ended is left alone.

        Raises:
            InvalidRequest (UNKNOWN_SIGNAL): there is no signal of that number.
        """
        if not 1 <= number <= 64:
            raise error(ErrorCode.UNKNOWN_SIGNAL, f"there is no signal {number}", hint="1 to 64")
        self._spawner.tell("signal", self._id, str(number), scope)

    def start_kill(self, grace_s: float, callback: Callable[[int | None], None]) -> None:
        """Begin what `kill_tree` does; call `callback` from the loop with what it returns, None for its error."""
        answer = self._ask_kill(grace_s)
        answer.add_done_callback(lambda done: callback(None if done.exception() else done.result()[0]))

    async def kill_tree(self, grace_s: float = 0.0) -> int:
        """End the tree: SIGTERM, `grace_s` seconds, SIGKILL; without a grace SIGKILL at once.

        Returns how many processes were signalled, when none is left, or 2 s after SIGKILL when one cannot die.
        Cancelling does not take it back.

        Raises:
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        return (await asyncio.shield(self._ask_kill(grace_s)))[0]

    async def pids(self) -> list[int]:
        """Return the processes of the tree. Raises as `wait` does."""
        return await asyncio.shield(self._spawner.ask("pids", self._id))

    async def forks(self) -> list[ForkedProcess]:
        """Return the processes of the tree and how each came to be. Raises as `wait` does."""
        said = await asyncio.shield(self._spawner.ask("forks", self._id))
        rows = (said[at : at + 3] for at in range(0, len(said) - 2, 3))
        return [ForkedProcess(pid, parent, bool(forked)) for pid, parent, forked in rows]

    def _ask_kill(self, grace_s: float) -> asyncio.Future[list[int]]:
        grace_ms = str(max(0, round(grace_s * 1000)))
        return self._spawner.ask("kill", self._id, grace_ms, patience_s=grace_s + _HARD_S)

    # for the Spawner

    def note_exit(self, ended: JobExit, *, settled: bool) -> None:
        if settled:
            self.note_settled()
        if not self._exited.done():
            self._exited.set_result(ended)
            self._tell_exit(ended)

    def note_settled(self) -> None:
        if not self._settled.done():
            self._settled.set_result(None)

    def note_lost(self, problem: SandcellError) -> None:
        fail(self._settled, problem)
        if not self._exited.done():
            fail(self._exited, problem)
            self._tell_exit(None)

    def _tell_exit(self, ended: JobExit | None) -> None:
        callbacks, self._on_exit = self._on_exit, []
        for each in callbacks:
            each(ended)


def fail(
    future: asyncio.Future[list[int]] | asyncio.Future[JobExit] | asyncio.Future[None], problem: SandcellError
) -> None:
    """Fail a future that may have no reader: retrieving its exception keeps asyncio from reporting that."""
    if not future.done():
        future.set_exception(problem)
        future.exception()
