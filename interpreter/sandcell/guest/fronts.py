"""The fronts of a sandbox: each is a Jupyter kernel as one front end sees it.

This is the rim around the pure machine `sandcell_kernel.front`: it carries out what the machine asks for with
contexts and shell sessions, and keeps what the front end is to get in a journal, so that it can be read again
after a broken connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, assert_never

import msgspec

from sandcell.api import CreateExecution, FrontInfo
from sandcell.context import Contexts, Executions
from sandcell.failure import failure_of
from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.frames import Kind
from sandcell_container.guest.session import Sessions
from sandcell_container.guest.session_command import CommandOrder
from sandcell_container.ids import check_id, new_id
from sandcell_container.journal import Journal, JournalLimits
from sandcell_kernel.actions import (
    AskKernelInfo,
    Forward,
    Interrupt,
    Restart,
    RunShell,
    Shutdown,
    Submit,
    TakeTicket,
)
from sandcell_kernel.answers import Problem
from sandcell_kernel.front import Front as Machine
from sandcell_kernel.websocket import pack_v1
from sandcell_kernel.wire import BadMessage, ChannelMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType
    from typing import Self

    from sandcell.api import CreateFront
    from sandcell.config import Config
    from sandcell.context import Context, Execution, RunEnded
    from sandcell_container.frames import Entry
    from sandcell_container.guest.session_command import SessionCommand
    from sandcell_kernel.actions import Action
    from sandcell_kernel.wire import Channel, Message, RequestKey

__all__ = ["Front", "Fronts", "Rooms"]

log = logging.getLogger(__name__)

_STREAMS: dict[int, Literal["stdout", "stderr"]] = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What fronts run code with."""

    contexts: Contexts
    executions: Executions
    sessions: Sessions


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
        machine = Machine(session=front_id, version=self._version, max_shell_output=config.max_text_result)
        return Front(
            front_id,
            context,
            self._rooms,
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


class Front:
    """One front. `journal` holds what its front end is to get: MESSAGE entries in the v1 framing."""

    def __init__(
        self,
        front_id: str,
        context: Context,
        rooms: Rooms,
        *,
        machine: Machine,
        journal: Journal,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        inspect_timeout: float,
        on_shutdown: Callable[[], None],
    ) -> None:
        self.id = front_id
        self.context = context
        self.journal = journal
        self.connections = 0
        self._rooms = rooms
        self._machine = machine
        self._spawn = spawn
        self._inspect_timeout = inspect_timeout
        self._on_shutdown = on_shutdown
        self._created_at = time.time()
        self._todo: deque[Action] = deque()
        self._acting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._executions: dict[str, Execution] = {}  # by msg_id, one at a time
        self._command: SessionCommand | None = None

    @property
    def origin(self) -> str:
        """How the runs of this front are named to everyone else."""
        return f"notebook:{self.id}"

    @property
    def is_used(self) -> bool:
        return self.connections > 0 or self._machine.is_busy

    def info(self) -> FrontInfo:
        return FrontInfo(
            id=self.id,
            context_id=self.context.id,
            language=self.context.language,
            epoch=self.journal.epoch,
            created_at=self._created_at,
            connections=self.connections,
        )

    def receive(self, channel: Channel, message: Message) -> None:
        """Take a message of the front end. Raises BadMessage where it is none."""
        self._act(self._machine.receive(channel, message))

    def on_message(self, channel: Channel, message: Message) -> None:
        """Take a message of the context's kernel for a request of this front."""
        try:
            self._act(self._machine.relay(channel, message))
        except BadMessage as problem:  # code in the sandbox can write what it likes on its kernel's sockets
            log.warning("dropped a message of a kernel front=%s: %s", self.id, problem)

    def on_run_end(self, msg_id: str, ended: RunEnded) -> None:
        """Take the end of a cell that was submitted, or of a request that a dead kernel leaves unanswered."""
        execution = self._executions.pop(msg_id, None)
        self._act(
            self._machine.end_run(
                msg_id,
                cause=ended.end.cause,
                reason=ended.reason,
                lost=ended.end.state == "lost",
                note=_fresh_state_of(execution) if execution is not None else "",
            )
        )

    @contextmanager
    def connected(self) -> Generator[None]:
        """Somebody is connected inside the block. The last one of a closed front gives its journal back."""
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1
            if self.connections == 0 and self.journal.ended:
                self.journal.close()

    def close(self) -> None:
        """End the front: what it waits for, and its connections once they have read the rest."""
        for task in self._tasks:
            task.cancel()
        self.journal.end()
        if self.connections == 0:
            self.journal.close()

    def _act(self, actions: list[Action]) -> None:
        if self.journal.ended:
            return  # nobody is told any more, and what waited is not begun
        # What an action calls may call back at once; its actions then come after those that wait already.
        self._todo += actions
        if self._acting:
            return
        self._acting = True
        try:
            while self._todo:
                self._do(self._todo.popleft())
        finally:
            self._acting = False

    def _do(self, action: Action) -> None:
        match action:
            case ChannelMessage(channel, message):
                self.journal.append(Kind.MESSAGE, pack_v1(channel, message))
            case Submit(request):
                self._submit(request)
            case Forward(channel, message, is_limited):
                self._forward(channel, message, is_limited=is_limited)
            case AskKernelInfo(key):
                self._start(key, self._ask_kernel_info())
            case TakeTicket(key):
                self._start(key, self._take_ticket(key))
            case RunShell(key, session_id, code):
                self._start(key, self._run_shell(key, session_id, code))
            case Interrupt(key, session_id):
                self._start(key, self._interrupt(key, session_id))
            case Restart(key):
                self._start(key, self._restart(key))
            case Shutdown():
                self._on_shutdown()
            case _:
                assert_never(action)

    def _submit(self, request: Message) -> None:
        body = request.body()
        try:
            execution = self._rooms.executions.create(
                CreateExecution(
                    code=body["code"],
                    context=self.context.id,
                    language=self.context.language,
                    timeout=None,
                    allow_stdin=bool(body.get("allow_stdin", False)),
                    store_history=bool(body.get("store_history", True)),
                    origin=self.origin,
                    want=(),
                )
            )
            self._executions[request.msg_id] = execution
            self.context.submit(request, execution, listener=self)
        except SandcellError as problem:
            self._executions.pop(request.msg_id, None)
            self._act(self._machine.fail(request.key, Problem.of(problem)))

    def _forward(self, channel: Channel, message: Message, *, is_limited: bool) -> None:
        try:
            self.context.send(channel, message, self)
        except SandcellError as problem:
            self._act(self._machine.fail(message.key, Problem.of(problem)))
            return
        if is_limited:
            asyncio.get_running_loop().call_later(self._inspect_timeout, self._expire, message.key)

    def _expire(self, key: RequestKey) -> None:
        self._act(self._machine.expire(key))

    def _start(self, key: RequestKey, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(self._attempt(key, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, key: RequestKey, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as problem:
            if not isinstance(problem, SandcellError):
                log.exception("a request failed front=%s", self.id)
            self._act(self._machine.fail(key, Problem.of(failure_of(problem))))

    async def _ask_kernel_info(self) -> None:
        self._act(self._machine.learn_kernel(await self.context.kernel_info()))

    async def _take_ticket(self, key: RequestKey) -> None:
        self._act(self._machine.start_shell(key, await self.context.take_ticket(self.origin)))

    async def _run_shell(self, key: RequestKey, session_id: str, code: str) -> None:
        session = await self._rooms.sessions.get_or_create(session_id)
        command = self._command = session.run(CommandOrder(text=code))
        try:
            async for batch in command.journal.follow():
                for entry in batch:
                    self._show_entry(key, entry)
        finally:
            self._command = None
            command.journal.close()
        if command.refusal is not None:
            raise command.refusal
        # Without effect where the journal said how the command ended, as it should.
        lost = Problem(name=str(ErrorCode.LOST), value="the shell did not say how the command ended")
        self._act(self._machine.fail(key, lost))

    def _show_entry(self, key: RequestKey, entry: Entry) -> None:
        if entry.kind in _STREAMS:
            self._act(self._machine.show_shell(key, _STREAMS[entry.kind], entry.data))
        elif entry.kind == Kind.GAP:
            text = f"\n[sandcell] {json.loads(entry.data)['bytes']} bytes of output were dropped\n"
            self._act(self._machine.show_shell(key, "stderr", text.encode()))
        elif entry.kind == Kind.ENDED:
            self._act(self._machine.end_shell(key, msgspec.json.decode(entry.data, type=CommandEnd)))

    async def _interrupt(self, key: RequestKey, session_id: str | None) -> None:
        if session_id is not None:
            if self._command is not None:
                self._command.interrupt()
        elif self._executions:  # ours may still wait behind a run of somebody else's, which is not meant
            for execution in list(self._executions.values()):
                await execution.interrupt(who=self.origin)
        else:
            await self.context.interrupt(who=self.origin)
        self._act(self._machine.finish(key))

    async def _restart(self, key: RequestKey) -> None:
        await self.context.restart(who=self.origin)
        self._act(self._machine.finish(key))


def _fresh_state_of(execution: Execution) -> str:
    """Return why a run found no earlier state, "" where it did or began with none."""
    for entry in execution.journal.read(execution.journal.start, 1):
        if entry.kind == Kind.STARTED:
            return json.loads(entry.data).get("fresh_state") or ""
    return ""
