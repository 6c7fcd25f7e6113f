"""What happens in a run, as typed events, and as entries of its journal. Known to the guest and to its clients.

Source of the payloads: docs/protocol.md, "Journal frames".
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import msgspec

from sandcell.api import ToolState
from sandcell_container.end import End
from sandcell_container.frames import LATE, Cursor, Entry, Kind

__all__ = [
    "Encoded",
    "Ended",
    "ErrorRaised",
    "Event",
    "Failed",
    "Gap",
    "InputRequested",
    "OutputCleared",
    "ResultAdded",
    "ResultUpdated",
    "Started",
    "StatusChanged",
    "Stderr",
    "Stdout",
    "ToolCalled",
    "Truncated",
    "encode",
    "event_of",
    "status_of",
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `cursor` is the place after it in the journal, `time` seconds since the epoch (UTC);
    both are empty until the journal has taken it. `late`: it came after the end of the run that caused it."""

    KIND: ClassVar[Kind]

    cursor: str = ""
    time: float = 0.0
    late: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-safe, with its kind in lower case as `type`."""
        return {"type": self.KIND.name.lower(), **msgspec.to_builtins(self)}


class Started(Event, frozen=True, kw_only=True):
    """The code began to run. `fresh_state` says why this run finds no earlier state, where a run before it lost it."""

    KIND: ClassVar[Kind] = Kind.STARTED

    execution_count: int | None = None
    context_id: str = ""
    fresh_state: str | None = None


class Stdout(Event, frozen=True, kw_only=True):
    KIND: ClassVar[Kind] = Kind.STDOUT

    text: str


class Stderr(Event, frozen=True, kw_only=True):
    KIND: ClassVar[Kind] = Kind.STDERR

    text: str


class ResultAdded(Event, frozen=True, kw_only=True):
    """Something was displayed. `data` by MIME type as Jupyter has it (images are base64 text); `is_main`: it is the
    value of the last expression."""

    KIND: ClassVar[Kind] = Kind.RESULT_ADDED

    data: dict[str, Any]
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    display_id: str | None = None
    is_main: bool = False


class ResultUpdated(Event, frozen=True, kw_only=True):
    """Every display with `display_id` shows this now."""

    KIND: ClassVar[Kind] = Kind.RESULT_UPDATED

    data: dict[str, Any]
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    display_id: str | None = None


class OutputCleared(Event, frozen=True, kw_only=True):
    """All output so far is void: now, or with `wait` when the next output comes."""

    KIND: ClassVar[Kind] = Kind.OUTPUT_CLEARED

    wait: bool = False


class InputRequested(Event, frozen=True, kw_only=True):
    """The code waits for a line of input."""

    KIND: ClassVar[Kind] = Kind.INPUT_REQUESTED

    prompt: str = ""
    password: bool = False


class ErrorRaised(Event, frozen=True, kw_only=True):
    """The code ended in an exception, or was ended. `line` of the code, where the traceback tells."""

    KIND: ClassVar[Kind] = Kind.ERROR_RAISED

    name: str
    value: str = ""
    traceback: list[str] = msgspec.field(default_factory=list[str])
    line: int | None = None


class ToolCalled(Event, frozen=True, kw_only=True):
    """The code called a host tool, and again when that call is over. `state` is "called" first, then "done" with a `result`,
    "failed" with an `error` (`name`, `message`), or "abandoned": nobody waited for its answer any more, or nobody
    gave one. The second has no `arguments`; `duration` in seconds, and `timeout` is what the call may take."""

    KIND: ClassVar[Kind] = Kind.TOOL_CALLED

    id: str
    name: str
    state: ToolState
    arguments: Any = None
    result: Any = None
    error: dict[str, str] | None = None
    duration: float = 0.0
    timeout: float = 0.0


class Truncated(Event, frozen=True, kw_only=True):
    """`bytes` of the `total_bytes` of a stream, or of a result of a MIME type, were left out."""

    KIND: ClassVar[Kind] = Kind.TRUNCATED

    stream: str
    bytes: int = 0
    lines: int = 0
    total_bytes: int = 0
    path: str | None = None


class Gap(Event, frozen=True, kw_only=True):
    """Entries that the journal no longer has, or that never were in it where `stream` was cut on purpose."""

    KIND: ClassVar[Kind] = Kind.GAP

    entries: int = 0
    bytes: int = 0
    stream: str | None = None
    lines: int | None = None


class Ended(Event, frozen=True, kw_only=True):
    """The run is over. `duration` in seconds of running; `value` is the last value where it is JSON-safe."""

    KIND: ClassVar[Kind] = Kind.ENDED

    end: End
    execution_count: int | None = None
    duration: float = 0.0
    usage: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    value: Any = None


class Failed(Event, frozen=True, kw_only=True):
    """The run could not be made: nothing ran, and nothing comes after. `error` is an error body of the interface."""

    KIND: ClassVar[Kind] = Kind.ERROR

    error: dict[str, Any]


class StatusChanged(Event, frozen=True, kw_only=True):
    """What becomes of the sandbox: "running", or "stopping" for a `reason`, at the moment `at` (seconds since the epoch)
    unless something holds it until then; or "refused", a host that it tried to reach and may not, as `reason` says."""

    KIND: ClassVar[Kind] = Kind.STATUS

    status: str
    reason: str | None = None
    at: float | None = None


class Encoded(NamedTuple):
    """What a journal takes of an event."""

    kind: Kind
    flags: int
    data: bytes


_TEXT: dict[int, type[Stdout | Stderr]] = {Kind.STDOUT: Stdout, Kind.STDERR: Stderr}
_JSON: dict[int, type[Event]] = {
    kind.KIND: kind
    for kind in (
        Started,
        ResultAdded,
        ResultUpdated,
        OutputCleared,
        InputRequested,
        ErrorRaised,
        ToolCalled,
        Truncated,
        Gap,
    )
}
_OWN = {
    kind: tuple(name for name in cls.__struct_fields__ if name not in Event.__struct_fields__)
    for kind, cls in _JSON.items()
}
_END_FIELDS = {f.name for f in fields(End)}

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder(dict[str, Any]).decode


def encode(event: Event) -> Encoded:
    """Return the entry of `event`, without what the journal itself adds: place and time."""
    flags = LATE if event.late else 0
    match event:
        case Stdout() | Stderr():
            return Encoded(event.KIND, flags, event.text.encode())
        case Failed():
            return Encoded(event.KIND, flags, _encode_json(event.error))
        case Ended():
            return Encoded(event.KIND, flags, _encode_json(_ended_body(event)))
        case _:
            body = {name: getattr(event, name) for name in _OWN[event.KIND]}
            return Encoded(event.KIND, flags, _encode_json(body))


def event_of(entry: Entry, epoch: str) -> Event | None:
    """Return the event of an entry of an execution's journal; None for a kind that is none of a run's.

    Fields that are not known here are ignored, so a newer guest can say more.
    """
    place: dict[str, Any] = {
        "cursor": str(Cursor(epoch, entry.seq, entry.offset)),
        "time": entry.time,
        "late": bool(entry.flags & LATE),
    }
    text = _TEXT.get(entry.kind)
    if text is not None:
        return text(text=entry.data.decode("utf-8", "replace"), **place)
    if entry.kind == Kind.ENDED:
        return _read_ended(_decode_json(entry.data), place)
    if entry.kind == Kind.ERROR:
        return Failed(error=_decode_json(entry.data), **place)
    kind = _JSON.get(entry.kind)
    if kind is None:
        return None
    # What code gives to a tool may hold half a character, which msgspec refuses.
    body = json.loads(entry.data) if kind is ToolCalled else _decode_json(entry.data)
    return kind(**{name: body[name] for name in _OWN[entry.kind] if name in body}, **place)


def status_of(entry: Entry, epoch: str) -> StatusChanged | None:
    """Return the event of an entry of the sandbox's own journal, None for another kind."""
    if entry.kind != Kind.STATUS:
        return None
    body = _decode_json(entry.data)
    return StatusChanged(
        cursor=str(Cursor(epoch, entry.seq, entry.offset)),
        time=entry.time,
        status=body["status"],
        reason=body.get("reason"),
        at=body.get("at"),
    )


def _ended_body(event: Ended) -> dict[str, Any]:
    body: dict[str, Any] = {
        "end": event.end,
        "execution_count": event.execution_count,
        "duration": event.duration,
        "usage": event.usage,
    }
    return body if event.value is None else {**body, "value": event.value}


def _read_ended(body: dict[str, Any], place: dict[str, Any]) -> Ended:
    known = {name: value for name, value in body["end"].items() if name in _END_FIELDS}
    return Ended(
        end=End(**known),
        execution_count=body.get("execution_count"),
        duration=body.get("duration", 0.0),
        usage=body.get("usage", {}),
        value=body.get("value"),
        **place,
    )
