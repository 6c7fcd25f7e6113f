"""The fronts of a sandbox, by id: made when a front end comes, ended when it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandcell.context import Contexts, Executions
from sandcell.guest.front import Front, Worker
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.masks import Masks
from sandcell_container.ids import check_id, new_id
from sandcell_container.journal import Journal, JournalLimits
from sandcell_container.memo import Kind
from sandcell_kernel.front import Front as Machine

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from sandcell.api import CreateFront
    from sandcell.config import Config
    from sandcell.context import Context

__all__ = ["Fronts", "Rooms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What fronts run code with. `masks` takes secrets out of what they say. `is_lost` tells what an earlier start of the sandbox
    had, of what `note_made` was told."""

    contexts: Contexts
    executions: Executions
    worker: Worker
    has_network: bool = False
    masks: Masks | None = None
    note_made: Callable[[Kind, str], None] = lambda _kind, _name: None
    is_lost: Callable[[Kind, str], bool] = lambda _kind, _name: False


class Fronts:
    """All fronts of a guest. An async context manager; leaving it ends them and what they wait for.

    At most `config.max_records` are kept: past that the oldest one that nobody is connected to, and that runs
    nothing, makes room.
    """

    def __init__(self, rooms: Rooms, *, epoch: str, version: str, config: Config) -> None:
        self._rooms = rooms
        self._epoch = epoch
        self._version = version
        self._config = config
        self._fronts: dict[str, Front] = {}
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for front_id in list(self._fronts):
            self.delete(front_id)
        await self._tasks.__aexit__(kind, problem, trace)

    async def create(self, request: CreateFront) -> Front:
        """Make a front on a context (by default the sandbox's own of `language`); the same id gives the same front.

        Raises:
            InvalidRequest (INVALID_NAME, UNKNOWN_LANGUAGE), NotFound: no such context.
            Limited (QUOTA_EXCEEDED): all fronts that may be are in use.
        """
        front_id = check_id(request.id, what="id of a front") if request.id else new_id("frt")
        if front_id not in self._fronts:
            contexts = self._rooms.contexts
            context = (
                contexts.get(request.context) if request.context else await contexts.default(request.language)
            )
            if front_id not in self._fronts:  # another request may have made it meanwhile
                self._make_room()
                self._fronts[front_id] = self._build(front_id, context)
                self._rooms.note_made("front", front_id)
        return self._fronts[front_id]

    def get(self, front_id: str) -> Front:
        """Return a front. Raises NotFound where there is none of this id."""
        front = self._fronts.get(front_id)
        if front is None:
            raise error(ErrorCode.NOT_FOUND, f"there is no front {front_id[:80]!r}")
        return front

    def list(self) -> list[Front]:
        return list(self._fronts.values())

    def delete(self, front_id: str) -> None:
        """End a front and its connections; a cell that runs goes on, its context lives. Deleting twice is fine."""
        front = self._fronts.pop(front_id, None)
        if front is not None:
            front.close()

    def _build(self, front_id: str, context: Context) -> Front:
        config = self._config
        limits = JournalLimits(memory=config.journal_memory, disk=config.journal_disk)
        machine = Machine(
            session=front_id,
            version=self._version,
            max_shell_output=config.max_text_result,
            has_network=self._rooms.has_network,
            has_tickets="tickets" in context.speaks.features,
        )
        return Front(
            front_id,
            context,
            places=self._rooms.contexts,
            executions=self._rooms.executions,
            worker=self._rooms.worker,
            masks=self._rooms.masks,
            was_here=self._rooms.is_lost("front", front_id),
            on_context=lambda context_id: self._rooms.note_made("context", context_id),
            machine=machine,
            journal=Journal(self._epoch, limits),
            spawn=self._tasks.create_task,
            inspect_timeout=config.inspect_timeout,
            on_shutdown=lambda: self.delete(front_id),
        )

    def _make_room(self) -> None:
        if len(self._fronts) < self._config.max_records:
            return
        unused = (each.id for each in self._fronts.values() if not each.is_used)
        oldest = next(unused, None)
        if oldest is None:
            raise error(
                ErrorCode.QUOTA_EXCEEDED,
                f"there are {len(self._fronts)} fronts, all of them in use",
                hint="delete one: DELETE /v1/fronts/{id}",
            )
        self.delete(oldest)
