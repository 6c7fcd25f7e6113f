"""The processes of a sandbox by id: started once whatever is repeated, kept for a while after their end."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sandcell.activity import SDK, Deed
from sandcell.environment import merge_env
from sandcell.job_bodies import CreateProcess, ProcessInfo, ProcessStatus
from sandcell.memory import check_memory, judge_end, limit_of, warnings_of
from sandcell_container.end import End, KillReport
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.masks import masks_of
from sandcell_container.guest.process import ProcessPlan, start_process
from sandcell_container.ids import check_id, new_id
from sandcell_container.journal import JournalLimits

if TYPE_CHECKING:
    from sandcell.config import Config
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.process import Process
    from sandcell_container.guest.spawn import Spawner

__all__ = ["Launch", "Prepare", "Processes"]

MAX_FORGOTTEN = 10_000  # ids of processes that ran and whose record is gone
MAX_KEPT_DISK = (
    256 * 2**20
)  # of the output of all that have ended: it takes the place of the sandbox's own /tmp
LEAST_MEMORY = 8 * 2**20  # a shell and its libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a process is started as, where its caller knows better than the request: `argv` in the folder `cwd` with the
    whole environment `env`, and `extra` as its descriptor 3, which is closed here when it was started."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    extra: int | None = None


Prepare = Callable[[], Awaitable[Launch]]


class _Known:
    """One process that was asked for. `starting` is over when it runs, has failed to, or its starter gave up."""

    def __init__(self, asked: CreateProcess, session_id: str | None) -> None:
        self.asked = asked
        self.session_id = session_id
        self.starting: asyncio.Future[Process] = asyncio.get_running_loop().create_future()

    @property
    def process(self) -> Process | None:
        """The process, where it was started."""
        starting = self.starting
        if not starting.done() or starting.cancelled() or starting.exception() is not None:
            return None
        return starting.result()


class Processes:
    """See the module. At most `config.max_records` of those that have ended are kept, the newest."""

    def __init__(
        self,
        spawner: Spawner,
        boot: GuestBoot,
        config: Config,
        *,
        on_begin: Callable[[Deed], None] = lambda _: None,
    ) -> None:
        self._spawner = spawner
        self._boot = boot
        self._config = config
        self._on_begin = on_begin
        self._limits = JournalLimits(memory=config.journal_memory, disk=config.journal_disk)
        self._masks = masks_of(boot.secrets)
        self._known: dict[str, _Known] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._forgotten: OrderedDict[str, End] = OrderedDict()
        self._last_end = 0.0

    async def start(
        self,
        body: CreateProcess,
        *,
        session_id: str | None = None,
        prepare: Prepare | None = None,
        who: str = SDK,
    ) -> Process:
        """Start a process, or return the one that this id was given to by the same request.

        `prepare` is asked what to start instead of the body's command, folder and environment, when it is to be
        started: for the session `session_id`. Cancelling ends what was not started yet.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME, CWD_NOT_FOUND.
            Unavailable (START_FAILED): the sandbox can start no more processes.
            Conflict (EXISTS): the id is that of another process.
            Gone (LOST): it ran, and its record is kept no more.
        """
        process_id = new_id("prc") if body.id is None else check_id(body.id, what="id of a process")
        if prepare is None:
            body = msgspec.structs.replace(body, cwd=self._boot.folder_of(body.cwd))
        known = await self._join(process_id, body, session_id)
        if known is None:
            known = await self._begin(process_id, body, session_id, prepare)
            self._on_begin(_deed_of(known, who))
        return known

    def get(self, process_id: str) -> Process:
        """Return a process. Raises NotFound where there is none of this id, or none any more."""
        known = self._known.get(process_id)
        process = known.process if known is not None else None
        if process is None:
            raise error(
                ErrorCode.NOT_FOUND,
                f"there is no process {process_id[:80]!r}",
                hint=f"the last {self._config.max_records} that ended are kept",
                details={"kind": "process", "id": process_id[:80]},
            )
        return process

    async def wait(self, process_id: str) -> End:
        """Return how a process ended, once nothing of it is left, also where its record was not to be kept.

        Raises NotFound as `get`. Cancelling leaves it running.
        """
        ended = self._forgotten.get(process_id)
        return ended if ended is not None else await self.get(process_id).wait()

    def list(self, *, session_id: str | None = None, status: ProcessStatus | None = None) -> list[Process]:
        """Return processes, the oldest first: all, those of a session, or those of a status."""
        found = [each.process for each in self._known.values()]
        return [
            each
            for each in found
            if each is not None
            and session_id in {None, each.plan.session_id}
            and status in {None, _status_of(each)}
        ]

    def describe(self, process: Process) -> ProcessInfo:
        plan = process.plan
        return ProcessInfo(
            id=plan.id,
            command=plan.command,
            cwd=plan.cwd,
            pid=process.pid,
            status=_status_of(process),
            started_at=process.started_at,
            session_id=plan.session_id,
            end=process.end,
            memory=plan.memory,
            warnings=warnings_of(plan.memory, self._boot.limits.get("memory"), of="tree"),
        )

    async def kill(self, process_id: str, grace_s: float | None, *, who: str) -> KillReport:
        """End a process, see `Process.kill`; one that has ended is no error. Raises NotFound as `get`."""
        if process_id in self._forgotten:
            return KillReport()
        return await self.get(process_id).kill(grace_s, who=who)

    async def remove(self, process_id: str, *, who: str) -> KillReport:
        """End a process where it runs, and forget it: its id is free again. Raises NotFound as `get`.

        What cannot die now is not forgotten.
        """
        if self._forgotten.pop(process_id, None) is not None:
            return KillReport()
        process = self.get(process_id)
        report = await process.kill(who=who)
        if not process.is_running:
            self._drop(process)
            self._forgotten.pop(process_id, None)
        return report

    async def kill_all(self, *, who: str, session_id: str | None = None) -> KillReport:
        """End all that run, those of a session where one is named; returns the sum."""
        running = self.list(session_id=session_id, status="running")
        reports = await asyncio.gather(*(each.kill(who=who) for each in running))
        return KillReport(
            killed=sum(each.killed for each in reports), survived=sum(each.survived for each in reports)
        )

    def clean(self) -> int:
        """Forget all that have ended, and their output; returns how many. Their ids are free again."""
        ended = self.list(status="ended")
        for process in ended:
            self._drop(process)
        return len(ended)

    def last_active(self) -> float:
        """Return when one of them last ran, in seconds since the epoch: now, where one does."""
        return time.time() if len(self._known) > len(self._ended) else self._last_end

    def close(self) -> None:
        """Give back every journal, and end who follows them. What runs ends with the sandbox."""
        for known in self._known.values():
            if known.process is not None:
                known.process.close()
        self._known.clear()

    # starts

    async def _join(self, process_id: str, body: CreateProcess, session_id: str | None) -> Process | None:
        """Return a process that is there, when it has started; None where there is none, or its starter gave up."""
        while (known := self._known.get(process_id)) is not None:
            if (known.asked, known.session_id) != (body, session_id):
                raise error(
                    ErrorCode.EXISTS,
                    f"the process {process_id} exists, and is another",
                    hint="give each process an id of its own, or none; remove() frees an id",
                )
            await asyncio.wait({known.starting})
            if not known.starting.cancelled():
                return known.starting.result()
        return None

    async def _begin(
        self, process_id: str, body: CreateProcess, session_id: str | None, prepare: Prepare | None
    ) -> Process:
        if process_id in self._forgotten:
            raise error(
                ErrorCode.LOST,
                f"the process {process_id} has run, its record is kept no more",
                hint="give the new one another id; DELETE frees this one",
            )
        known = self._known[process_id] = _Known(body, session_id)
        try:
            process = await self._start(process_id, body, session_id, prepare)
        except BaseException as problem:
            # Nothing was started, so nothing is remembered: the same id may be tried again.
            del self._known[process_id]
            if isinstance(problem, Exception):
                known.starting.set_exception(problem)
                known.starting.exception()  # it is raised here; nobody else need ask
            else:
                known.starting.cancel()
            raise
        known.starting.set_result(process)
        return process

    async def _start(
        self, process_id: str, body: CreateProcess, session_id: str | None, prepare: Prepare | None
    ) -> Process:
        _check_times(body.timeout)
        memory = check_memory(body.memory, least=LEAST_MEMORY, who="a program")
        launch = await prepare() if prepare is not None else self._launch_of(body)
        plan = ProcessPlan(
            id=process_id,
            command=body.command,
            argv=launch.argv or None,
            cwd=launch.cwd,
            env=launch.env,
            extra=launch.extra,
            session_id=session_id,
            epoch=self._boot.epoch,
            limits=self._limits,
            kill_grace=self._config.kill_grace,
            timeout=body.timeout,
            stdin=body.stdin,
            memory=memory,
            on_full=body.on_full,
            masks=self._masks,
            judge=partial(judge_end, limit=limit_of(memory, self._boot.limits.get("memory"))),
        )
        try:
            return await start_process(self._spawner, plan, on_end=self._keep)
        finally:
            if launch.extra is not None:
                os.close(launch.extra)

    def _launch_of(self, body: CreateProcess) -> Launch:
        boot = self._boot
        return Launch(
            argv=(),
            cwd=boot.folder_of(body.cwd),
            env=merge_env(boot.base_env, body.env),
        )

    # records

    def _keep(self, process: Process) -> None:
        """Keep the record of one that has ended, and drop the oldest over the bound."""
        known = self._known.get(process.id)
        if known is None:
            return  # the guest ends, and this room has been closed
        self._last_end = time.time()
        self._ended[process.id] = None
        if not known.asked.keep_record:
            self._forget(process)
        elif len(self._ended) > self._config.max_records:
            self._forget(self.get(next(iter(self._ended))))
        self._spare_disk()

    def _spare_disk(self) -> None:
        """Give back the longest ago ended output over the bound; its readers are told."""
        journals = [self.get(each).journal for each in self._ended]
        over = sum(journal.disk for journal in journals) - MAX_KEPT_DISK
        for journal in journals:
            if over <= 0:
                return
            over -= journal.disk
            journal.give_back_disk()

    def _forget(self, process: Process) -> None:
        """Drop it, but not that it ran and how it ended: its request may be repeated, and somebody may wait for it."""
        self._drop(process)
        assert process.end is not None
        self._forgotten[process.id] = process.end
        if len(self._forgotten) > MAX_FORGOTTEN:
            self._forgotten.popitem(last=False)

    def _drop(self, process: Process) -> None:
        process.drop()
        self._known.pop(process.id, None)
        self._ended.pop(process.id, None)


def _deed_of(process: Process, who: str) -> Deed:
    plan = process.plan
    return Deed(
        kind="process",
        id=plan.id,
        who=who,
        where=plan.session_id or "",
        language="bash",
        code=plan.command if isinstance(plan.command, str) else shlex.join(plan.command),
        at=process.started_at,
        journal=process.journal,
    )


def _status_of(process: Process) -> ProcessStatus:
    return "running" if process.is_running else "ended"


def _check_times(timeout: float | None) -> None:
    if timeout is not None and not timeout > 0:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"timeout={timeout} has to be above 0",
            hint="null is no limit",
            details={"field": "timeout"},
        )
