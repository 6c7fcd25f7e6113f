"""Stateless commands. One belongs to its request: it ends when the last client that follows it has gone."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import UnsetType

from sandcell.api import ExecRequest
from sandcell.environment import merge_env
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import send_journal
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.exec import start_exec
from sandcell_container.ids import check_id, new_id

if TYPE_CHECKING:
    from sandcell.config import Config
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.exec import Exec
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.spill import SpillStore

__all__ = ["Commands", "ExecHandler"]

SPILL_FOLDER = ".cache/sandcell/output"  # below the user's home: the whole of what an answer has cut


class Commands:
    """The commands of a sandbox by id, the last ones kept after their end: a repeated POST finds them."""

    def __init__(self, spawner: Spawner, boot: GuestBoot, config: Config, store: SpillStore) -> None:
        self._spawner = spawner
        self._boot = boot
        self._config = config
        self._store = store
        self._known: OrderedDict[str, asyncio.Future[Exec]] = OrderedDict()
        self._followers: dict[str, int] = {}

    async def start(self, body: ExecRequest) -> Exec:
        """Return the command of this id, started where it is new. Every start is followed by a `leave`.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME, CWD_NOT_FOUND.
            Unavailable (START_FAILED): the sandbox can start no more processes.
        """
        exec_id = new_id("exe") if body.id is None else check_id(body.id, what="id of a command")
        if exec_id not in self._known:
            self._known[exec_id] = asyncio.get_running_loop().create_future()
            await self._start_new(exec_id, body)
        found = await asyncio.shield(self._known[exec_id])
        self._followers[exec_id] = self._followers.get(exec_id, 0) + 1
        return found

    async def leave(self, command: Exec) -> None:
        """One who followed has gone; with the last one a command that still runs is ended."""
        self._followers[command.id] -= 1
        if self._followers[command.id]:
            return
        del self._followers[command.id]
        if not command.journal.ended:
            await command.cancel()
        self._forget_old()

    async def _start_new(self, exec_id: str, body: ExecRequest) -> None:
        starting = self._known[exec_id]
        try:
            starting.set_result(await self._start(exec_id, body))
        except BaseException as problem:
            # Nothing was started, so nothing is remembered: the same id may be tried again.
            del self._known[exec_id]
            if isinstance(problem, Exception):
                starting.set_exception(problem)
                starting.exception()  # it is raised here; others need not ask
            else:
                starting.cancel()
            raise

    async def _start(self, exec_id: str, body: ExecRequest) -> Exec:
        boot, config = self._boot, self._config
        return await start_exec(
            self._spawner,
            body.command,
            exec_id=exec_id,
            epoch=boot.epoch,
            cwd=os.path.join(boot.workdir, body.cwd or ""),
            env=merge_env(boot.base_env, body.env),
            stdin=body.stdin,
            timeout=self._timeout(body.timeout),
            max_output=self._max_output(body.max_output),
            stream=body.stream,
            kill_grace=config.kill_grace,
            spill_dir=f"{boot.home}/{SPILL_FOLDER}",
            spill_store=self._store,
        )

    def _timeout(self, asked: float | UnsetType | None) -> float | None:
        if isinstance(asked, UnsetType):
            return self._boot.default_timeout
        if asked is not None and not asked > 0:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"timeout={asked} has to be above 0",
                hint="null is no limit",
                details={"field": "timeout"},
            )
        return asked

    def _max_output(self, asked: int | None) -> int:
        limit = self._config.max_output_limit
        if asked is not None and not 0 < asked <= limit:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"max_output={asked} is not between 1 and {limit}",
                details={"field": "max_output"},
            )
        return self._config.max_output if asked is None else asked

    def _forget_old(self) -> None:
        # From the oldest on, and no further than one that is still in use: a look at all would cost each command.
        while len(self._known) > self._config.max_records:
            oldest = next(iter(self._known))
            if oldest in self._followers or not self._known[oldest].done():
                return
            self._known.pop(oldest).result().journal.close()


class ExecHandler(ApiHandler):
    """POST /v1/exec"""

    async def post(self) -> None:
        body = self.body(ExecRequest)
        self.cancel_when_client_goes()
        with self.guest.leases.work():
            command = await self.guest.commands.start(body)
            self.set_header("Sandcell-Id", command.id)
            try:
                await send_journal(self, command.journal)
            finally:
                await self.guest.commands.leave(command)
