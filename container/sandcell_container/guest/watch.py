"""Watches: what changes in a folder, told by a worker of its own into a journal that anybody may follow from any place."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.file_errors import error_of_answer
from sandcell_container.guest.user_worker import believe
from sandcell_container.ids import check_id
from sandcell_container.journal import Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell_container.guest.files import Files

__all__ = ["Watch", "WatchPlan", "Watches"]

_OPENED_S = 60.0  # to find and to watch all folders of a large tree
_AT_MOST = 32


class WatchPlan(NamedTuple):
    """What is watched: a folder, with `recursive` also those below; or a file. `include` and `exclude` are patterns, `debounce`
    the seconds in which changes are told together."""

    path: str
    recursive: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    debounce: float = 0.05


class Watch:
    """One watch. Its journal holds STARTED when all is watched, CHANGED for each change, and at last ENDED or ERROR."""

    def __init__(self, watch_id: str, plan: WatchPlan, journal: Journal) -> None:
        self.id = watch_id
        self.plan = plan
        self.journal = journal
        self.viewers = 0
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.closing: asyncio.TimerHandle | None = None


class Watches:
    """The watches of a sandbox by id. An async context manager: leaving it ends them.

    One that nobody follows for `linger` seconds ends.
    """

    def __init__(self, files: Files, epoch: str, *, memory: int, linger: float) -> None:
        self._files = files
        self._epoch = epoch
        self._memory = memory
        self._linger = linger
        self._known: dict[str, Watch] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in list(self._known.values()):
            self._end(each)
        await self._group.__aexit__(None, None, None)

    async def open(self, watch_id: str, plan: WatchPlan, *, resumes: bool) -> Watch:
        """Return the watch of this id, started where there is none, when all is watched.

        `resumes`: somebody goes on from a cursor; what has ended meanwhile cannot be gone on with.

        Raises:
            Gone (LOST): it has ended, and `resumes`.
            Conflict (EXISTS): the id is that of a watch of something else.
            Limited (QUOTA_EXCEEDED): there are 32, or the system lets no more be watched.
            InvalidRequest (INVALID_NAME), and more: as `Files`.
        """
        given = check_id(watch_id, what="id of a watch")
        found = self._known.get(given)
        if found is None:
            if resumes:
                raise _lost(given)
            found = self._start(given, plan)
        if found.plan != plan and not resumes:  # a session's folder may be another one by now
            raise error(
                ErrorCode.EXISTS, f"the watch {given} is of something else", hint="give each an id of its own"
            )
        with self.view(found):
            await asyncio.shield(found.started)
        return found

    @contextmanager
    def view(self, watch: Watch) -> Generator[None]:
        """Somebody follows it inside the block."""
        watch.viewers += 1
        if watch.closing is not None:
            watch.closing.cancel()
            watch.closing = None
        try:
            yield
        finally:
            watch.viewers -= 1
            if not watch.viewers:
                self._end_later(watch)

    def _start(self, watch_id: str, plan: WatchPlan) -> Watch:
        if sum(not each.journal.ended for each in self._known.values()) >= _AT_MOST:
            raise error(ErrorCode.QUOTA_EXCEEDED, f"there are {_AT_MOST} watches", hint="end some of them")
        self._files.absolute(plan.path)
        watch = Watch(watch_id, plan, Journal(self._epoch, JournalLimits(memory=self._memory)))
        self._known[watch_id] = watch
        watch.started.add_done_callback(_look_at)
        watch.task = self._group.create_task(self._run(watch))
        return watch

    def _end(self, watch: Watch) -> None:
        """End it without a word: nobody is there to hear one, or the sandbox ends."""
        if watch.closing is not None:
            watch.closing.cancel()
        self._known.pop(watch.id, None)
        if watch.task is not None:
            watch.task.cancel()

    async def _run(self, watch: Watch) -> None:
        """Fill the journal until the end of the watch; what goes wrong is told there, and to who waits for its start."""
        try:
            why = await self._fill(watch)
            watch.journal.append(Kind.ENDED, json.dumps({"why": why}).encode())
        except SandcellError as problem:
            if watch.started.done():
                watch.journal.append(Kind.ERROR, json.dumps(problem.to_dict()).encode())
            else:
                watch.started.set_exception(problem)
        finally:
            if not watch.started.done():
                watch.started.cancel()
            watch.journal.end()
            self._retire(watch)

    def _retire(self, watch: Watch) -> None:
        """Forget one that has ended: at once where it never began, else when those who follow it have seen that."""
        if watch.started.cancelled() or watch.started.exception() is not None:
            self._known.pop(watch.id, None)
        elif not watch.viewers:
            self._end_later(watch)

    def _end_later(self, watch: Watch) -> None:
        if watch.id in self._known and watch.closing is None:
            loop = asyncio.get_running_loop()
            watch.closing = loop.call_later(self._linger, self._end, watch)

    async def _fill(self, watch: Watch) -> str:
        plan, path = watch.plan, watch.plan.path
        fields = {**plan._asdict(), "path": self._files.absolute(path)}
        async with self._files.worker.errand("watch", repr(path[:200]), **fields) as errand:
            answer = await errand.next(_OPENED_S)
            while not answer.is_last:
                self._tell(watch, answer.parts)
                answer = await errand.next(None)  # it may be quiet for ever, and ends with its errand
        if answer.number or answer.refused:
            raise error_of_answer(answer, path)
        return believe(answer.data, _End).why

    def _tell(self, watch: Watch, entries: list[object]) -> None:
        if not watch.started.done():
            watch.journal.append(Kind.STARTED, json.dumps({"id": watch.id}).encode())
            watch.started.set_result(None)
        for each in entries:
            told = believe(each, _Told)
            watch.journal.append(Kind.CHANGED, json.dumps(msgspec.to_builtins(told)).encode())


class _Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change, as the worker tells it."""

    type: Literal["created", "modified", "deleted", "moved", "lost"]
    path: str = ""
    relative_path: str = ""
    old_path: str | None = None
    directory: bool = False
    why: str = ""


class _End(msgspec.Struct, frozen=True):
    why: str


def _lost(watch_id: str) -> SandcellError:
    return error(
        ErrorCode.LOST,
        f"the watch {watch_id} has ended: what changed since then is not known",
        hint="watch again, and look at what is there",
    )


def _look_at(started: asyncio.Future[None]) -> None:
    """Nobody may be left to ask; asyncio would call that an exception never retrieved."""
    if not started.cancelled():
        started.exception()
