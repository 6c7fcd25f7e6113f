"""One front of a sandbox: a Jupyter kernel as one front end sees it.

This is the rim around the pure machine `sandcell_kernel.front`: it carries out what the machine asks for with
contexts and the work of cells, and keeps what the front end is to get in a journal, so that it can be read again
after a broken connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import deque
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from sandcell.api import CreateExecution, FrontInfo
from sandcell.content import take_object
from sandcell.guest.errands import Errands
from sandcell.guest.former import RESTARTED
from sandcell.guest.stage import Stage, Stopped
from sandcell.notebook_problem import problem_of
from sandcell.runs import Answer as KernelAnswer
from sandcell_container.errors import SandcellError
from sandcell_container.frames import Kind
from sandcell_kernel.actions import (
    Answer,
    AskComms,
    AskKernelInfo,
    ErrandEnded,
    Forward,
    Interrupt,
    Perform,
    Restart,
    Shutdown,
    Submit,
    TakeTicket,
)
from sandcell_kernel.requests import INTERRUPTED
from sandcell_kernel.websocket import pack_v1
from sandcell_kernel.wire import BadMessage, ChannelMessage, Message, new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from sandcell.context import Context, Execution, Executions, RunEnded
    from sandcell.guest.stage import Outcome
    from sandcell_container.guest.masks import Masks
    from sandcell_container.journal import Journal
    from sandcell_kernel.actions import Action
    from sandcell_kernel.cells import Work
    from sandcell_kernel.front import Front as Machine
    from sandcell_kernel.wire import Channel, RequestKey

__all__ = ["Front", "Places", "Worker"]

log = logging.getLogger(__name__)

_NOTEBOOK = re.compile(r"\bnotebook:[a-z0-9_-]+")


class Worker(Protocol):
    """Does what cells ask of the guest itself."""

    async def perform(self, stage: Stage, work: Work) -> Outcome:
        """Do it, shown on `stage`. Raises SandcellError where it cannot be begun."""
        ...


class Places(Protocol):
    """Where cells run that name a context."""

    def get(self, context_id: str) -> Context:
        """Return one that is there. Raises NotFound."""
        ...

    async def get_or_create(self, context_id: str, language: str | None) -> Context:
        """Return the context of this name, made where there is none. Raises as `Contexts.create`, and
        InvalidRequest (INVALID_ARGUMENT) where it speaks another language."""
        ...


class Front:
    """See the module. `journal` holds what its front end is to get: MESSAGE entries in the v1 framing. `was_here`: it is of a
    front end that an earlier start of the sandbox had, too."""

    def __init__(
        self,
        front_id: str,
        context: Context,
        *,
        places: Places,
        executions: Executions,
        worker: Worker,
        masks: Masks | None,
        was_here: bool,
        on_context: Callable[[str], None],
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
        self._places = places
        self._known_executions = executions
        self._worker = worker
        self._masks = masks
        self._was_here = was_here
        self._on_context = on_context
        self._machine = machine
        self._spawn = spawn
        self._inspect_timeout = inspect_timeout
        self._on_shutdown = on_shutdown
        self._created_at = time.time()
        self._ear = _Ear(self, None)
        self._ears: dict[str, _Ear] = {}  # of other contexts, by their ids
        self._todo: deque[Action] = deque()
        self._acting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._executions: dict[str, Execution] = {}  # by msg_id, one at a time
        self._stage: Stage | None = None
        self._errands = Errands()

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
        """Take a message of the front end; a cell that we fail over is told so. Raises BadMessage where it is no message."""
        try:
            actions = self._machine.receive(channel, message)
        except BadMessage:
            raise
        except Exception as problem:
            log.exception("a message could not be taken front=%s", self.id)
            actions = self._machine.refuse(channel, message, problem_of(problem))
        self._act(actions)

    def hear(self, channel: Channel, message: Message, context_id: str | None) -> None:
        """Take a message of a context's kernel (None: the front's own) for a request of this front."""
        try:
            self._act(self._machine.relay(channel, message, context_id))
        except BadMessage as problem:  # code in the sandbox can write what it likes on its kernel's sockets
            log.warning("dropped a message of a kernel front=%s: %s", self.id, problem)

    def hear_end(self, msg_id: str, ended: RunEnded, context_id: str | None) -> None:
        """Take the end of a cell that was submitted, or of a request that a dead kernel leaves unanswered."""
        execution = self._executions.pop(msg_id, None)
        self._act(
            self._machine.end_run(
                msg_id,
                cause=ended.end.cause,
                reason=self._addressed(ended.reason),
                lost=ended.end.state == "lost",
                note=self._addressed(self._news_of(execution)) if execution is not None else "",
                whole=f"sandbox.execution({execution.id!r}) has its beginning and its end"
                if execution
                else "",
                context_id=context_id,
            )
        )

    @contextmanager
    def connected(self, *, does_errands: bool = False) -> Generator[None]:
        """Somebody is connected inside the block, a kernel process that `does_errands`, or another client. The last one of a
        closed front gives its journal back."""
        self.connections += 1
        try:
            with self._errands.hosted() if does_errands else nullcontext():
                yield
        finally:
            self.connections -= 1
            if self.connections == 0 and self.journal.ended:
                self.journal.close()

    def close(self) -> None:
        """End the front: what it waits for, and its connections once they have read the rest."""
        for task in self._tasks:
            task.cancel()
        self._errands.close()
        self.journal.end()
        if self.connections == 0:
            self.journal.close()

    def _news_of(self, execution: Execution) -> str:
        """Return why a run found no earlier state, "" where that is no news: a kernel process has seen itself that its sandbox
        stopped, and told so to the cell that started it again."""
        why = _fresh_state_of(execution)
        return "" if why == RESTARTED and self._was_here and self._errands.has_host else why

    def _addressed(self, reason: str) -> str:
        """Return a reason as the person at this front is told it: origins are names for programs."""
        return _NOTEBOOK.sub("another notebook", reason.replace(self.origin, "you"))

    # --- actions

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
                shown = message if self._masks is None else _masked(message, self._masks)
                self.journal.append(Kind.MESSAGE, pack_v1(channel, shown))
            case Submit(request, context_id, language):
                if context_id is None:
                    self._submit(request, self.context, self._ear)
                else:
                    self._start(request.key, self._submit_to(request, context_id, language))
            case Forward():
                self._forward(action)
            case AskKernelInfo(key):
                self._start(key, self._ask_kernel_info())
            case AskComms(key, target, context_ids):
                self._start(key, self._ask_comms(key, target, context_ids))
            case TakeTicket(key):
                self._start(key, self._take_ticket(key))
            case Perform(key, work, may_ask):
                self._start(key, self._perform(key, work, may_ask=may_ask))
            case Answer(key, text):
                if self._stage is not None and self._stage.key == key:
                    self._stage.answer(text)
            case ErrandEnded(_, number, problem):
                self._errands.end(number, problem)
            case Interrupt(key, work):
                self._start(key, self._interrupt(key, work))
            case Restart(key):
                self._start(key, self._restart(key))
            case Shutdown():
                self._on_shutdown()
            case _:
                assert_never(action)

    def _start(self, key: RequestKey, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(self._attempt(key, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, key: RequestKey, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Stopped:
            self._act(self._machine.fail(key, INTERRUPTED))
        except Exception as problem:
            if not isinstance(problem, SandcellError):
                log.exception("a request failed front=%s", self.id)
            self._act(self._machine.fail(key, problem_of(problem)))

    # --- cells

    def _submit(self, request: Message, context: Context, ear: _Ear) -> None:
        body = request.body()
        try:
            execution = self._known_executions.create(
                CreateExecution(
                    code=body["code"],
                    context=context.id,
                    language=context.language,
                    timeout=None,
                    allow_stdin=bool(body.get("allow_stdin", False)),
                    store_history=bool(body.get("store_history", True)),
                    origin=self.origin,
                    want=(),
                )
            )
            self._executions[request.msg_id] = execution
            context.submit(request, execution, listener=ear)
        except SandcellError as problem:
            self._executions.pop(request.msg_id, None)
            self._act(self._machine.fail(request.key, problem_of(problem)))

    async def _submit_to(self, request: Message, context_id: str, language: str | None) -> None:
        with self._on_stage(request.key) as stage:
            context = await stage.unless_stopped(self._places.get_or_create(context_id, language))
        if context is self.context:
            self._submit(request, context, self._ear)
            return
        self._on_context(context.id)
        self._act(self._machine.note_context(context.id))
        self._submit(request, context, self._ears.setdefault(context.id, _Ear(self, context.id)))

    async def _take_ticket(self, key: RequestKey) -> None:
        self._act(self._machine.give_ticket(key, await self.context.take_ticket(self.origin)))

    async def _perform(self, key: RequestKey, work: Work, *, may_ask: bool) -> None:
        with self._on_stage(key, may_ask=may_ask) as stage:
            outcome = await self._worker.perform(stage, work)
        self._act(self._machine.end_work(key, outcome.problem, payload=outcome.payload))

    @contextmanager
    def _on_stage(self, key: RequestKey, *, may_ask: bool = False) -> Generator[Stage]:
        """Inside the block interrupts and answers of the cell go to the stage."""
        self._stage = Stage(
            key,
            self._machine,
            self._act,
            origin=self.origin,
            may_ask=may_ask,
            spawn=self._spawn,
            context_id=self.context.id,
            errands=self._errands,
        )
        try:
            yield self._stage
        finally:
            self._stage = None

    async def _interrupt(self, key: RequestKey, work: RequestKey | None) -> None:
        if self._stage is not None and self._stage.key == work:
            self._stage.stop()
        elif self._executions:  # ours may still wait behind a run of somebody else's, which is not meant
            for execution in list(self._executions.values()):
                await execution.interrupt(who=self.origin)
        elif work is None:
            await self.context.interrupt(who=self.origin)
        self._act(self._machine.finish(key))

    async def _restart(self, key: RequestKey) -> None:
        await self.context.restart(who=self.origin)
        self._act(self._machine.finish(key))

    # --- what kernels answer

    def _forward(self, action: Forward) -> None:
        message, context_id = action.message, action.context_id
        try:
            context = self.context if context_id is None else self._places.get(context_id)
            ear = self._ear if context_id is None else self._ears[context_id]
            context.send(action.channel, message, ear)
        except SandcellError as problem:
            self._act(self._machine.fail(message.key, problem_of(problem)))
            return
        if action.is_limited:
            asyncio.get_running_loop().call_later(self._inspect_timeout, self._expire, message.key)

    def _expire(self, key: RequestKey) -> None:
        self._act(self._machine.expire(key))

    async def _ask_kernel_info(self) -> None:
        self._act(self._machine.learn_kernel(await self.context.kernel_info()))

    async def _ask_comms(self, key: RequestKey, target: str, context_ids: tuple[str, ...]) -> None:
        found = await asyncio.gather(
            *(self._comms_of(each, target) for each in (self.context.id, *context_ids))
        )
        self._act(
            self._machine.tell_comms(key, {name: comm for each in found for name, comm in each.items()})
        )

    async def _comms_of(self, context_id: str, target: str) -> dict[str, Any]:
        """Return the comms of a context; none where it is gone, or busy for longer than an editor waits."""
        answer = KernelAnswer("comm_info_reply")
        content = {"target_name": target} if target else {}
        message = new_message("comm_info_request", content, session=self.id)
        try:
            context = self.context if context_id == self.context.id else self._places.get(context_id)
            context.send("shell", message, answer)
            async with asyncio.timeout(self._inspect_timeout):
                return take_object(await answer.content(), "comms")
        except (TimeoutError, SandcellError):
            return {}


class _Ear:
    """Hears the kernel of one context for a front; `context_id` is None for the front's own."""

    def __init__(self, front: Front, context_id: str | None) -> None:
        self._front = front
        self._context_id = context_id

    def on_message(self, channel: Channel, message: Message) -> None:
        self._front.hear(channel, message, self._context_id)

    def on_run_end(self, msg_id: str, ended: RunEnded) -> None:
        self._front.hear_end(msg_id, ended, self._context_id)


def _fresh_state_of(execution: Execution) -> str:
    """Return why a run found no earlier state, "" where it did or began with none."""
    for entry in execution.journal.read(execution.journal.start, 1):
        if entry.kind == Kind.STARTED:
            return json.loads(entry.data).get("fresh_state") or ""
    return ""


def _masked(message: Message, masks: Masks) -> Message:
    """Return a message without secrets in its metadata and content. Buffers are no text."""
    metadata, content = masks.json(message.metadata), masks.json(message.content)
    return Message(message.header, message.parent_header, metadata, content, message.buffers)
