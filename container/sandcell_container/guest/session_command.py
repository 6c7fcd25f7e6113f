"""One command of a session: what is asked, what becomes of its output, how it ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from sandcell_container.end import CommandEnd, Truncation
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.kept_output import KeptOutput
from sandcell_container.guest.shell_lines import ShellOrder, check_names, order_bytes
from sandcell_container.guest.spill import Spill
from sandcell_container.ids import new_id
from sandcell_container.journal import LATE, Journal, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.end import End
    from sandcell_container.errors import SandcellError
    from sandcell_container.guest.spill import SpillStore

__all__ = ["CommandOrder", "SessionCommand", "StopCause", "command_journal"]

StopCause = Literal["interrupted", "timeout", "killed"]

_LONGEST_COMMAND = 2**20  # bash reads it byte by byte: half a second
_LARGEST_PLAN = 2**20  # of folder and variables, likewise
_BOOKKEEPING = 2**16
_BEHIND = 2**20  # bytes that a follower may be behind before the command has to wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """A command for a session. Times in seconds, sizes in bytes.

    `cwd`, from the session's folder where it is relative, and `env`, where None takes a variable away, hold for this
    command: afterwards they are as before, but for what the command itself has changed. `stdin` is what it may read,
    None nothing; `asks` are the paths of two FIFOs by which its `read` asks then, see `shell_questions`. `timeout` counts from its start, `queue_timeout` while it waits. With `stream` output goes to the
    journal as it comes, and the command waits while a follower is 1 MiB behind; without, `max_output` bytes of each
    stream at its end. Either way the whole of a longer output goes into a file; without `max_output` none does.
    """

    text: str
    id: str = field(default_factory=lambda: new_id("exe"))
    cwd: str | None = None
    env: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    stdin: bytes | None = None
    asks: tuple[str, str] | None = None
    timeout: float | None = None
    queue_timeout: float | None = None
    max_output: int | None = None
    stream: bool = True

    def encode(self) -> ShellOrder:
        """Return it as bash gets it, but for its input and what the session adds.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_ENV_NAME; TOO_LARGE: more than 1 MiB.
        """
        check_names(self.env)
        text = order_bytes(self.text, "the command")
        env = tuple((name, encode_value(name, value)) for name, value in self.env.items())
        if len(text) > _LONGEST_COMMAND:
            message, hint = f"the command has {len(text)} bytes", "write it to a file, and source that"
            raise error(ErrorCode.TOO_LARGE, message, hint=hint)
        if sum(len(value or b"") for _, value in env) > _LARGEST_PLAN:
            message, hint = "the variables have more than 1 MiB", "write them to a file, and source that"
            raise error(ErrorCode.TOO_LARGE, message, hint=hint)
        asks = None if self.asks is None else (os.fsencode(self.asks[0]), os.fsencode(self.asks[1]))
        cwd = order_bytes(self.cwd, "the folder") if self.cwd else None
        return ShellOrder(command=text, cwd=cwd, env=env, asks=asks)


def encode_value(name: str, value: str | None) -> bytes | None:
    """Return the bytes of a variable's value. Raises as `order_bytes`."""
    return None if value is None else order_bytes(value, f"the variable {name[:80]!r}")


def command_journal(order: CommandOrder, epoch: str, *, memory: int, disk: int) -> Journal:
    """Return a journal for the output of a command, with room for what is kept of it."""
    if order.stream or order.max_output is None:
        return Journal(epoch, JournalLimits(memory=memory, disk=disk))
    return Journal(epoch, JournalLimits(memory=2 * order.max_output + _BOOKKEEPING))


class SessionCommand:
    """One command. Its journal ends with ENDED, a CommandEnd as JSON, or with ERROR when it could not be run at all, an
    error body as JSON; output of background jobs may follow, marked LATE. `end.state` is "lost" when the session ended
    with it. `cuts` are known when it has ended. `on_late` is told of late output, for who reads no journal any more."""

    def __init__(self, order: CommandOrder, journal: Journal, store: SpillStore, spill_dir: str) -> None:
        loop = asyncio.get_running_loop()
        self.order = order
        self.shell_order = order.encode()
        self.journal = journal
        self.created_at = time.time()
        self.started_at: float | None = None
        self.refusal: SandcellError | None = None
        self.cause: StopCause | None = None
        self.stop: asyncio.Future[StopCause] = loop.create_future()
        self.queue_timer: asyncio.TimerHandle | None = None
        self.on_late: Callable[[Kind, bytes], None] | None = None
        self.cuts = dict[str, Truncation]()
        self._began = 0.0
        self._decided: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[CommandEnd] = loop.create_future()
        self._kept = dict[Kind, KeptOutput]()
        if order.max_output is not None:
            for name, kind in (("stdout", Kind.STDOUT), ("stderr", Kind.STDERR)):
                spill = Spill(store, f"{spill_dir}/{order.id}.{name}")
                self._kept[kind] = KeptOutput(name, kind, order.max_output, spill=spill)

    @property
    def id(self) -> str:
        return self.order.id

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    async def wait(self) -> CommandEnd:
        """Return how it ended. Cancelling leaves it running. Raises its refusal where it could not be run."""
        return await asyncio.shield(self._ended)

    async def decided(self, timeout_s: float) -> None:
        """Return when it has begun or ended, or the time is over.

        Raises:
            SandcellError: it was refused.
        """
        await asyncio.wait({self._decided}, timeout=timeout_s)
        if self.refusal is not None:
            raise self.refusal

    def interrupt(self) -> None:
        """Interrupt it as ^C would when it runs, take it from the queue when it waits.

        One that goes on for the grace is killed with the session.
        """
        self.end_by("interrupted")

    async def cancel(self) -> None:
        """End it and return when it has ended: interrupted when it runs, taken from the queue when it waits."""
        self.end_by("killed")
        await self.over()

    async def over(self) -> None:
        """Return when it has ended, or was refused."""
        await asyncio.wait({self._ended})

    # for the session

    def end_by(self, cause: StopCause) -> None:
        if not self.stop.done():
            self.stop.set_result(cause)

    def note_start(self) -> None:
        """It is its turn."""
        self._stop_timer()
        self.started_at = time.time()
        self._began = time.monotonic()

    def note_begun(self) -> None:
        """Bash runs it."""
        if not self._decided.done():
            self._decided.set_result(None)

    def take(self, kind: Kind, data: bytes, resume: Callable[[], None]) -> None:
        """Take output. `resume` is called when `is_full` may have changed."""
        if self._ended.done():
            self.journal.append(kind, data, flags=LATE)
            if self.on_late is not None:
                self.on_late(kind, data)
            return
        kept = self._kept.get(kind)
        if self.order.stream or kept is None:
            self.journal.append(kind, data)
        if kept is not None:
            kept.take(data, resume)

    def is_waiting(self, kind: Kind) -> bool:
        """Whether nothing more may be given to `take`: the file for the whole is being made."""
        kept = self._kept.get(kind)
        return kept is not None and kept.is_waiting

    @property
    def is_behind(self) -> bool:
        """Whether a follower is so far behind that the command has to wait for it."""
        return self.order.stream and not self._ended.done() and self.journal.backlog > _BEHIND

    def finish(self, end: End, *, leftovers: int = 0) -> None:
        """End it; nothing `is_waiting` any more."""
        cuts = {kept.name: self._let_go(kept) for kept in self._kept.values()}
        self.cuts = {name: cut for name, cut in cuts.items() if cut is not None}
        ended = CommandEnd(
            end=end,
            exit_code=end.code,
            signal=end.signal,
            duration=0.0 if self.started_at is None else time.monotonic() - self._began,
            leftovers=leftovers,
            truncated=self.cuts,
        )
        self._close(Kind.ENDED, msgspec.json.encode(ended))
        self._ended.set_result(ended)

    def refuse(self, problem: SandcellError) -> None:
        """End it before it has begun."""
        self.refusal = problem
        self._close(Kind.ERROR, msgspec.json.encode(problem.to_dict()))
        self._ended.set_exception(problem)
        self._ended.exception()  # who asks is told; nobody has to ask

    def _let_go(self, kept: KeptOutput) -> Truncation | None:
        return kept.finish() if self.order.stream else kept.finish_into(self.journal)

    def _close(self, kind: Kind, data: bytes) -> None:
        self._stop_timer()
        self.journal.append(kind, data)
        self.journal.end()
        self.note_begun()

    def _stop_timer(self) -> None:
        if self.queue_timer is not None:
            self.queue_timer.cancel()
