"""What a guest wants to be known of it after its end: a file of its engine's that user code cannot reach, a JSON line each.

    {"start": n}               its engine starts it for the n-th time
    {"made": [kind, id]}       what clients know by an id, and a stop of the sandbox ends
    {"lost": [kind, id]}       the same of an earlier start
    {"env": {name: value}}     what was changed of the environment of user code, null for what was taken away
    {"port": [port, token, name]}   an exposure; without a token there is none any more
    {"end": End}               why the guest ends this start
    {"exit": [who, status]}    from outside: the wait status of the guest or of its spawner

A line that was cut by a death is no line. The bounds: as many ids and bytes as below. Runs are many, and push out no ids but
those of older ones.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sandcell_container.end import End, end_of_status
from sandcell_container.record_file import open_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Kind", "Memo", "note_exit", "note_start", "read_end"]

Kind = Literal["context", "session", "process", "terminal", "run", "front"]

_MOST_IDS = 10_000
_MOST_BYTES = 4 * 2**20
_LAST = 64 * 2**10  # bytes at the end of the file that hold how it ended


class _Ids:
    """By kind and id, the newest last: those of this start, and those of earlier ones."""

    def __init__(self) -> None:
        self.made = OrderedDict[tuple[str, str], None]()
        self.lost = OrderedDict[tuple[str, str], None]()


class Memo:
    """The guest's side. Without a file (`fd` None) it knows what this start has noted, and nothing outlives it."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._runs, self._others = _Ids(), _Ids()
        self._size = 0
        self.env = dict[str, str | None]()
        """What was changed of the environment of user code, in this start and before."""
        self.exposures = dict[int, tuple[str, str | None]]()
        """Ports that are exposed, each with its token and its name, since this start or before."""
        for line in _lines(b"" if fd is None else os.pread(fd, _MOST_BYTES, 0)):
            match line:
                case {"made": [str(kind), str(name)]} | {"lost": [str(kind), str(name)]}:
                    self._ids(kind).lost[kind, name] = None
                case {"env": dict()}:
                    self.env |= line["env"]
                case {"port": [int(port), str() | None as token, str() | None as name]}:
                    self._keep_exposure(port, token, name)
                case _:
                    pass  # how the start before came to its end
        self._rewrite()

    def note_made(self, kind: Kind, name: str) -> None:
        """Remember that there is one of this id, until the sandbox stops."""
        ids = self._ids(kind)
        ids.lost.pop((kind, name), None)
        ids.made[kind, name] = None
        self._write({"made": [kind, name]})
        while len(ids.made) > _MOST_IDS:
            ids.made.popitem(last=False)

    def is_lost(self, kind: Kind, name: str) -> bool:
        """Whether an earlier start had one of this id, and this one has not."""
        return (kind, name) in self._ids(kind).lost

    def has_lost(self, kind: Kind) -> bool:
        """Whether an earlier start had any of that kind which this one has not."""
        return any(lost == kind for lost, _ in self._ids(kind).lost)

    def note_env(self, changes: Mapping[str, str | None]) -> None:
        """Remember changes of the environment of user code, over a stop."""
        self.env |= changes
        self._write({"env": dict(changes)})

    def note_exposure(self, port: int, token: str | None, name: str | None) -> None:
        """Remember an exposure over a stop; without a token, that it is over."""
        self._keep_exposure(port, token, name)
        self._write({"port": [port, token, name]})

    def note_end(self, end: End) -> None:
        """Say why the sandbox ends; the last thing that is said."""
        self._write({"end": asdict(end)})

    def _ids(self, kind: str) -> _Ids:
        return self._runs if kind == "run" else self._others

    def _keep_exposure(self, port: int, token: str | None, name: str | None) -> None:
        if token is None:
            self.exposures.pop(port, None)
        else:
            self.exposures[port] = (token, name)

    def _write(self, line: dict[str, Any]) -> None:
        if self._fd is None:
            return
        data = _encode(line)
        self._size += len(data)
        if self._size > _MOST_BYTES:
            self._rewrite()
        os.write(self._fd, data)

    def _rewrite(self) -> None:
        if self._fd is None:
            return
        lines: list[dict[str, Any]] = []
        for ids in (self._runs, self._others):
            while len(ids.lost) > _MOST_IDS:
                ids.lost.popitem(last=False)
            lines += [{"lost": list(each)} for each in ids.lost]
            lines += [{"made": list(each)} for each in ids.made]
        lines += [{"env": self.env}] if self.env else []
        lines += [{"port": [port, *exposure]} for port, exposure in self.exposures.items()]
        data = b"".join(map(_encode, lines))
        os.ftruncate(self._fd, 0)
        os.write(self._fd, data)
        self._size = len(data)


def note_start(fd: int, number: int) -> None:
    """Write down that what was said of earlier ends is over."""
    os.write(fd, _encode({"start": number}))


def note_exit(fd: int, who: Literal["guest", "spawner"], status: int) -> None:
    """Write down, from outside, with which wait status one of the two ended."""
    os.write(fd, _encode({"exit": [who, status]}))


def read_end(path: Path) -> End | None:
    """Return how the last start came to its end: the guest's word, else that of the first death; None where nobody said.

    A guest that lost its spawner says no more than that, and its spawner's own end is the cause.
    """
    try:
        with open(open_plain(path), "rb") as file:
            found = os.fstat(file.fileno())
            at = found.st_mtime
            file.seek(max(0, found.st_size - _LAST))
            lines = list(_lines(file.read()))
    except OSError:
        return None
    said, exits = None, list[tuple[str, int]]()
    for line in lines:
        match line:
            case {"start": _}:
                said, exits = None, []
            case {"end": {"cause": str(_)} as fields}:
                said = _end_of(fields)
            case {"exit": [str(who), int(status)]}:
                exits.append((who, status))
            case _:
                pass
    if said is not None and said.cause != "lost":
        return said
    statuses = [status for who, status in exits if said is None or who == "spawner"]
    return end_of_status(_unwrapped(statuses[0]), at=at) if statuses else said


def _unwrapped(status: int) -> int:
    """Return the wait status that a launcher tells as its own exit code, as shells do."""
    code = os.waitstatus_to_exitcode(status)
    return code - 128 if code > 128 else status


def _end_of(fields: dict[str, Any]) -> End | None:
    try:
        return msgspec.convert(fields, End)
    except msgspec.ValidationError:
        return None


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    for text in data.split(b"\n"):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
