"""Where the work of a cell is shown: what it writes, displays and asks goes to the front that the cell came from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind
from sandcell_container.journal import JournalReader
from sandcell_kernel.answers import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from sandcell.guest.errands import Errands
    from sandcell_container.frames import Entry
    from sandcell_container.journal import Journal
    from sandcell_kernel.actions import Action
    from sandcell_kernel.front import Front as Machine
    from sandcell_kernel.tables import Table
    from sandcell_kernel.wire import RequestKey

__all__ = ["Outcome", "Stage", "Stopped", "show_journal"]

T = TypeVar("T")

_STREAMS: dict[int, Literal["stdout", "stderr"]] = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}


class Stopped(Exception):
    """The cell was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the work of a cell ended. `payload` is what the front end is to do besides."""

    problem: Problem | None = None
    payload: Sequence[dict[str, Any]] = ()


class Stage:
    """One cell's. `origin` is how its front is named to everyone else; `may_ask`: somebody answers questions. `spawn` owns a task
    that goes on beside the work. `context_id` is the notebook's own."""

    def __init__(
        self,
        key: RequestKey,
        machine: Machine,
        act: Callable[[list[Action]], None],
        *,
        origin: str,
        may_ask: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        context_id: str,
        errands: Errands,
    ) -> None:
        self.key = key
        self.origin = origin
        self.may_ask = may_ask
        self.spawn = spawn
        self.context_id = context_id
        self.is_stopped = False
        self._machine = machine
        self._act = act
        self._on_stop: Callable[[], None] | None = None
        self._answer: asyncio.Future[str] | None = None
        self._errands = errands

    # --- what is shown

    def write(self, name: Literal["stdout", "stderr"], data: bytes) -> None:
        self._act(self._machine.show_output(self.key, name, data))

    def write_late(self, kind: Kind, data: bytes) -> None:
        """Write what a job of a shell cell says after the cell's end."""
        self.write(_STREAMS[kind], data)

    def say(self, text: str) -> None:
        """Say a line of ours."""
        self.write("stderr", f"[sandcell] {text}\n".encode())

    def show(self, what: Table | dict[str, Any], *, display_id: str | None = None) -> None:
        """Display a table, or data by MIME type."""
        data = what if isinstance(what, dict) else what.bundle()
        self._act(self._machine.show(self.key, data, display_id=display_id))

    def update(self, what: dict[str, Any], *, display_id: str) -> None:
        """Replace what was displayed with that id."""
        self._act(self._machine.show(self.key, what, display_id=display_id, is_update=True))

    # --- what is asked

    async def ask(self, prompt: str, *, password: bool = False) -> str:
        """Return the line that whoever runs the cell types. Cancelling withdraws the question."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._act(self._machine.ask(self.key, prompt, password=password))
        try:
            return await answer
        finally:
            self._answer = None
            self._act(self._machine.withdraw(self.key))

    def answer(self, text: str) -> None:
        """For the front: a line was typed."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)

    # --- what only the kernel process on the host can do

    @property
    def has_host(self) -> bool:
        """Whether there is one: front ends that come by HTTP have none."""
        return self._errands.has_host

    async def send_out(self, number: int) -> Outcome:
        """Have line `number` of the cell done there, and return how that ended.

        Raises:
            Stopped: it was interrupted. Gone (LOST): the kernel process has gone.
        """
        ended = self._errands.run(number, lambda: self._act(self._machine.send_out(self.key, number)))
        return Outcome(problem=await self.unless_stopped(ended))

    # --- interrupts

    def stop(self) -> None:
        """For the front: interrupt it."""
        self.is_stopped = True
        if self._on_stop is not None:
            self._on_stop()

    @contextmanager
    def stopping(self, callback: Callable[[], None]) -> Generator[None]:
        """Inside the block an interrupt calls `callback`; at once where there was one already."""
        before, self._on_stop = self._on_stop, callback
        if self.is_stopped:
            callback()
        try:
            yield
        finally:
            self._on_stop = before

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Return what `work` does; an interrupt cancels it.

        Raises:
            Stopped: it was interrupted.
        """
        loop = asyncio.get_running_loop()
        scope = asyncio.timeout(None)
        try:
            async with scope:
                with self.stopping(lambda: scope.reschedule(loop.time())):
                    return await work
        except TimeoutError:
            if not scope.expired():
                raise
            raise Stopped from None


async def show_journal(stage: Stage, journal: Journal) -> CommandEnd:
    """Show the output that a journal holds and will hold, and return how what it is of ended.

    Raises:
        Gone (LOST): the journal ends without a word of that.
        SandcellError: what was asked for could not be run.
    """
    with JournalReader(journal) as reader:
        while batch := await reader.next():
            for entry in batch:
                ended = _show_entry(stage, entry)
                if ended is not None:
                    return ended
    raise error(ErrorCode.LOST, "nobody has said how the command ended")


def _show_entry(stage: Stage, entry: Entry) -> CommandEnd | None:
    if entry.kind in _STREAMS:
        stage.write(_STREAMS[entry.kind], entry.data)
    elif entry.kind == Kind.GAP:
        stage.write(
            "stderr",
            f"\n[sandcell] {json.loads(entry.data)['bytes']} bytes of output were dropped\n".encode(),
        )
    elif entry.kind == Kind.ENDED:
        return msgspec.json.decode(entry.data, type=CommandEnd)
    return None
