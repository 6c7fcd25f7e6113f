"""Lines of output as they come, to look for something in them. Pure."""

from __future__ import annotations

import codecs
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandcell_container.end import End
    from sandcell_container.errors import SandcellError
    from sandcell_container.frames import Entry

__all__ = ["LastLines", "Line", "Lines", "ended_first"]

LONGEST_LINE = 64 * 2**10
"""Characters of a line that are looked at; of a longer one that has no end yet, the last so many."""

_STREAMS: dict[int, str] = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}


class Line(NamedTuple):
    """`text` without its end. One that is not finished may come again, with more of it."""

    stream: str
    text: str
    is_whole: bool


class Lines:
    """Takes the entries of a process in order. A line is of one stream; an unfinished one may be a prompt."""

    def __init__(self) -> None:
        self._streams = {kind: _Stream(name) for kind, name in _STREAMS.items()}

    def add(self, entry: Entry) -> Iterator[Line]:
        """Yield the lines that `entry` has ended, and the one that it has begun or gone on with."""
        stream = self._streams.get(entry.kind)
        return stream.add(entry.data) if stream is not None else iter(())


class _Stream:
    def __init__(self, name: str) -> None:
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._open = ""

    def add(self, data: bytes) -> Iterator[Line]:
        *whole, rest = (self._open + self._decode(data)).split("\n")
        self._open = rest[-LONGEST_LINE:]
        for text in whole:
            yield Line(self._name, text.removesuffix("\r")[-LONGEST_LINE:], is_whole=True)
        if self._open:
            yield Line(self._name, self._open, is_whole=False)


class LastLines:
    """Keeps the last lines of what came, for who has to say what it was."""

    def __init__(self, count: int = 10, *, longest: int = 500) -> None:
        self._whole = deque[str](maxlen=count)
        self._open: dict[str, str] = {}
        self._longest = longest

    def add(self, line: Line) -> None:
        if line.is_whole:
            self._open.pop(line.stream, None)
            self._whole.append(line.text[: self._longest])
        else:
            self._open[line.stream] = line.text[: self._longest]

    def lines(self) -> list[str]:
        return [*self._whole, *self._open.values()][-(self._whole.maxlen or 0) :]


def ended_first(process_id: str, before: str, end: End, last: list[str]) -> SandcellError:
    """Return the error of a wait for something that a process had not done when it ended: COMMAND_FAILED, with its end
    and its `last_lines` in the details."""
    how = f"exit code {end.code}" if end.code is not None else f"signal {end.signal}"
    if end.cause not in {"exited", "signaled"}:
        how = f"{end.cause}, {how}" if end.code is not None or end.signal is not None else end.cause
    said = f": {last[-1][:200]}" if last else ""
    return error(
        ErrorCode.COMMAND_FAILED,
        f"the process {process_id} ended with {how} before it {before}{said}",
        hint='error.details["last_lines"] has the last that it wrote',
        details={"exit_code": end.code, "signal": end.signal, "cause": end.cause, "last_lines": last},
    )
