"""Executions: runs of code as the interface shows them, kept for a while after their end."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UnsetType

from sandcell.activity import Deed
from sandcell.api import CreateExecution, ExecutionInfo
from sandcell.content import ResultLimits
from sandcell.environment import check_env
from sandcell.events import Ended, Failed, Started, encode
from sandcell.execution import Phase
from sandcell.languages import own_context_of
from sandcell.overflow import Overflow, ResultFiles
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.frames import Kind
from sandcell_container.ids import check_id, new_id
from sandcell_container.journal import Journal, JournalLimits
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sandcell.config import Config
    from sandcell.context import Contexts
    from sandcell.events import Event, ToolCalled
    from sandcell.runs import Run
    from sandcell.tool_calls import ToolCalls
    from sandcell.tool_room import ToolRoom
    from sandcell_container.end import End
    from sandcell_container.guest.masks import Masks
    from sandcell_kernel.wire import Message

__all__ = ["Execution", "Executions"]

_HEAD_SHARE = 0.45
_RESTING_MEMORY = 2**14  # of the journal of a run that has ended; what is over it goes to its disk
_SESSION = "sandcell"
# Text was masked as it came. What code gives to host tools, and gets from them, has to arrive as it is.
_NOT_MASKED = {Kind.STDOUT, Kind.STDERR, Kind.TOOL_CALLED}
_STATUS: dict[Phase, Literal["queued", "running", "ended"]] = {
    Phase.QUEUED: "queued",
    Phase.RUNNING: "running",
    Phase.ENDED: "ended",
}


class Execution:
    """One run. `journal` holds its events; `timeout` in seconds of running, None is no limit."""

    def __init__(
        self,
        execution_id: str,
        context_id: str,
        request: CreateExecution,
        *,
        journal: Journal,
        timeout: float | None,
        on_over: Callable[[Execution], None],
        limits: ResultLimits,
        files: ResultFiles | None = None,
        masks: Masks | None = None,
    ) -> None:
        self.id = execution_id
        self.context_id = context_id
        self.request = request
        self.journal = journal
        self.timeout = timeout
        self.inside = ""  # the run that waits for it, by way of a host tool
        self._created_at = time.time()
        self._started_at: float | None = None
        self._run: Run | None = None
        self._on_over = on_over
        self._overflow = Overflow(self._append, limits, files)
        self._masks = masks
        self._over = asyncio.Event()
        self._closed = False
        self._tools: ToolCalls | None = None

    @property
    def origin(self) -> str:
        return self.request.origin

    @property
    def end(self) -> End | None:
        """How it ended, None before."""
        return self._run.machine.end if self._run is not None else None

    def info(self, *, with_code: bool = False) -> ExecutionInfo:
        run = self._run
        return ExecutionInfo(
            id=self.id,
            context_id=self.context_id,
            origin=self.origin,
            status=_STATUS[run.machine.phase if run is not None else Phase.QUEUED],
            created_at=self._created_at,
            started_at=self._started_at,
            position=run.owner.position_of(run) if run is not None else None,
            end=self.end,
            code=self.request.code if with_code else None,
        )

    def attach(self, run: Run) -> None:
        """Say what runs for it: its context does, when it is submitted."""
        self._run = run

    def record(self, events: Iterable[Event]) -> None:
        """Append events to the journal; the one that ends the run ends its followers. Results that are too large
        become files, for which what comes behind them waits."""
        for event in events if not self._closed else ():
            self._overflow.take(event)

    def _append(self, event: Event) -> None:
        if self._closed:
            return
        if self._tools is not None and isinstance(event, Ended | Failed):
            self._tools.close()  # what it has not been answered is told before its end
            self.request = msgspec.structs.replace(self.request, tools=None)
        kind, flags, data = encode(event)
        if self._masks is not None and kind not in _NOT_MASKED:
            data = self._masks.json(data)
        self.journal.append(kind, data, flags=flags)
        if isinstance(event, Started):
            self._started_at = time.time()
        elif isinstance(event, Ended | Failed):
            self.journal.end()
            self.journal.rest(_RESTING_MEMORY)
            self._over.set()
            self._on_over(self)

    @property
    def tools(self) -> ToolCalls:
        """The calls of its code to the tools of its client. Raises InvalidRequest (UNSUPPORTED) where it was given none."""
        if self._tools is None:
            raise error(ErrorCode.UNSUPPORTED, f"the run {self.id} has no host tools")
        return self._tools

    def take_tools(self, calls: ToolCalls | None) -> None:
        """Be the run that these calls are of."""
        self._tools = calls
        if calls is not None:
            calls.attach(self)

    def record_call(self, event: ToolCalled) -> None:
        """Append news of a call to a host tool, behind the news that it runs and what it has written before."""
        if self._run is not None and not self._run.is_over:
            self._run.note_call()
        self.record([event])

    def hold_clock(self) -> None:
        if self._run is not None and self._run.clock is not None:
            self._run.clock.hold()

    def release_clock(self) -> None:
        if self._run is not None and self._run.clock is not None:
            self._run.clock.release()

    def close(self) -> None:
        """Give back its journal; what comes later still is dropped."""
        self._closed = True
        if self._tools is not None:
            self._tools.close()
        self.journal.close()

    async def wait(self) -> None:
        """Return when it has ended. Cancelling leaves it running."""
        await self._over.wait()

    async def interrupt(self, *, who: str) -> None:
        """Interrupt it, as ^C does; one that does not heed it within the grace is killed with its interpreter.

        A run that waits never runs. One that has ended is left alone.
        """
        if self._run is not None:
            self._run.owner.interrupt_run(self._run, who=who)

    def send_input(self, text: str) -> None:
        """Answer the line of input that it waits for.

        Raises:
            Conflict (BUSY): it waits for none.
        """
        if self._run is None:
            raise error(ErrorCode.BUSY, f"the run {self.id} waits for no input")
        self._run.owner.answer_run(self._run, text)


class Executions:
    """All runs of a guest by id; at most `config.max_records` of those that have ended.

    `default_timeout` in seconds is for requests that set none. `workdir` is what a relative folder starts from.
    `result_files` is where results go that are too large to send, of runs that want more than Jupyter has.
    """

    def __init__(
        self,
        contexts: Contexts,
        *,
        config: Config,
        epoch: str,
        workdir: str,
        default_timeout: float | None,
        spill_dir: str | None = None,
        tools: ToolRoom | None = None,
        result_files: ResultFiles | None = None,
        on_begin: Callable[[Deed], None] = lambda _: None,
        masks: Masks | None = None,
    ) -> None:
        self._masks = masks
        self._tools = tools
        self._contexts = contexts
        self._config = config
        self._epoch = epoch
        self._workdir = workdir
        self._default_timeout = default_timeout
        self._result_files = result_files
        # A notebook holds what its cells have shown, and knows of no files: the bound is that of a message.
        self._whole = ResultLimits(text=config.max_message, image=config.max_message)
        self._result_limits = ResultLimits(text=config.max_text_result, image=config.max_image_result)
        self._on_begin = on_begin
        self._limits = JournalLimits(
            memory=config.journal_memory,
            head=int(config.journal_memory * _HEAD_SHARE),
            disk=config.journal_disk,
            spill_dir=spill_dir,
        )
        self._records: dict[str, Execution] = {}
        self._ended: dict[str, Execution] = {}  # the oldest end first

    def start(self, request: CreateExecution, *, inside: str = "") -> Execution:
        """Run code in the context that `request` names, its own (`fresh`), or the sandbox's for the language.

        A repeated id gives the run that has it. `inside`: the run that waits for a host tool which asks for this one.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME, UNKNOWN_LANGUAGE.
            NotFound: there is no such context.
            Conflict (EXISTS): the id is that of a run of other code. (BUSY): `on_busy` is "reject", and it is; or the
                context waits for the tool that asks.
            Limited (QUOTA_EXCEEDED): too many runs wait, or there are too many contexts.
        """
        known = self._known(request)
        if known is not None:
            return known
        calls = self._open_tools(request)
        try:
            return self._start(request, calls, inside)
        except SandcellError:
            if calls is not None:
                calls.close()
            raise

    def _start(self, request: CreateExecution, calls: ToolCalls | None, inside: str) -> Execution:
        message = self._message_of(request, calls)
        context = self._contexts.for_run(request)
        if request.env or request.cwd is not None:
            context.speaks.check("surroundings")
        if request.tools is not None and request.tools.required:
            context.speaks.check("tools")
        self.check_turn(context.id, inside)
        execution = self.create(request, context_id=context.id)
        execution.inside = inside
        execution.take_tools(calls)
        try:
            context.submit(message, execution)
        except SandcellError:
            self._forget(execution)  # so that the same request may be made again
            raise
        finally:
            if request.fresh:
                self._contexts.delete_after(execution, context)
        return execution

    def check_turn(self, context_id: str, inside: str, *, is_session: bool = False) -> None:
        """Return when what a tool of the run `inside` asks of a context, or of a session, may wait for its turn there.

        Raises:
            Conflict (BUSY): the context, whose shell the session is, waits for that tool: its turn would never come.
        """
        while inside and (waiting := self._records.get(inside)) is not None and waiting.end is None:
            same = waiting.context_id == context_id
            if same and (not is_session or self._contexts.get(context_id).language == "bash"):
                raise error(
                    ErrorCode.BUSY,
                    f"the context {context_id} waits for the host tool that asks for a turn in it",
                    hint="a tool can use another context: create_context(), or fresh=True",
                    details={"execution": waiting.id},
                )
            inside = waiting.inside

    def create(self, request: CreateExecution, *, context_id: str | None = None) -> Execution:
        """Make the record of a run that its caller submits to the context itself; the same id gives the same one.

        Raises:
            InvalidRequest (INVALID_ARGUMENT, INVALID_NAME), Conflict (EXISTS): as `start`.
        """
        known = self._known(request)
        if known is not None:
            return known
        execution_id = check_id(request.id, what="id of a run") if request.id else new_id("run")
        execution = Execution(
            execution_id,
            context_id or request.context or own_context_of(request.language),
            request,
            journal=Journal(self._epoch, self._limits),
            timeout=self._timeout_of(request),
            on_over=self._keep,
            limits=self._result_limits if request.want else self._whole,
            files=self._result_files,
            masks=self._masks,
        )
        self._records[execution_id] = execution
        self._on_begin(_deed_of(execution))
        return execution

    def get(self, execution_id: str) -> Execution:
        """Return a run. Raises NotFound where there is none of this id, or none any more."""
        execution = self._records.get(execution_id)
        if execution is None:
            raise error(
                ErrorCode.NOT_FOUND,
                f"there is no run {execution_id[:80]!r}",
                hint=f"the last {self._config.max_records} that ended are kept",
                details={"kind": "run", "id": execution_id[:80]},
            )
        return execution

    def list(self, *, context_id: str | None = None, origin: str | None = None) -> list[Execution]:
        """Return the runs, the oldest first: all, or those of one context, of one origin, or both."""
        return [
            each
            for each in self._records.values()
            if context_id in (None, each.context_id) and origin in (None, each.origin)
        ]

    def last_active(self) -> float:
        """Return when one of them last ran, in seconds since the epoch: now, where one does."""
        ends = [each.end for each in self._records.values()]
        if None in ends:
            return time.time()
        return max((end.at for end in ends if end is not None), default=0.0)

    def close(self) -> None:
        """Give back every journal, and end who follows them."""
        for execution in self._records.values():
            execution.close()
        self._records.clear()

    def _known(self, request: CreateExecution) -> Execution | None:
        execution = self._records.get(request.id) if request.id else None
        if execution is not None and execution.request.code != request.code:
            raise error(
                ErrorCode.EXISTS,
                f"the run {execution.id} exists, with other code",
                hint="give each run an id of its own, or none",
            )
        return execution

    def _keep(self, execution: Execution) -> None:
        """Keep the record of a run that has ended, and drop the oldest over the bound."""
        self._ended[execution.id] = execution
        if len(self._ended) > self._config.max_records:
            self._forget(next(iter(self._ended.values())))

    def _forget(self, execution: Execution) -> None:
        """Drop the record of a run that has ended, or was never taken."""
        self._ended.pop(execution.id, None)
        self._records.pop(execution.id, None)
        execution.close()

    def _timeout_of(self, request: CreateExecution) -> float | None:
        _check_seconds(request.queue_timeout, "queue_timeout")
        if isinstance(request.timeout, UnsetType):
            return self._default_timeout
        return _check_seconds(request.timeout, "timeout")

    def _open_tools(self, request: CreateExecution) -> ToolCalls | None:
        if request.tools is None:
            return None
        if self._tools is None:
            raise error(ErrorCode.UNSUPPORTED, "runs have no host tools here")
        return self._tools.open(request.tools)

    def _message_of(self, request: CreateExecution, calls: ToolCalls | None) -> Message:
        extras: dict[str, Any] = {"want": request.want} if request.want else {}
        if calls is not None:
            extras["tools"] = {"address": calls.address, "secret": calls.secret}
        if request.want and self._result_files is not None:
            limits, folder = self._result_limits, self._result_files.folder
            extras["spill"] = {"folder": folder, "text": limits.text, "image": limits.image}
        if request.env:
            extras["env"] = check_env(request.env)
        if request.cwd is not None:
            extras["cwd"] = os.path.join(self._workdir, _check_path(request.cwd))
        content: dict[str, Any] = {
            "code": _check_code(request.code),
            "silent": False,
            "store_history": request.store_history,
            "user_expressions": {},
            "allow_stdin": request.allow_stdin,
            "stop_on_error": False,  # runs of one program have one origin; one that fails is no reason to drop others
        }
        metadata = {"sandcell": extras} if extras else None
        return new_message("execute_request", content, session=_SESSION, metadata=metadata)


def _deed_of(execution: Execution) -> Deed:
    return Deed(
        kind="run",
        id=execution.id,
        who=execution.origin,
        where=execution.context_id,
        language=execution.request.language,
        code=execution.request.code,
        at=time.time(),
        journal=execution.journal,
    )


def _check_seconds(seconds: float | None, name: str) -> float | None:
    if seconds is not None and not seconds > 0:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name}={seconds!r} has to be above zero",
            hint="None is no limit",
            details={"field": name},
        )
    return seconds


def _check_code(code: str) -> str:
    try:
        code.encode()
    except UnicodeEncodeError as problem:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"the code holds text that is none: {problem.reason}",
            hint="a lone surrogate is half a character",
            details={"field": "code"},
        ) from problem
    return code


def _check_path(path: str) -> str:
    if not path or "\0" in path:
        raise error(ErrorCode.INVALID_PATH, f"{path[:80]!r} is no path", details={"field": "cwd"})
    return path
