"""What a run gave: plain objects, built from its events on the client's side. No IO.

Source: CONTRACT section 1 for every name and shape here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import msgspec

from sandcell.api import ToolState
from sandcell.events import (
    Ended,
    ErrorRaised,
    Event,
    Failed,
    Gap,
    OutputCleared,
    ResultAdded,
    ResultUpdated,
    Started,
    Stderr,
    Stdout,
    ToolCalled,
    Truncated,
)
from sandcell.model_text import tell
from sandcell.order import Order, Part, Stream
from sandcell.plain_fields import fields_of
from sandcell.result import Image, Result
from sandcell.screen import Screen
from sandcell_container.end import End, Truncation
from sandcell_container.errors import ErrorCode, error
from sandcell_container.errors import Failed as FailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ExecutionError", "LogEntry", "Result", "RunBuilder", "RunResult", "ToolCall"]

_Kind = TypeVar("_Kind")

_RESULT_COST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """Output as it was written: `stream` "stdout" or "stderr", `time` in seconds since the epoch (UTC)."""

    stream: Literal["stdout", "stderr"]
    text: str
    time: float
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionError:
    """The exception that ended the code. `traceback` as IPython prints it, escape sequences included."""

    name: str
    value: str
    traceback: list[str] = field(default_factory=list[str])
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of the code to a host tool. `state` is "done" with the `result`, as JSON has it, "failed" with the `error`, or
    "abandoned": nobody waited for the answer any more, or nobody gave one, as `error` says. `duration` in seconds."""

    id: str
    name: str
    arguments: dict[str, Any]
    state: ToolState
    result: Any = None
    error: ExecutionError | None = None
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult:
    """What one run gave. Times in seconds since the epoch (UTC), durations in seconds.

    `text` is the text/plain of the main result and `value` the last value where it is JSON-safe and small, each
    None where there is none. `stdout` and `stderr` are as a terminal would show them, `logs` as it was written.
    `fresh_state` says why the run began without earlier state. `truncated` is by stream or MIME type. `order` is that in
    which `stdout`, `stderr` and `results` came, by lines: see `Part`; what it does not name came last.
    """

    id: str
    context_id: str
    origin: str
    end: End
    text: str | None = None
    value: Any = None
    stdout: str = ""
    stderr: str = ""
    logs: list[LogEntry] = field(default_factory=list[LogEntry])
    results: list[Result] = field(default_factory=list[Result])
    error: ExecutionError | None = None
    execution_count: int | None = None
    started_at: float | None = None
    duration: float = 0.0
    usage: dict[str, float] = field(default_factory=dict[str, float])
    fresh_state: str | None = None
    truncated: dict[str, Truncation] = field(default_factory=dict[str, Truncation])
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall])
    order: list[Part] = field(default_factory=list[Part])

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end without an exception."""
        return self.error is None and self.end.cause == "exited" and self.end.code == 0

    @property
    def timed_out(self) -> bool:
        return self.end.cause == "timeout"

    @property
    def images(self) -> list[Image]:
        """The PNG and JPEG images among the results, in order."""
        found = ((result.png, result.jpeg) for result in self.results)
        return [
            Image(data, mime)
            for pair in found
            for data, mime in zip(pair, ("image/png", "image/jpeg"), strict=True)
            if data is not None
        ]

    def raise_for_error(self) -> None:
        """Do nothing where it is ok.

        Raises:
            Failed (CODE_FAILED): it is not; `result` of the exception is this object.
        """
        if self.ok:
            return
        said = str(self.error) if self.error else f"the run ended: {self.end.cause}"
        problem = FailedError(
            ErrorCode.CODE_FAILED,
            said,
            details={"cause": self.end.cause, "line": self.error.line if self.error else None},
        )
        problem.result = self
        raise problem

    def for_model(self, max_chars: int = 8000) -> str:
        """Return it as text for a language model, in at most `max_chars` characters: no escape sequences, no binary data, and
        all that it should know: output and results in their order, the error, what was cut or lost.

        What begins with `[sandcell: ` is said of the run, and nothing that the code printed does.
        """
        return tell(self, max_chars)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, JSON-safe; `from_dict` takes it back."""
        return {**fields_of(self), "ok": self.ok, "timed_out": self.timed_out}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> RunResult:
        """Return the result that `to_dict` gave `given` of, also by way of JSON; what is not known here is left out."""
        raised = given.get("error")
        parts = {
            "end": _made(End, given["end"]),
            "logs": [_made(LogEntry, entry) for entry in given.get("logs", ())],
            "results": [Result.from_dict(result) for result in given.get("results", ())],
            "error": _made(ExecutionError, raised) if raised else None,
            "tool_calls": [_call_of(call) for call in given.get("tool_calls", ())],
            "truncated": {name: _made(Truncation, cut) for name, cut in given.get("truncated", {}).items()},
            "order": [Part(kind, end) for kind, end in given.get("order", ())],
        }
        return _made(cls, {**given, **parts})

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Show a run in a notebook as the run itself looked, without giving code of the sandbox the page."""
        from sandcell.shown import bundle_of  # who shows nothing does not pay for it

        return bundle_of(
            self.for_model(), self.results, before=self.stdout + self.stderr, after=self._error_text()
        )

    def _error_text(self) -> str:
        return "" if self.error is None else "\n".join(self.error.traceback) or str(self.error)

    def __repr__(self) -> str:
        said = f"error={str(self.error)[:80]!r}" if self.error else f"text={(self.text or '')[:80]!r}"
        return f"RunResult(id={self.id!r}, ok={self.ok}, {said})"


class RunBuilder:
    """Folds the events of one run, in order, into its result. `max_text` bounds each text in characters, `max_shown` all
    results together: what user code shows must not choose the memory of its caller."""

    def __init__(
        self,
        run_id: str,
        context_id: str,
        origin: str,
        *,
        max_text: int = 8 * 2**20,
        max_shown: int = 512 * 2**20,
    ) -> None:
        self._id = run_id
        self._context_id = context_id
        self._origin = origin
        self._max_text = max_text
        self._max_shown = max_shown
        self._shown = 0
        self._latest: Result | None = None
        self._started: Started | None = None
        self._ended: Ended | None = None
        self._clear_next = False
        self._results: list[Result] = []
        self._logs = _Logs(max_text)
        self._truncated: dict[str, Truncation] = {}
        self._tool_calls: dict[str, ToolCall] = {}
        self._screens = self._blank()
        self._order = Order()
        self.error: ExecutionError | None = None

    def add(self, event: Event) -> None:
        """Take the next event.

        Raises:
            SandcellError: it is the news that the run could not be made.
        """
        match event:
            case Stdout():
                self._print("stdout", event)
            case Stderr():
                self._print("stderr", event)
            case ResultAdded():
                self._clear_if_asked()
                self._show(event)
            case ResultUpdated():
                self._update(event)
            case OutputCleared():
                self._clear_next = event.wait
                if not event.wait:
                    self._clear()
            case ErrorRaised():
                self._clear_if_asked()
                self.error = ExecutionError(
                    name=event.name, value=event.value, traceback=event.traceback, line=event.line
                )
            case Started():
                self._started = event
                self._context_id = event.context_id or self._context_id
            case Ended():
                self._ended = event
            case Truncated():
                self._note(event.stream, event.bytes, event.lines, event.total_bytes, event.path)
            case Gap():
                self._note(event.stream or "output", event.bytes, event.lines or 0, event.bytes, None)
            case ToolCalled():
                self._note_call(event)
            case Failed():
                raise _error_of(event)
            case _:
                pass  # a question for input, which is no part of the result, or news of a later version

    def last_result(self, event: Event) -> Result | None:
        """Return the result that `event`, the last one added, has brought or changed; None where it has none."""
        match event:
            case ResultAdded():
                return self._latest
            case ResultUpdated():
                return next((r for r in reversed(self._results) if r.display_id == event.display_id), None)
            case _:
                return None

    def result(self) -> RunResult:
        """Return the result.

        Raises:
            InternalError: no Ended was seen, so nobody may say that the run is over.
        """
        if self._ended is None:
            raise error(ErrorCode.INTERNAL, f"the events of the run {self._id} have no end")
        stdout, stderr = self._text_of("stdout"), self._text_of("stderr")
        main = next((result for result in reversed(self._results) if result.is_main), None)
        started = self._started
        return RunResult(
            id=self._id,
            context_id=self._context_id,
            origin=self._origin,
            end=self._ended.end,
            text=main.text if main else None,
            value=self._ended.value,
            stdout=stdout,
            stderr=stderr,
            logs=self._logs.entries(),
            results=list(self._results),
            error=self.error,
            execution_count=self._ended.execution_count,
            started_at=self._ended.time - self._ended.duration if started else None,
            duration=self._ended.duration,
            usage=self._ended.usage,
            fresh_state=started.fresh_state if started else None,
            truncated=dict(self._truncated),
            tool_calls=list(self._tool_calls.values()),
            order=self._order.parts(self._screens),
        )

    def _print(self, stream: Stream, event: Stdout | Stderr) -> None:
        self._clear_if_asked()
        self._order.note_text(stream, self._screens)
        self._screens[stream].write(event.text)
        self._logs.add(LogEntry(stream=stream, text=event.text, time=event.time, late=event.late))

    def _update(self, event: ResultUpdated) -> None:
        for at, result in enumerate(self._results):
            if event.display_id is None or result.display_id != event.display_id:
                continue
            if self._has_room(_cost_of(event.data) - _cost_of(result.mime)):
                self._results[at] = Result.of_display(
                    event.data, event.metadata, display_id=event.display_id, is_main=result.is_main
                )

    def _note_call(self, event: ToolCalled) -> None:
        known = self._tool_calls.get(event.id)
        raised = event.error
        self._tool_calls[event.id] = ToolCall(
            id=event.id,
            name=event.name,
            arguments=event.arguments if known is None else known.arguments,
            state=event.state,
            result=event.result,
            error=None if raised is None else ExecutionError(name=raised["name"], value=raised["message"]),
            duration=event.duration,
        )

    def _show(self, event: ResultAdded) -> None:
        self._latest = _result_of(event) if self._has_room(_cost_of(event.data)) else None
        if self._latest is not None:
            self._order.note_result(len(self._results), self._screens)
            self._results.append(self._latest)

    def _has_room(self, size: int) -> bool:
        """Take room for something shown; whether there is any is told in the result."""
        if self._shown + size > self._max_shown:
            self._note("results", size, 0, size, None)
            return False
        self._shown += size
        return True

    def _clear_if_asked(self) -> None:
        if self._clear_next:
            self._clear_next = False
            self._clear()

    def _clear(self) -> None:
        self._screens = self._blank()
        self._order = Order()
        self._results.clear()
        self._shown = 0
        self.error = None

    def _blank(self) -> dict[Stream, Screen]:
        return {"stdout": Screen(self._max_text), "stderr": Screen(self._max_text)}

    def _text_of(self, stream: Stream) -> str:
        text, cut = self._screens[stream].finish()
        if cut is not None:
            self._note(stream, cut.bytes, cut.lines, cut.total_bytes, None)
        return text

    def _note(self, name: str, size: int, lines: int, total: int, path: str | None) -> None:
        before = self._truncated.get(name, Truncation(bytes=0, lines=0, total_bytes=0))
        self._truncated[name] = Truncation(
            bytes=before.bytes + size,
            lines=before.lines + lines,
            total_bytes=before.total_bytes + total,
            path=path or before.path,
        )


def _cost_of(data: Mapping[str, Any]) -> int:
    """Return what a bundle takes in memory, about; what is JSON takes several times what it is as text."""
    parts = data.values()
    return _RESULT_COST + sum(
        len(p) if isinstance(p, str) else 4 * len(msgspec.json.encode(p)) for p in parts
    )


class _Logs:
    """The first and the last entries, about `limit` characters in all."""

    def __init__(self, limit: int) -> None:
        self._head: list[LogEntry] = []
        self._head_left = limit // 2
        self._tail: deque[LogEntry] = deque()
        self._tail_left = limit // 2

    def add(self, entry: LogEntry) -> None:
        cost = len(entry.text) + 100
        if self._head_left > 0:
            self._head_left -= cost
            self._head.append(entry)
            return
        self._tail.append(entry)
        self._tail_left -= cost
        while self._tail_left < 0 and len(self._tail) > 1:
            self._tail_left += len(self._tail.popleft().text) + 100

    def entries(self) -> list[LogEntry]:
        return [*self._head, *self._tail]


def _result_of(event: ResultAdded) -> Result:
    return Result.of_display(event.data, event.metadata, display_id=event.display_id, is_main=event.is_main)


def _error_of(event: Failed) -> Exception:
    said: dict[str, Any] = event.error.get("error", {})
    code = said.get("code")
    return error(
        ErrorCode(code) if code in set(ErrorCode) else ErrorCode.INTERNAL,
        str(said.get("message", "the run failed")),
        hint=str(said.get("hint", "")),
        details=said.get("details"),
        retryable=said.get("retryable"),
    )


def _call_of(given: dict[str, Any]) -> ToolCall:
    raised = given.get("error")
    return _made(ToolCall, {**given, "error": _made(ExecutionError, raised) if raised else None})


def _made(kind: type[_Kind], given: dict[str, Any]) -> _Kind:
    """Return a `kind` with those of its fields that are given."""
    known = {each.name for each in fields(cast("Any", kind))}
    return kind(**{name: value for name, value in given.items() if name in known})
