"""Terminals: a PTY each, with a program that it controls, and a journal that everyone who looks at it is told from.

What comes out are bytes: nothing here decodes them. A slow viewer holds up neither the program nor other viewers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.command_line import start_command
from sandcell_container.guest.ending import Ending
from sandcell_container.guest.masks import StreamMask
from sandcell_container.guest.pace import Pace
from sandcell_container.guest.pty import LARGEST, Pty, PtyEnds, Size, open_pty
from sandcell_container.guest.start import Start
from sandcell_container.guest.turns import Turns
from sandcell_container.ids import check_id, new_id
from sandcell_container.journal import Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell_container.end import CommandEnd, End
    from sandcell_container.errors import SandcellError
    from sandcell_container.guest.job import Job, JobExit
    from sandcell_container.guest.masks import Masks
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.user_worker import UserWorker
    from sandcell_container.journal import Cursor

__all__ = ["Terminal", "TerminalPlan", "TerminalSettings", "Terminals"]

_PIECE = 2**16  # what one viewer types before another has its turn
_PER_REPLAYED = (
    4  # bytes of memory for each that is replayed: entries of fewer than 50 bytes cost more to keep
)
_LETTERS = 4  # that are shown as they are typed, also where they begin a secret
_MOST_KEPT = 32 * 2**20  # memory of terminals that have ended


class TerminalSettings(Protocol):
    """What terminals need of the configuration. Seconds and bytes."""

    @property
    def kill_grace(self) -> float: ...
    @property
    def max_records(self) -> int: ...
    @property
    def journal_terminal(self) -> int: ...
    @property
    def input_timeout(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalPlan:
    """What a terminal is to be. `command` is a line for bash or words; None is a shell that reads ~/.bashrc.
    `cwd` is absolute, `env` the whole environment, `own` what of it was asked for it."""

    command: str | tuple[str, ...] | None
    cwd: str
    env: Mapping[str, str]
    size: Size
    own: Mapping[str, str | None] = field(default_factory=dict[str, str | None])

    def is_same_work(self, other: TerminalPlan) -> bool:
        """Tell whether only the size differs, or what the sandbox gives to all."""
        return replace(self, size=other.size, env=other.env) == other


class Terminal:
    """One terminal. Made by `Terminals`. Its journal holds what came out as STDOUT, and last ENDED, a CommandEnd as JSON.

    It ends when the program does that was started on it; what that has left behind then ends too.
    """

    def __init__(
        self,
        terminal_id: str,
        plan: TerminalPlan,
        ends: PtyEnds,
        job: Job,
        epoch: str,
        settings: TerminalSettings,
        masks: Masks | None = None,
    ) -> None:
        self.id = terminal_id
        self.plan = plan
        self.size = plan.size
        self.pid = job.pid
        self.created_at = self.active_at = time.time()
        self.end: End | None = None
        self.viewers = 0
        memory = _PER_REPLAYED * settings.journal_terminal
        self.journal = Journal(epoch, JournalLimits(memory=memory))
        self._settings = settings
        self._mask = None if masks is None else StreamMask(masks, least=_LETTERS)
        self._pty = Pty(ends, self._take)
        self._pace = Pace(
            self.journal, settings.journal_terminal, pause=self._pty.pause, resume=self._pty.resume
        )
        self._job = job
        self._ending = Ending(lambda end: end)
        self._is_killed = False
        self._is_forgotten = False
        self._over: asyncio.Future[CommandEnd] = asyncio.get_running_loop().create_future()
        job.owner = terminal_id
        job.when_exited(self._on_exit)

    # what viewers do

    @contextmanager
    def view(self) -> Generator[None]:
        """Somebody looks at it inside the block."""
        self.viewers += 1
        try:
            yield
        finally:
            self.viewers -= 1
            self.active_at = time.time()
            self._rest()

    @property
    def replay_start(self) -> Cursor:
        """Where a new viewer begins: the last `journal_terminal` bytes come after it."""
        return self.journal.place_before(self._settings.journal_terminal)

    async def write(self, data: bytes) -> None:
        """Type `data`, and return when the terminal has taken all of it.

        Raises:
            Conflict (BUSY): nothing on it reads, so it took no more for `input_timeout` seconds; `details["written"]` bytes
                were typed.
            Gone (LOST): it has ended.
        """
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            self.active_at = time.time()
            taken = await self._pty.write(piece, patience_s=self._settings.input_timeout)
            if taken < len(piece):
                raise self._refusal(start + taken)

    def resize(self, size: Size) -> None:
        """Change the size for all viewers; the programs in the foreground get SIGWINCH.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): a terminal cannot be as large or as small.
        """
        self.size = check_size(size)
        self._pty.resize(size)

    # its end

    async def wait(self) -> CommandEnd:
        """Return how it ended. Cancelling leaves it alone."""
        return await asyncio.shield(self._over)

    async def delete(self, *, who: str | None = None) -> CommandEnd:
        """Hang up, and return how it ended when nothing of its tree is left. One that has ended already is fine.

        What goes on for `kill_grace` seconds gets SIGKILL.
        """
        if not self._ending.has_exited:
            self._ending.note_cause("killed", who)
            # A shell heeds the end of its terminal and not SIGTERM. SIGHUP alone would not do: bash overlooks one that
            # comes together with SIGTERM.
            self._pace.close()
            self._pty.close()
        if self.end is None:
            self._kill()
        return await self.wait()

    def forget(self) -> None:
        """Give back what came out, once those who look at it have seen the end. For `Terminals`."""
        self._is_forgotten = True
        self._rest()

    def lose(self) -> None:
        """Let go of it, whatever runs on it; it ends as "lost" where it had not ended. For `Terminals`."""
        self._finish()

    def _rest(self) -> None:
        if self._is_forgotten and not self.viewers:
            self.journal.close()

    def _take(self, data: bytes) -> None:
        self.active_at = time.time()
        shown = data if self._mask is None else self._mask.feed(data)
        if shown:
            self.journal.append(Kind.STDOUT, shown)
        self._pace.regulate()

    def _refusal(self, taken: int) -> SandcellError:
        if self._pty.is_over:
            return error(ErrorCode.LOST, f"the terminal {self.id} has ended", hint="create another")
        return error(
            ErrorCode.BUSY,
            f"nothing on the terminal {self.id} reads what is typed",
            hint="look at what runs on it; ^C goes through when that reads again",
            details={"written": taken},
        )

    def _on_exit(self, ended: JobExit | None) -> None:
        self._ending.note_exit(ended)
        if ended is None or (self._job.is_settled and not self._is_killed):
            self._finish()
        elif not self._is_killed:
            self._kill()

    def _kill(self) -> None:
        """End the tree, or what its root has left of it."""
        if not self._is_killed:
            self._is_killed = True
            roots = 0 if self._ending.has_exited else 1
            self._job.start_kill(self._settings.kill_grace, lambda count: self._on_killed(count, roots))

    def _on_killed(self, count: int | None, roots: int) -> None:
        """The answer to a kill: the tree is gone, or holds a process that cannot die."""
        self._ending.note_leftovers((count or roots) - roots)
        self._finish()

    def _finish(self) -> None:
        if self.end is not None:
            return
        self._pace.close()
        self._pty.close()
        if self._mask is not None and (rest := self._mask.finish()):
            self.journal.append(Kind.STDOUT, rest)
        ended = self._ending.result()
        self.end = ended.end
        self.journal.append(Kind.ENDED, msgspec.json.encode(ended))
        self.journal.end()
        self._over.set_result(ended)


class Terminals:
    """The terminals of a sandbox by id. The last ones that ended are kept. Give them back with `close`, all of them.

    `worker` opens them, where this process has another identity than the user. `masks` takes secrets out of what they show.
    """

    def __init__(
        self,
        spawner: Spawner,
        worker: UserWorker | None,
        epoch: str,
        settings: TerminalSettings,
        *,
        masks: Masks | None = None,
    ) -> None:
        self._spawner = spawner
        self._worker = worker
        self._epoch = epoch
        self._settings = settings
        self._masks = masks
        self._known: dict[str, Terminal] = {}
        self._turns = Turns()

    async def create(self, terminal_id: str | None, plan: TerminalPlan) -> Terminal:
        """Return the terminal of this id, started where there is none, whether or not it has ended.

        Raises:
            InvalidRequest: INVALID_NAME; INVALID_ARGUMENT: the size, or as `Spawner.start`.
            Conflict (EXISTS): the id is that of a terminal with another command, folder or environment.
            Others: as `open_pty` and `Spawner.start`.
        """
        given = new_id("trm") if terminal_id is None else check_id(terminal_id, what="id of a terminal")
        check_size(plan.size)
        async with self._turns.of(given):
            found = self._known.get(given)
            if found is None:
                found = self._known[given] = await self._start(given, plan)
                self._forget_old()
        if not found.plan.is_same_work(plan):
            raise error(
                ErrorCode.EXISTS,
                f"the terminal {given} exists, and is another",
                hint="delete it first, or give each terminal an id of its own",
            )
        return found

    def get(self, terminal_id: str) -> Terminal:
        """Return a terminal. NOT_FOUND where there is none."""
        found = self._known.get(terminal_id)
        if found is None:
            raise error(
                ErrorCode.NOT_FOUND,
                f"there is no terminal {terminal_id[:80]!r}",
                hint=f"there are: {', '.join(self._known)[:500]}" if self._known else "",
                details={"kind": "terminal", "id": terminal_id[:80]},
            )
        return found

    def list(self) -> list[Terminal]:
        """Return the terminals that are known, oldest first."""
        return list(self._known.values())

    def last_active(self) -> float:
        """Return when one of them was last in use, in seconds since the epoch: now, where somebody looks at one that runs.

        One that nobody looks at is in use as often as it says something: a shell that waits for ever is not.
        """
        known = self._known.values()
        if any(each.viewers and each.end is None for each in known):
            return time.time()
        return max((each.active_at for each in known), default=0.0)

    async def delete(self, terminal_id: str, *, who: str | None = None) -> End:
        """End a terminal with all that runs on it, forget it, and return how it ended. NOT_FOUND where there is none."""
        terminal = self.get(terminal_id)
        ended = await terminal.delete(who=who)
        if self._known.get(terminal_id) is terminal:
            self._forget(terminal)
        return ended.end

    def close(self) -> None:
        """Let go of all terminals; what runs on them is the spawner's to end."""
        for each in self._known.values():
            each.lose()

    async def _start(self, terminal_id: str, plan: TerminalPlan) -> Terminal:
        ends = await open_pty(plan.size, self._worker)
        try:
            start = Start(argv=(), env=plan.env, cwd=plan.cwd, terminal=ends.slave)
            job = await start_command(self._spawner, plan.command, start)
        except BaseException:
            ends.close()
            raise
        return Terminal(terminal_id, plan, ends, job, self._epoch, self._settings, self._masks)

    def _forget_old(self) -> None:
        ended = [each for each in self._known.values() if each.end is not None]
        memory = sum(each.journal.memory for each in ended)
        while ended and (len(ended) > self._settings.max_records or memory > _MOST_KEPT):
            oldest = ended.pop(0)
            memory -= oldest.journal.memory
            self._forget(oldest)

    def _forget(self, terminal: Terminal) -> None:
        del self._known[terminal.id]
        terminal.forget()


def check_size(size: Size) -> Size:
    """Return a size that a terminal can have, else raise INVALID_ARGUMENT."""
    if not all(0 < each <= LARGEST for each in size):
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"a terminal cannot have {size.cols} columns and {size.rows} rows",
            hint=f"1 to {LARGEST} of each",
            details={"field": "cols" if not 0 < size.cols <= LARGEST else "rows"},
        )
    return size
