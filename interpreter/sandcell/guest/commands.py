"""Stateless commands. One belongs to its request: it ends when the last client that follows it has gone."""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sandcell.activity import SDK, Deed
from sandcell.environment import merge_env
from sandcell.guest.command_records import CommandRecords, max_output_of, timeout_of
from sandcell_container.guest.exec import start_exec
from sandcell_container.guest.masks import masks_of
from sandcell_container.guest.stdin_pipe import StdinPipe
from sandcell_container.ids import check_id, new_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from sandcell.config import Config
    from sandcell.job_bodies import ExecRequest
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.exec import Exec
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.spill import SpillStore

__all__ = ["Commands"]


class Commands:
    """The commands of a sandbox by id. The last ones are kept after their end: a repeated POST finds them."""

    def __init__(
        self,
        spawner: Spawner,
        boot: GuestBoot,
        config: Config,
        store: SpillStore,
        *,
        on_begin: Callable[[Deed], None] = lambda _: None,
    ) -> None:
        self._spawner = spawner
        self._boot = boot
        self._config = config
        self._store = store
        self._on_begin = on_begin
        self._masks = masks_of(boot.secrets)
        self._records: CommandRecords[Exec] = CommandRecords(config, store)

    def follow(
        self, body: ExecRequest, stdin: StdinPipe | None = None, *, who: str = SDK
    ) -> AbstractAsyncContextManager[Exec]:
        """Return what yields the command of this id, started where it is new. With its last follower it ends.

        A new one reads what `stdin` gives, and ends when this is left before that is whole: an input that broke off is
        not to be taken for one that ended.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME, CWD_NOT_FOUND.
            Unavailable (START_FAILED): the sandbox can start no more processes.
            Conflict (EXISTS): the id is that of another command.
            Gone (LOST): it ran, and its output is kept no more.
        """
        exec_id = new_id("exe") if body.id is None else check_id(body.id, what="id of a command")
        start = partial(self._start, exec_id, body, stdin, who)
        asked = msgspec.structs.replace(body, cwd=self._boot.folder_of(body.cwd))
        return self._records.follow(exec_id, asked, start, is_torn=partial(_is_torn, stdin))

    async def _start(self, exec_id: str, body: ExecRequest, stdin: StdinPipe | None, who: str) -> Exec:
        boot, config = self._boot, self._config
        if body.stdin is not None:
            stdin = StdinPipe(body.stdin)
        command = await start_exec(
            self._spawner,
            body.command,
            exec_id=exec_id,
            epoch=boot.epoch,
            cwd=boot.folder_of(body.cwd),
            env=merge_env(boot.base_env, body.env),
            stdin=stdin,
            timeout=timeout_of(body.timeout, boot.default_timeout),
            max_output=max_output_of(body.max_output, config, stream=body.stream),
            stream=body.stream,
            kill_grace=config.kill_grace,
            spill_dir=f"{boot.scratch_dir}/output",
            spill_store=self._store,
            masks=self._masks,
        )
        words = body.command
        self._on_begin(
            Deed(
                kind="command",
                id=exec_id,
                who=who,
                where="",
                language="bash",
                code=words if isinstance(words, str) else shlex.join(words),
                at=time.time(),
                journal=command.journal,
            )
        )
        return command


def _is_torn(stdin: StdinPipe | None) -> bool:
    return stdin is not None and not stdin.is_whole
