"""Sessions as clients ask for them: made from the sandbox's environment, with commands that belong to their request."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from sandcell.activity import SDK, Deed
from sandcell.environment import check_env, merge_env
from sandcell.guest.command_records import CommandRecords, max_output_of, timeout_of
from sandcell.guest.processes import Launch
from sandcell.job_bodies import SessionCommandInfo, SessionInfo
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.session_command import CommandOrder
from sandcell_container.guest.session_snapshot import take_snapshot
from sandcell_container.ids import check_id, new_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from sandcell.config import Config
    from sandcell.guest.processes import Processes
    from sandcell.job_bodies import ChangeEnv, CreateProcess, CreateSession, SessionExec
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.files import Files
    from sandcell_container.guest.process import Process
    from sandcell_container.guest.session import Session, Sessions
    from sandcell_container.guest.session_command import SessionCommand

__all__ = ["SessionRoom"]

_SHOWN = 200  # of a command that is only named


class SessionRoom:
    """See the module. The sessions themselves are those of `sessions`, which a notebook's cells use, too."""

    def __init__(
        self,
        sessions: Sessions,
        processes: Processes,
        files: Files,
        boot: GuestBoot,
        config: Config,
        *,
        on_begin: Callable[[Deed], None] = lambda _: None,
    ) -> None:
        self._sessions = sessions
        self._processes = processes
        self._files = files
        self._boot = boot
        self._config = config
        self._on_begin = on_begin
        self._records: CommandRecords[SessionCommand] = CommandRecords(config, files)

    async def create(self, body: CreateSession) -> Session:
        """Return the session of this id, made where there is none. Raises as `Sessions.create`, and INVALID_ENV_NAME."""
        session_id = new_id("ses") if body.id is None else body.id
        env = None if body.env is None else merge_env(self._boot.base_env, body.env)
        return await self._sessions.create(session_id, cwd=body.cwd, env=env)

    def get(self, session_id: str) -> Session:
        """Return a session. Raises NotFound where there is none of this id."""
        return self._sessions.get(session_id)

    def list(self) -> list[Session]:
        return self._sessions.list()

    def follow(self, session_id: str, body: SessionExec) -> AbstractAsyncContextManager[SessionCommand]:
        """Return what yields the command of this id, queued where it is new. With its last follower it ends.

        Raises as `Session.run`, and:
            NotFound: there is no such session. InvalidRequest: INVALID_ARGUMENT, INVALID_NAME.
            Conflict (EXISTS): the id is that of another command. Gone (LOST): it ran, and its output is kept no more.
        """
        command_id = new_id("exe") if body.id is None else check_id(body.id, what="id of a command")
        begin = partial(self._begin, session_id, command_id, body)
        return self._records.follow(command_id, (session_id, body), begin)

    async def change_env(self, session_id: str, body: ChangeEnv) -> Session:
        """Change variables from the next command on. Raises as `Session.set_env`, and NotFound."""
        session = self.get(session_id)
        await session.set_env(check_env(body.env))
        return session

    async def start_process(self, session_id: str, body: CreateProcess) -> Process:
        """Start a process from a snapshot of a session, in its turn. Raises as `Processes.start` and `take_snapshot`."""
        session = self.get(session_id)
        return await self._processes.start(
            body, session_id=session_id, prepare=partial(self._prepare, session, body)
        )

    async def delete(self, session_id: str, *, keep_processes: bool, who: str) -> None:
        """End a session, and the processes that were started from it. Raises NotFound."""
        await self._sessions.delete(session_id)
        if not keep_processes:
            await self._processes.kill_all(who=who, session_id=session_id)

    def place(self, session_id: str, path: str) -> str:
        """Return `path` as it counts from the session's folder.

        Raises:
            NotFound: there is no such session. Gone (SESSION_ENDED): it has no folder any more.
        """
        session = self.get(session_id)
        session.check_live()
        if not path or path.startswith("/"):
            return path
        return f"{session.life.cwd}/{path}"

    def describe(self, session: Session) -> SessionInfo:
        life = session.life
        return SessionInfo(
            id=session.id,
            status=session.status,
            cwd=life.cwd,
            pid=life.pid,
            created_at=session.created_at,
            starts=session.starts,
            running=None if life.running is None else _name(life.running),
            queue=tuple(map(_name, life.waiting)),
            end=session.end,
            last_output=session.last_output if session.ended else "",
        )

    async def _begin(self, session_id: str, command_id: str, body: SessionExec) -> SessionCommand:
        if body.queue_timeout is not None and not body.queue_timeout > 0:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"queue_timeout={body.queue_timeout} has to be above 0",
                hint="null waits for as long as it takes",
                details={"field": "queue_timeout"},
            )
        order = CommandOrder(
            text=body.command,
            id=command_id,
            cwd=body.cwd,
            env=check_env(body.env or {}),
            stdin=body.stdin,
            timeout=timeout_of(body.timeout, self._boot.default_timeout),
            queue_timeout=body.queue_timeout,
            max_output=max_output_of(body.max_output, self._config, stream=body.stream),
            stream=body.stream,
        )
        command = self.get(session_id).run(order)
        self._on_begin(
            Deed(
                kind="command",
                id=command_id,
                who=SDK,
                where=session_id,
                language="bash",
                code=body.command,
                at=time.time(),
                journal=command.journal,
            )
        )
        return command

    async def _prepare(self, session: Session, body: CreateProcess) -> Launch:
        order = CommandOrder(text="", cwd=body.cwd, env=check_env(body.env or {}))
        snapshot = await take_snapshot(session, order, self._files, f"{self._boot.scratch_dir}/snapshots")
        return Launch(
            argv=snapshot.argv(body.command),
            cwd=snapshot.cwd,
            env=snapshot.env(self._boot.base_env.get("PATH", "")),
            extra=snapshot.fd,
        )


def _name(command: SessionCommand) -> SessionCommandInfo:
    return SessionCommandInfo(
        id=command.id,
        command=command.order.text[:_SHOWN],
        created_at=command.created_at,
        started_at=command.started_at,
    )
