"""The pure machine of one execution: a kernel's messages and facts about the run in, events out.

            sent                    reply and idle                               (events are late from here on)
  QUEUED ----------> RUNNING ---------------------------> ENDED <------------+
     |                  |   die                             ^                |
     |                  +-----------------------------------+                |
     +-------- abort, refuse, die -----------------------------------------+

Nothing here is trusted further than for this run itself: a cell can forge every message. No IO, no clock, no task. Results are
as large as a message may be; `overflow` bounds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import msgspec

from sandcell.content import (
    Bundle,
    content_of,
    metadata_of,
    split_text,
    take_flag,
    take_lines,
    take_number,
    take_numbers,
    take_object,
    take_pages,
    take_text,
)
from sandcell.events import (
    Ended,
    ErrorRaised,
    Event,
    Failed,
    InputRequested,
    OutputCleared,
    ResultAdded,
    ResultUpdated,
    Started,
    Stderr,
    Stdout,
)
from sandcell.screen import strip_colours
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell.content import ResultLimits
    from sandcell_container.end import Cause
    from sandcell_kernel.wire import Channel, Message

__all__ = ["DIED", "Death", "ExecutionMachine", "Phase", "Stop"]

DIED = "ContextDied"  # the name of the error of a run whose interpreter ended under it

_REFUSALS = {ErrorCode.CWD_NOT_FOUND, ErrorCode.NOT_A_DIRECTORY, ErrorCode.PERMISSION_DENIED}
_CELL_LINE = re.compile(r"Cell In\[(\d+)\], line (\d+)")


class Phase(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why somebody wants the run to end: its time is over, or `who` interrupted it."""

    cause: Literal["timeout", "interrupted"]
    who: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How the interpreter ended, and in words for a person why. `words` are the lines that it said itself, such as a
    fault handler's; `announced`: its last run had said that it would end. `problem`: the whole sandbox ends with it."""

    end: End
    reason: str
    words: tuple[str, ...] = ()
    announced: bool = False
    problem: SandcellError | None = None


class ExecutionMachine:
    """See the module. Every method that takes `at` (seconds since the epoch) returns the events that follow."""

    def __init__(self, context_id: str, limits: ResultLimits, *, silent: bool = False) -> None:
        self._context_id = context_id
        self._limits = limits
        self._silent = silent
        self._sent_at = 0.0
        self._fresh_state: str | None = None
        self._told_start = False
        self._reply: dict[str, Any] | None = None
        self._idle = False
        self._raised = False
        self._value: Any = None
        self._usage: dict[str, float] = {}
        self._written: dict[str, float] = {"stdout_bytes": 0, "stderr_bytes": 0}
        self._stop: Stop | None = None
        self._condemned = False
        self.phase = Phase.QUEUED
        self.interruptible = False  # the kernel said that it runs this: a signal from now on reaches the code
        self.input_parent: bytes | None = None  # the header of a request for input that nobody has answered
        self.execution_count: int | None = None
        self.end: End | None = None

    @property
    def replied(self) -> bool:
        """Whether the kernel itself sent the reply."""
        return self._reply is not None

    @property
    def idle(self) -> bool:
        """Whether the kernel itself said idle."""
        return self._idle

    @property
    def leaving(self) -> bool:
        """Whether the interpreter said in its reply that it is about to exit, as `exit()` makes it."""
        payload = self._reply.get("payload") if self._reply is not None else None
        parts = cast("list[object]", payload) if isinstance(payload, list) else []
        return any(_is_farewell(part) for part in parts)

    @property
    def aborted(self) -> bool:
        """Whether the kernel itself says that it did not run it."""
        return self._reply is not None and self._reply.get("status") == "aborted"

    @property
    def failed(self) -> bool:
        """Whether the kernel's reply says anything else than ok."""
        return self._reply is not None and self._reply.get("status") != "ok"

    # --- facts

    def sent(self, at: float, *, fresh_state: str | None = None) -> None:
        """The request has gone to a kernel that runs nothing else: time counts from here."""
        self.phase = Phase.RUNNING
        self._sent_at = at
        self._fresh_state = fresh_state

    def stop(self, stop: Stop) -> None:
        """Somebody wants it to end; what it is called in the end. The first one counts."""
        self._stop = self._stop or stop

    def condemn(self) -> None:
        """Its interpreter is being killed: whatever the kernel still says, only its death ends the run now."""
        self._condemned = True

    def abort(self, at: float, *, cause: Cause, reason: str, who: str | None = None) -> list[Event]:
        """It leaves the queue and will never run. `cause` "lost": that is an error as well, with `reason`."""
        if self.phase is not Phase.QUEUED:
            return []
        events: list[Event] = [ErrorRaised(name=DIED, value=reason)] if cause == "lost" else []
        return events + self._finish(at, End(cause=cause, who=who, at=at))

    def refuse(self, at: float, problem: SandcellError) -> list[Event]:
        """It cannot be run; nothing of it has run."""
        return self._fail(End(cause="exited", at=at), problem)

    def die(self, at: float, death: Death) -> list[Event]:
        """The interpreter ended under it."""
        if self.phase is not Phase.RUNNING:
            return []
        if death.problem is not None:
            return self._fail(replace(death.end, at=at, state="lost"), death.problem)
        raised = ErrorRaised(name=self._death_name(), value=death.reason, traceback=list(death.words))
        events: list[Event] = [*self._start(), raised]
        return events + self._finish(at, replace(death.end, at=at, state="lost"))

    def hear_output(self, name: Literal["stdout", "stderr"], text: str) -> list[Event]:
        """It has written text."""
        if self.phase is Phase.QUEUED:
            return []
        if self.phase is Phase.ENDED:
            return [msgspec.structs.replace(event, late=True) for event in self._print(name, text)]
        self.interruptible = True  # whatever has become of the message that should have said so
        return [*self._start(), *self._print(name, text)]

    def hear_call(self) -> list[Event]:
        """It calls a host tool."""
        if self.phase is not Phase.RUNNING:
            return []
        self.interruptible = True
        return self._start()

    # --- messages

    def receive(self, channel: Channel, message: Message, at: float) -> list[Event]:
        """Take a message of the kernel whose parent is this request.

        Raises:
            BadMessage: its header is not valid.
        """
        if self.phase is Phase.QUEUED:
            return []
        read = self._READERS.get((channel, message.msg_type))
        if read is None:
            return []
        content = content_of(message)
        if self.phase is Phase.ENDED:
            return [
                msgspec.structs.replace(event, late=True)
                for event in read(self, content)
                if not isinstance(event, Started)
            ]
        if message.msg_type == "input_request":
            self.input_parent = message.header
        elif message.msg_type == "execute_reply":
            self._usage = _usage_of(message)
        events = read(self, content)
        if events:
            events = [*self._start(), *events]
        if self._reply is not None and self._idle and not self._condemned:
            events = [*events, *self._conclude(at)]
        return events

    def _hear_status(self, content: dict[str, Any]) -> list[Event]:
        state = take_text(content, "execution_state")
        self._idle |= state == "idle"
        self.interruptible |= state == "busy" and self._silent
        return []

    def _hear_input(self, content: dict[str, Any]) -> list[Event]:
        self.interruptible = True
        self.execution_count = take_number(content, "execution_count")
        return self._start()

    def _hear_reply(self, content: dict[str, Any]) -> list[Event]:
        if self._reply is None:
            self._reply = content
            if self.execution_count is None:
                self.execution_count = take_number(content, "execution_count")
            return [self._hear_page(page) for page in take_pages(content)]
        return []

    def _hear_page(self, page: dict[str, Any]) -> Event:
        bundle = Bundle.read(page)
        return ResultAdded(data=bundle.data, metadata=bundle.metadata)

    def _hear_stream(self, content: dict[str, Any]) -> list[Event]:
        is_error = take_text(content, "name") == "stderr"
        return self._print("stderr" if is_error else "stdout", take_text(content, "text"))

    def _hear_display(self, content: dict[str, Any], *, is_main: bool = False) -> list[Event]:
        bundle = Bundle.read(content)
        if is_main:
            bundle, self._value = bundle.without_value()
        added = ResultAdded(
            data=bundle.data,
            metadata=bundle.metadata,
            display_id=_display_id(content),
            is_main=is_main,
        )
        return [added, *bundle.truncations()]

    def _hear_result(self, content: dict[str, Any]) -> list[Event]:
        return self._hear_display(content, is_main=True)

    def _hear_update(self, content: dict[str, Any]) -> list[Event]:
        bundle = Bundle.read(content)
        updated = ResultUpdated(data=bundle.data, metadata=bundle.metadata, display_id=_display_id(content))
        return [updated, *bundle.truncations()]

    def _hear_clear(self, content: dict[str, Any]) -> list[Event]:
        return [OutputCleared(wait=take_flag(content, "wait"))]

    def _hear_error(self, content: dict[str, Any]) -> list[Event]:
        self._raised = True
        return [self._error_of(content)]

    def _hear_input_request(self, content: dict[str, Any]) -> list[Event]:
        asked = InputRequested(prompt=take_text(content, "prompt"), password=take_flag(content, "password"))
        return [asked]

    _READERS: ClassVar[
        dict[tuple[Channel, str], Callable[[ExecutionMachine, dict[str, Any]], list[Event]]]
    ] = {
        ("iopub", "status"): _hear_status,
        ("iopub", "execute_input"): _hear_input,
        ("iopub", "stream"): _hear_stream,
        ("iopub", "display_data"): _hear_display,
        ("iopub", "execute_result"): _hear_result,
        ("iopub", "update_display_data"): _hear_update,
        ("iopub", "clear_output"): _hear_clear,
        ("iopub", "error"): _hear_error,
        ("stdin", "input_request"): _hear_input_request,
        ("shell", "execute_reply"): _hear_reply,
    }

    def _print(self, name: Literal["stdout", "stderr"], text: str) -> list[Event]:
        kind = Stderr if name == "stderr" else Stdout
        self._written[f"{name}_bytes"] += len(text) if text.isascii() else len(text.encode())
        return [kind(text=piece) for piece in split_text(text)]

    # --- the end

    def _conclude(self, at: float) -> list[Event]:
        assert self._reply is not None
        refusal = _refusal_of(self._reply)
        if refusal is not None:
            return self.refuse(at, refusal)
        events = self._start()
        if self._reply.get("status") == "error" and not self._raised:
            events.append(self._error_of(self._reply))
        return events + self._finish(at, self._kept_end(at))

    def _kept_end(self, at: float) -> End:
        status = self._reply.get("status") if self._reply else None
        if self._stop is not None and (status != "ok" or self._stop.cause == "timeout"):
            return End(cause=self._stop.cause, who=self._stop.who, at=at)
        if status == "aborted":
            return End(cause="interrupted", at=at)
        state: Literal["kept", "lost"] = "lost" if self.leaving else "kept"
        told = take_number(take_object(self._reply or {}, "sandcell"), "exit_code")  # as a shell has one
        code = told if told is not None else 0 if status == "ok" else 1
        return End(cause="exited", code=code, at=at, state=state)

    def _fail(self, end: End, problem: SandcellError) -> list[Event]:
        """It is no run that ended somehow, but something that the machinery could not do."""
        if self.phase is Phase.ENDED:
            return []
        self.phase = Phase.ENDED
        self.end = end
        return [Failed(error=problem.to_dict())]

    def _finish(self, at: float, end: End) -> list[Event]:
        running = self.phase is Phase.RUNNING
        self.phase = Phase.ENDED
        self.input_parent = None
        self.end = end
        ended = Ended(
            end=end,
            execution_count=self.execution_count,
            duration=max(at - self._sent_at, 0.0) if running else 0.0,
            usage={**self._usage, **self._written} if running else {},
            value=self._value,
        )
        return [ended]

    def _start(self) -> list[Event]:
        if self._told_start:
            return []
        self._told_start = True
        started = Started(
            execution_count=self.execution_count,
            context_id=self._context_id,
            fresh_state=self._fresh_state,
        )
        return [started]

    def _death_name(self) -> str:
        if self._stop is None:
            return DIED
        return "TimeoutError" if self._stop.cause == "timeout" else "KeyboardInterrupt"

    def _error_of(self, content: dict[str, Any]) -> ErrorRaised:
        traceback = take_lines(content, "traceback")
        return ErrorRaised(
            name=take_text(content, "ename")[:1000] or "Error",
            value=self._limits.shorten(take_text(content, "evalue")),
            traceback=self._limits.shorten_lines(traceback),
            line=_line_of(traceback, self.execution_count),
        )


def _usage_of(reply: Message) -> dict[str, float]:
    """Return what the runtime says that the run took."""
    usage = take_object(take_object(metadata_of(reply), "sandcell"), "usage")
    return take_numbers(usage, ("wall", "cpu_user", "cpu_system", "peak_memory"))


def _display_id(content: dict[str, Any]) -> str | None:
    return take_text(take_object(content, "transient"), "display_id") or None


def _line_of(traceback: list[str], execution_count: int | None) -> int | None:
    """Return the line of the code that was run where the error passed through last, if the traceback names one."""
    found = None
    for text in traceback:
        for match in _CELL_LINE.finditer(strip_colours(text)):
            if execution_count is None or int(match[1]) == execution_count:
                found = int(match[2])
    return found


def _is_farewell(part: object) -> bool:
    """Whether this part of a reply's payload is that of `exit()`; `keepkernel` is from `exit(keep_kernel=True)`."""
    fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
    return fields.get("source") == "ask_exit" and not fields.get("keepkernel")


def _refusal_of(reply: dict[str, Any]) -> SandcellError | None:
    """Return why the runtime ran nothing, None where it did run. A cell can forge this, so it says nothing else."""
    code = take_text(take_object(reply, "sandcell"), "refused")
    if code not in _REFUSALS:
        return None
    return error(
        ErrorCode(code), f"cannot run in {take_text(reply, 'evalue')!r}", hint="name a folder that exists"
    )
