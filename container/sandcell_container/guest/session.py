"""Sessions: persistent shells with a name, in each of which commands run one after another.

A session outlives its bash: one that has ended is kept, says how, and can be restarted. What a bash does is
`shell_life`'s business.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.masks import masks_of
from sandcell_container.guest.session_command import SessionCommand, command_journal, encode_value
from sandcell_container.guest.session_pipes import SessionPipes
from sandcell_container.guest.shell import start_shell
from sandcell_container.guest.shell_life import LifeSettings, ShellLife, session_ended
from sandcell_container.guest.shell_lines import check_names
from sandcell_container.guest.turns import Turns
from sandcell_container.ids import check_id

if TYPE_CHECKING:
    from sandcell_container.end import End
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.session_command import CommandOrder
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.spill import SpillStore

__all__ = ["Session", "SessionPlace", "SessionSettings", "Sessions"]

SessionStatus = Literal["idle", "busy", "ended"]


class SessionSettings(LifeSettings, Protocol):
    """What sessions need of the configuration. Seconds and bytes."""

    @property
    def journal_memory(self) -> int: ...
    @property
    def journal_disk(self) -> int: ...
    @property
    def max_records(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Where a session begins, and again when it is restarted: `cwd` is absolute, `env` its whole environment; `own` is
    what of it the session was given itself, None for what was taken away."""

    cwd: str
    env: Mapping[str, str]
    own: Mapping[str, str | None]


_OpenLife = Callable[["Session"], Awaitable[ShellLife]]
_MakeCommand = Callable[["CommandOrder"], SessionCommand]


class Session:
    """One session. Made by `Sessions`."""

    def __init__(
        self, session_id: str, place: SessionPlace, open_life: _OpenLife, make_command: _MakeCommand
    ) -> None:
        self.id = session_id
        self.created_at = time.time()
        self.starts = 0
        self._place = place
        self._open_life = open_life
        self._make_command = make_command
        self._life: ShellLife | None = None
        self._inherited = dict[str, bytes | None]()
        self._lasting = dict[str, bytes | None]()
        self._is_deleted = False
        self._one_at_a_time = asyncio.Lock()

    @property
    def place(self) -> SessionPlace:
        return self._place

    @property
    def life(self) -> ShellLife:
        """Its bash, the last one where it has ended."""
        assert self._life is not None, "made by Sessions, which starts it"
        return self._life

    @property
    def ended(self) -> bool:
        """Whether its shell has ended, or is to be ended."""
        return self._is_deleted or self.life.is_over

    @property
    def end(self) -> End | None:
        """How its shell ended, None while there is one."""
        return self.life.end

    @property
    def status(self) -> SessionStatus:
        if self.ended:
            return "ended"
        return "busy" if self.life.running is not None or self.life.waiting else "idle"

    def run(self, order: CommandOrder) -> SessionCommand:
        """Queue a command. It is interrupted after its `timeout`, and after a grace killed with the whole session.

        A redirection by `exec >file` lasts for this command only.

        Raises:
            InvalidRequest: INVALID_ARGUMENT: it holds a NUL character, or is no text; INVALID_ENV_NAME; TOO_LARGE.
            Limited (QUOTA_EXCEEDED): the queue is full.
            Gone (SESSION_ENDED): the shell has ended; `details` say how, and what it said last.
        """
        self.check_live()
        command = self._make_command(order)
        self.life.add(command)
        return command

    def check_live(self) -> None:
        """Raise SESSION_ENDED where its shell has ended."""
        if self.ended:
            raise session_ended(self.id, self.end, self.life.last_output)

    @property
    def last_output(self) -> str:
        """The end of what its last command said, both streams, as text."""
        return self.life.last_output.decode(errors="replace")

    async def set_env(self, changes: Mapping[str, str | None]) -> None:
        """Change variables, all or none, and for its restarts; None takes one away. It is done when this returns; while
        commands run or wait, before the next one, which is refused where a variable is read-only by then.

        Raises:
            InvalidRequest: INVALID_ENV_NAME, also of what is read-only; INVALID_ARGUMENT. Gone (SESSION_ENDED).
        """
        check_names(changes)
        self.check_live()
        encoded = {name: encode_value(name, value) for name, value in changes.items()}
        await self.life.set_env(encoded)
        self._lasting |= encoded

    def inherit_env(self, changes: Mapping[str, str | None]) -> None:
        """Change what comes from the sandbox before its next command, and for its restarts: of variables that it was not
        given itself, by `env` or `set_env`. One that has ended gets it when it is restarted."""
        news = {
            name: encode_value(name, value)
            for name, value in changes.items()
            if name not in self._place.own and name not in self._lasting
        }
        self._inherited |= news
        self.life.inherit_env(news)

    async def interrupt(self) -> None:
        """Interrupt the command that runs, as ^C would, and return when it has ended; none is fine.

        One that goes on for the grace is killed with the session.
        """
        running = self.life.running
        if running is not None:
            running.interrupt()
            await running.over()

    async def restart(self) -> None:
        """End the shell and all that it started, and start another where this one began. What waits is lost.

        Raises as `Sessions.create`; then it has ended.
        """
        async with self._one_at_a_time:
            if self._is_deleted:
                raise error(ErrorCode.NOT_FOUND, f"the session {self.id!r} has been deleted")
            if self._life is not None:
                await self._life.stop()
            self._life = await self._open_life(self)
            self._life.inherit_env(self._inherited)
            self._life.keep_env(self._lasting)
            self.starts += 1

    async def delete(self) -> None:
        """End the shell and all that it started, and return when that is done. Commands end as "killed"."""
        self._is_deleted = True
        async with self._one_at_a_time:
            await self.life.stop()


class Sessions:
    """The sessions of a sandbox by id. An async context manager: leaving it ends them all.

    Of those that have ended at most `settings.max_records` are kept, the newest.
    """

    def __init__(
        self, spawner: Spawner, boot: GuestBoot, settings: SessionSettings, store: SpillStore
    ) -> None:
        self._spawner = spawner
        self._boot = boot
        self._settings = settings
        self._store = store
        self._masks = masks_of(boot.secrets)
        self._known: dict[str, Session] = {}
        self._turns = Turns()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    async def create(
        self, session_id: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Session:
        """Return the session of this id, also one that has ended; a new one where there is none, when it is ready.

        It begins in `cwd`, which counts from the working directory, with the whole environment `env`, by default the
        user's, and reads ~/.bashrc.

        Raises:
            InvalidRequest: INVALID_NAME: it cannot be an id. CWD_NOT_FOUND. UNSUPPORTED: there is no bash.
            Conflict (EXISTS): the session of this id began elsewhere.
            Unavailable (START_FAILED): bash did not start, or ended in its rc files.
            Gone (SANDBOX_GONE): the spawner was lost.
        """
        check_id(session_id, what="id of a session")
        place = self._place(cwd, env)
        async with self._turns.of(session_id):
            found = self._known.get(session_id)
            if found is None:
                return await self._create(session_id, place)
        if (cwd is not None and found.place.cwd != place.cwd) or (
            env is not None and found.place.own != place.own
        ):
            raise error(
                ErrorCode.EXISTS,
                f"the session {session_id!r} exists, and began in another folder or environment",
                hint="give each session an id of its own, or leave out cwd and env",
            )
        return found

    async def get_or_create(self, session_id: str) -> Session:
        """Return the live session of this id: made where there is none, restarted where it has ended.

        Raises as `create`.
        """
        session = await self.create(session_id)
        if session.ended:
            await session.restart()
        return session

    def get(self, session_id: str) -> Session:
        """Return a session, also one that has ended. Raises NotFound where there is none of this id."""
        found = self._known.get(session_id)
        if found is None:
            raise error(
                ErrorCode.NOT_FOUND,
                f"there is no session {session_id[:80]!r}",
                hint="create_session() makes one",
                details={"kind": "session", "id": session_id[:80]},
            )
        return found

    def list(self) -> list[Session]:
        """Return the sessions, the oldest first."""
        return list(self._known.values())

    def last_active(self) -> float:
        """Return when a command last ran, in seconds since the epoch: now, where one does."""
        if any(each.status == "busy" for each in self._known.values()):
            return time.time()
        return max((each.life.last_active for each in self._known.values()), default=0.0)

    async def delete(self, session_id: str) -> None:
        """End a session and forget it. Raises NotFound as `get`."""
        session = self.get(session_id)
        await session.delete()
        if self._known.get(session_id) is session:
            del self._known[session_id]

    def inherit_env(self, changes: Mapping[str, str | None]) -> None:
        """Hand on what was changed of the sandbox's environment to all of them. See `Session.inherit_env`."""
        for each in self._known.values():
            each.inherit_env(changes)

    def _place(self, cwd: str | None, env: Mapping[str, str] | None) -> SessionPlace:
        boot = self._boot
        base = dict(boot.base_env)
        whole = base if env is None else env
        return SessionPlace(
            cwd=os.path.join(boot.workdir, cwd) if cwd else boot.workdir,
            env=whole,
            own={name: whole.get(name) for name in {*base, *whole} if whole.get(name) != base.get(name)},
        )

    async def _create(self, session_id: str, place: SessionPlace) -> Session:
        session = Session(session_id, place, self._open_life, self._make_command)
        await session.restart()
        self._known[session_id] = session
        self._forget_old()
        return session

    def _forget_old(self) -> None:
        ended = [each for each in self._known.values() if each.ended]
        for each in ended[: max(0, len(ended) - self._settings.max_records)]:
            del self._known[each.id]

    def _make_command(self, order: CommandOrder) -> SessionCommand:
        settings = self._settings
        journal = command_journal(
            order, self._boot.epoch, memory=settings.journal_memory, disk=settings.journal_disk
        )
        return SessionCommand(order, journal, self._store, f"{self._boot.scratch_dir}/output")

    async def _open_life(self, session: Session) -> ShellLife:
        pipes, place = SessionPipes(self._masks), session.place
        try:
            stdout, stderr = pipes.write_ends
            shell = await start_shell(
                self._spawner, cwd=place.cwd, env=place.env, stdout=stdout, stderr=stderr
            )
        except BaseException:
            pipes.close()
            raise
        shell.job.owner = session.id
        pipes.close_write_ends()
        life = ShellLife(
            session.id, shell, pipes, self._settings, self._store, f"{self._boot.scratch_dir}/input"
        )
        task = self._group.create_task(life.serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return life
