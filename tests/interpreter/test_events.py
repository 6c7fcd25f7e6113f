"""Events to entries of a journal and back."""

from __future__ import annotations

import json

import msgspec
import pytest

from sandcell.events import (
    Ended,
    ErrorRaised,
    Event,
    Failed,
    Gap,
    InputRequested,
    OutputCleared,
    ResultAdded,
    ResultUpdated,
    Started,
    Stderr,
    Stdout,
    ToolCalled,
    Truncated,
    encode,
    event_of,
)
from sandcell_container.end import End
from sandcell_container.frames import LATE, Entry, Kind

EVENTS: list[Event] = [
    Started(execution_count=3, context_id="python", fresh_state="the run before it lost it"),
    Stdout(text="ünï 😀\n"),
    Stderr(text="\x1b[31mred", late=True),
    ResultAdded(data={"text/plain": "2"}, metadata={"a": 1}, display_id="d", is_main=True),
    ResultUpdated(data={"text/plain": "3"}, display_id="d"),
    OutputCleared(wait=True),
    InputRequested(prompt="name? ", password=True),
    ErrorRaised(name="ValueError", value="no", traceback=["a", "b"], line=2),
    ToolCalled(id="cal_1", name="fetch", state="called", arguments={"n": 2**80}),
    ToolCalled(id="cal_1", name="fetch", state="failed", error={"name": "E", "message": "m"}, duration=0.5),
    Truncated(stream="image/png", bytes=5, lines=0, total_bytes=5),
    Gap(entries=2, bytes=70),
    Gap(entries=0, bytes=70, stream="stdout", lines=3),
    Ended(end=End(cause="exited", code=0, at=1.5), execution_count=3, duration=0.25, value={"a": [1, None]}),
    Failed(error={"error": {"code": "BUSY"}}),
]


def entry_of(event: Event, *, seq: int = 7, offset: int = 90, time: float = 12.5) -> Entry:
    kind, flags, data = encode(event)
    return Entry(seq, offset, kind, flags, time, data)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_journal(event: Event) -> None:
    back = event_of(entry_of(event), "epoch")
    assert back is not None
    assert (back.cursor, back.time) == ("epoch.7.90", 12.5)
    expected = event.to_dict() | {"cursor": "epoch.7.90", "time": 12.5}
    assert back.to_dict() == expected
    assert type(back) is type(event)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_as_a_dict_is_json(event: Event) -> None:
    assert json.loads(json.dumps(event.to_dict())) == event.to_dict()
    assert event.to_dict()["type"] == Kind(encode(event).kind).name.lower()


def test_output_travels_as_its_bytes() -> None:
    assert encode(Stdout(text="é")).data == b"\xc3\xa9"
    assert encode(Stdout(text="é", late=True)).flags == LATE


def test_the_arguments_of_a_call_are_what_code_gave_even_half_a_character() -> None:
    event = ToolCalled(id="cal_1", name="fetch", state="called", arguments=msgspec.Raw(b'{"a":"\\ud800"}'))
    back = event_of(entry_of(event), "epoch")
    assert isinstance(back, ToolCalled)
    assert back.arguments == {"a": "\ud800"}


def test_no_value_is_no_field() -> None:
    body = json.loads(encode(Ended(end=End(cause="exited"))).data)
    assert "value" not in body


def test_fields_of_a_newer_guest_are_ignored() -> None:
    started = Entry(1, 1, Kind.STARTED, 0, 0.0, b'{"execution_count": 1, "context_id": "c", "mood": "good"}')
    ended = Entry(2, 2, Kind.ENDED, 0, 0.0, b'{"end": {"cause": "exited", "mood": 1}}')
    assert isinstance(event_of(started, "e"), Started)
    assert isinstance(event_of(ended, "e"), Ended)


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.MESSAGE, 200])
def test_what_is_no_event_of_a_run_is_none(kind: int) -> None:
    assert event_of(Entry(1, 1, kind, 0, 0.0, b"{}"), "e") is None


def test_broken_utf8_is_read_as_far_as_it_goes() -> None:
    event = event_of(Entry(1, 1, Kind.STDOUT, 0, 0.0, b"a\xffb"), "e")
    assert isinstance(event, Stdout)
    assert event.text == "a\ufffdb"
