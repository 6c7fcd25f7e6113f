"""Results over their bound: whole in files, and everything in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell.content import ResultLimits
from sandcell.events import Ended, Event, ResultAdded, ResultUpdated, Stdout, Truncated
from sandcell.overflow import Overflow, ResultFiles
from sandcell.result import Handle, Result
from sandcell_container.end import End

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMITS = ResultLimits(text=1000, image=2000)
ENDED = Ended(end=End(cause="exited", code=0))


class Store:
    """Makes files when it is told to. `works`: else it makes none."""

    def __init__(self, *, works: bool = True) -> None:
        self.works = works
        self.asked: list[tuple[str, Callable[[int | None], None]]] = []
        self.removed: list[str] = []

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        self.asked.append((path, callback))

    def remove_soon(self, path: str) -> None:
        self.removed.append(path)
        os.unlink(path)

    def go_on(self) -> None:
        asked, self.asked = self.asked, []
        for path, callback in asked:
            callback(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) if self.works else None)


class Room:
    def __init__(self, folder: Path, *, works: bool = True) -> None:
        self.store = Store(works=works)
        self.events: list[Event] = []
        self.overflow = Overflow(self.events.append, LIMITS, ResultFiles(str(folder), self.store))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def shown(event: Event) -> Result:
    assert isinstance(event, ResultAdded | ResultUpdated)
    return Result.of_display(event.data, event.metadata)


def test_what_fits_passes_at_once(room: Room) -> None:
    events = [ResultAdded(data={"text/plain": "é" * 500}), Stdout(text="x" * 5000), ENDED]
    for event in events:
        room.overflow.take(event)
    assert room.events == events


@pytest.mark.parametrize(
    ("mime", "part", "whole"),
    [
        ("text/plain", "é" * 501, "é".encode() * 501),
        ("application/json", {"a": "x" * 1000}, b'{"a": "' + b"x" * 1000 + b'"}'),
        ("image/png", "iVBO" * 501, bytes.fromhex("89504e") * 501),
        ("image/png", "no base64!" * 201, b"no base64!" * 201),
    ],
    ids=["text", "json", "image", "no image"],
)
def test_what_does_not_is_whole_in_a_file(room: Room, mime: str, part: object, whole: bytes) -> None:
    room.overflow.take(
        ResultAdded(data={mime: part, "a/b": "kept"}, metadata={"m": 1}, display_id="d", is_main=True)
    )
    assert room.events == []
    room.store.go_on()
    added, cut = room.events
    assert isinstance(added, ResultAdded)
    assert (added.display_id, added.is_main, added.data["a/b"], added.metadata["m"]) == ("d", True, "kept", 1)
    handle = shown(added).spilled
    assert isinstance(handle, Handle)
    assert (handle.size, handle.mime) == (len(whole), mime)
    assert cut == Truncated(stream=mime, bytes=len(whole), total_bytes=len(whole), path=handle.path)
    with open(handle.path, "rb") as file:
        assert file.read() == whole
    assert handle.path in added.data["text/plain"]
    assert mime == "text/plain" or mime not in added.data


def test_all_that_comes_behind_it_waits(room: Room) -> None:
    large = ResultUpdated(data={"text/html": "x" * 1001, "image/png": "A" * 2004}, display_id="d", late=True)
    for event in (Stdout(text="1"), large, Stdout(text="2"), large, ENDED):
        room.overflow.take(event)
    assert room.events == [Stdout(text="1")]
    room.store.go_on()
    assert [type(event) for event in room.events[1:]] == [ResultUpdated, Truncated, Truncated, Stdout]
    assert all(event.late for event in room.events[1:4])
    room.store.go_on()
    assert [type(event) for event in room.events[5:]] == [ResultUpdated, Truncated, Truncated, Ended]


@pytest.mark.parametrize("files", [True, False])
def test_where_there_is_no_file_that_is_said(tmp_path: Path, *, files: bool) -> None:
    room = Room(tmp_path, works=False)
    overflow = room.overflow if files else Overflow(room.events.append, LIMITS, None)
    overflow.take(ResultAdded(data={"text/html": "x" * 1001}))
    room.store.go_on()
    added, cut = room.events
    assert cut == Truncated(stream="text/html", bytes=1001, total_bytes=1001)
    assert shown(added).spilled is None
    assert shown(added).text == "[text/html of 1001 bytes is too large to show: no file could be made]"


def test_what_waits_is_bounded_and_a_file_that_comes_too_late_is_removed(room: Room) -> None:
    room.overflow.take(ResultAdded(data={"text/html": "x" * 1001}))
    for _ in range(9):
        room.overflow.take(Stdout(text="x" * 2**20))
    assert len(room.events) >= 9
    assert shown(room.events[0]).spilled is None
    room.store.go_on()
    assert len(room.store.removed) == 1
    room.overflow.take(ENDED)
    assert room.events[-1] == ENDED
