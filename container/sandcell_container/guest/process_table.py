"""The processes of a sandbox, each with what it belongs to.

Which there are and whose, the spawner knows; what each is, the worker reads, and its command line is what user code
made it: nothing is concluded from that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.user_worker import believe
from sandcell_container.guest.worker.processes import describe_process

if TYPE_CHECKING:
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.user_worker import UserWorker

__all__ = ["LiveProcess", "ProcessTable"]

_PIDS_AT_ONCE = 2000  # of one request to the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProcess:
    """One process. `cpu` in seconds that it has used, `memory` in bytes, `started` in seconds since the epoch,
    `command` at most 4 KiB; `owner` is the id of what it belongs to."""

    pid: int
    user: str
    cpu: float
    memory: int
    started: float
    command: str
    owner: str


class _Row(msgspec.Struct, frozen=True):
    pid: int
    user: str
    cpu: float
    memory: int
    started: float
    command: str


class ProcessTable:
    """Reads it. The spawner, its keepers, the fork server and the worker are not in it: they are nobody's.

    Where the sandbox can start no more processes, and so no worker, a process has its name for its command.
    """

    def __init__(self, spawner: Spawner, worker: UserWorker) -> None:
        self._spawner = spawner
        self._worker = worker

    async def read(self) -> list[LiveProcess]:
        """Return the live processes, oldest first. What ends meanwhile is left out.

        Raises:
            Gone (SANDBOX_GONE). Unavailable (UNREACHABLE): the worker died or did not answer.
        """
        owners = {each.pid: each.owner for each in await self._spawner.processes()}
        rows = await self._describe(list(owners))
        found = [_live(row, owners[row.pid]) for row in rows if row.pid in owners]
        return sorted(found, key=lambda each: (each.started, each.pid))

    async def _describe(self, pids: list[int]) -> list[_Row]:
        found = list[_Row]()
        for start in range(0, len(pids), _PIDS_AT_ONCE):
            asked = pids[start : start + _PIDS_AT_ONCE]
            try:
                answer = await self._worker.ask("processes", "processes", pids=asked)
            except SandcellError as problem:
                if problem.code != ErrorCode.START_FAILED:
                    raise
                # Whoever looks now wants to see what has taken all processes that there may be.
                return [row for row in map(_describe_here, pids) if row is not None]
            found += believe(answer.parts, list[_Row])
        return found


def _describe_here(pid: int) -> _Row | None:
    """Return what this process may read itself without waiting for anybody: all but the command line."""
    row = describe_process(pid, b"", str)
    return None if row is None else msgspec.convert(row, _Row)


def _live(row: _Row, owner: str) -> LiveProcess:
    return LiveProcess(
        pid=row.pid,
        user=row.user,
        cpu=row.cpu,
        memory=row.memory,
        started=row.started,
        command=row.command,
        owner=owner,
    )
