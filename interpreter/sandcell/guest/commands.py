"""Stateless commands. One belongs to its request: it ends when the last client that follows it has gone."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import UnsetType

from sandcell.environment import merge_env
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.exec import start_exec
from sandcell_container.guest.stdin_pipe import StdinPipe
from sandcell_container.ids import check_id, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandcell.api import ExecRequest
    from sandcell.config import Config
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.exec import Exec
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.spill import SpillStore

__all__ = ["Commands"]

MAX_KEPT_BYTES = 32 * 2**20  # output of ended commands, in memory
MAX_SPILLED_BYTES = 2**30  # and in files
MAX_FORGOTTEN = 10_000  # ids of commands that ran and whose output is gone

SPILL_FOLDER = ".cache/sandcell/output"  # below the user's home: the whole of what an answer has cut


class _Known:
    """One command that was asked for. `starting` is over when it runs, has failed to, or its starter gave up."""

    def __init__(self, asked: ExecRequest) -> None:
        self.asked = asked
        self.starting: asyncio.Future[Exec] = asyncio.get_running_loop().create_future()
        self.followers = 1
        self.size = 0  # bytes of its output in memory, when it was last looked at
        self.files = dict[str, int]()  # those that hold an output whole, and their bytes

    @property
    def has_started(self) -> bool:
        starting = self.starting
        return starting.done() and not starting.cancelled() and starting.exception() is None


class Commands:
    """The commands of a sandbox by id. The last ones are kept after their end: a repeated POST finds them."""

    def __init__(self, spawner: Spawner, boot: GuestBoot, config: Config, store: SpillStore) -> None:
        self._spawner = spawner
        self._boot = boot
        self._config = config
        self._store = store
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._kept_bytes = 0
        self._spilled_bytes = 0
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    @asynccontextmanager
    async def follow(self, body: ExecRequest, stdin: StdinPipe | None = None) -> AsyncGenerator[Exec]:
        """Yield the command of this id, started where it is new. With its last follower it ends.

        A new one reads what `stdin` gives, and ends when this is left before that is whole: an input that broke off is
        not to be taken for one that ended.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME, CWD_NOT_FOUND.
            Unavailable (START_FAILED): the sandbox can start no more processes.
            Conflict (EXISTS): the id is that of another command.
            Gone (LOST): it ran, and its output is kept no more.
        """
        exec_id = new_id("exe") if body.id is None else check_id(body.id, what="id of a command")
        known, began = await self._join(exec_id, body), False
        if known is None:
            known, began = await self._begin(exec_id, body, stdin), True
        try:
            yield known.starting.result()
        finally:
            is_torn = began and stdin is not None and not stdin.is_whole
            await self._leave(known, is_torn=is_torn)

    async def _join(self, exec_id: str, body: ExecRequest) -> _Known | None:
        """Return a command that is there, when it has started; None where there is none, or its starter gave up."""
        while (known := self._known.get(exec_id)) is not None:
            if known.asked != body:
                raise error(
                    ErrorCode.EXISTS,
                    f"the command {exec_id} exists, and is another",
                    hint="give each command an id of its own, or none",
                )
            known.followers += 1
            try:
                await asyncio.wait({known.starting})
            except BaseException:
                await self._leave(known)
                raise
            if not known.starting.cancelled():
                known.starting.result()
                return known
        return None

    async def _begin(self, exec_id: str, body: ExecRequest, stdin: StdinPipe | None) -> _Known:
        if exec_id in self._forgotten:
            raise error(
                ErrorCode.LOST,
                f"the command {exec_id} has run, its output is kept no more",
                hint="run it again with another id, if it may run twice",
            )
        known = self._known[exec_id] = _Known(body)
        try:
            known.starting.set_result(await self._start(exec_id, body, stdin))
        except BaseException as problem:
            # Nothing was started, so nothing is remembered: the same id may be tried again.
            del self._known[exec_id]
            if isinstance(problem, Exception):
                known.starting.set_exception(problem)
                known.starting.exception()  # it is raised here; nobody else need ask
            else:
                known.starting.cancel()
            raise
        return known

    async def _leave(self, known: _Known, *, is_torn: bool = False) -> None:
        known.followers -= 1
        if (known.followers and not is_torn) or not known.has_started:
            return
        command = known.starting.result()
        if not command.journal.ended:
            await command.cancel()
        size = command.journal.memory
        self._kept_bytes += size - known.size
        known.size = size
        if not known.files:
            known.files = {cut.path: cut.total_bytes for cut in command.cuts.values() if cut.path}
            self._spilled_bytes += sum(known.files.values())
        self._forget_old()

    async def _start(self, exec_id: str, body: ExecRequest, stdin: StdinPipe | None) -> Exec:
        boot, config = self._boot, self._config
        if body.stdin is not None:
            stdin = StdinPipe(body.stdin)
        return await start_exec(
            self._spawner,
            body.command,
            exec_id=exec_id,
            epoch=boot.epoch,
            cwd=os.path.join(boot.workdir, body.cwd) if body.cwd else boot.workdir,
            env=merge_env(boot.base_env, body.env),
            stdin=stdin,
            timeout=self._timeout(body.timeout),
            max_output=self._max_output(body),
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

    def _max_output(self, body: ExecRequest) -> int | None:
        asked, limit = body.max_output, self._config.max_output_limit
        if asked is not None and not 0 < asked <= limit:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"max_output={asked} is not between 1 and {limit}",
                details={"field": "max_output"},
            )
        return self._config.max_output if asked is None and not body.stream else asked

    def _forget_old(self) -> None:
        """Keep the newest ended commands within bounds, with their files, and of older ones that they ran.

        From the oldest on, and no further than one in use: a look at all would cost each command.
        """
        while (
            len(self._known) > self._config.max_records
            or self._kept_bytes > MAX_KEPT_BYTES
            or self._spilled_bytes > MAX_SPILLED_BYTES
        ):
            exec_id, oldest = next(iter(self._known.items()))
            if oldest.followers or not oldest.has_started:
                return
            oldest.starting.result().journal.close()
            self._kept_bytes -= oldest.size
            self._spilled_bytes -= sum(oldest.files.values())
            for path in oldest.files:
                self._store.remove_soon(path)
            del self._known[exec_id]
            self._forgotten[exec_id] = None
            if len(self._forgotten) > MAX_FORGOTTEN:
                self._forgotten.popitem(last=False)
