"""What a command gave back, and how it is put together from the frames of its journal. Pure."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sandcell_container.end import CommandEnd, End, Truncation
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError
    from sandcell_container.frames import Entry

__all__ = ["CommandOutput", "ExecResult", "StreamName", "command_failed"]

StreamName = Literal["stdout", "stderr"]

_STREAMS: dict[int, StreamName] = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}
_decode_end = msgspec.json.Decoder(CommandEnd).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a command wrote and how it ended. Durations and CPU times in seconds.

    `stdout`, `stderr`: what it wrote as text, bytes that are no UTF-8 as U+FFFD; where the middle was cut, a
    line says so and `truncated` has the facts by stream. `stdout_bytes`, `stderr_bytes`: as they came, without
    that line. `exit_code` is None when a signal ended it (then `signal` is its number). `leftovers` counts the
    processes of its tree that had to be ended. `usage`: cpu_user and cpu_system.
    """

    stdout: str
    stderr: str
    stdout_bytes: bytes
    stderr_bytes: bytes
    exit_code: int | None
    signal: int | None
    end: End
    duration: float
    leftovers: int = 0
    truncated: dict[str, Truncation] = field(default_factory=dict[str, Truncation])
    usage: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def ok(self) -> bool:
        return self.end.cause == "exited" and self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        return self.end.cause == "timeout"


def command_failed(result: ExecResult, shown: str) -> SandcellError:
    """Return the error of `check=True`, with `result` in it."""
    how = f"exit code {result.exit_code}" if result.exit_code is not None else f"signal {result.signal}"
    if result.end.cause != "exited":
        how = f"{result.end.cause}, {how}"
    last = result.stderr.strip().rpartition("\n")[2][:300]
    failed = error(
        ErrorCode.COMMAND_FAILED,
        f"{shown[:200]!r} ended with {how}" + (f": {last}" if last else ""),
        hint="error.result holds its output",
        details={"exit_code": result.exit_code, "signal": result.signal, "cause": result.end.cause},
    )
    failed.result = result  # type: ignore[attr-defined]  # the table gives COMMAND_FAILED the class Failed
    return failed


class CommandOutput:
    """Takes the entries of a command in order and becomes its result.

    Of what comes uncut it keeps at most `max_output` bytes of each stream: the head and the tail.
    """

    def __init__(self, *, max_output: int) -> None:
        self._kept: dict[StreamName, _Kept] = {"stdout": _Kept(max_output), "stderr": _Kept(max_output)}
        self._end: CommandEnd | None = None

    def add(self, entry: Entry) -> tuple[StreamName, str] | None:
        """Take one entry; returns the stream and the text that it adds, for a callback, or None.

        A character whose bytes are not all there yet is held back until they are.
        """
        if entry.kind == Kind.ENDED:
            self._end = _decode_end(entry.data)
            return None
        if entry.kind == Kind.GAP:
            self._gap(entry)
        name = _STREAMS.get(entry.kind)
        return (name, self._kept[name].add(entry.data)) if name else None

    def rest(self) -> list[tuple[StreamName, str]]:
        """Return what was held back when the streams ended."""
        found: list[tuple[StreamName, str]] = [(name, kept.rest()) for name, kept in self._kept.items()]
        return [each for each in found if each[1]]

    @property
    def ended(self) -> bool:
        return self._end is not None

    def result(self) -> ExecResult:
        """Return the result; the command has ended."""
        assert self._end is not None
        end, out, err = self._end, self._kept["stdout"], self._kept["stderr"]
        out.close()
        err.close()
        cut = {name: kept.truncation() for name, kept in self._kept.items()}
        return ExecResult(
            stdout=out.text(end.truncated.get("stdout")),
            stderr=err.text(end.truncated.get("stderr")),
            stdout_bytes=out.bytes(),
            stderr_bytes=err.bytes(),
            exit_code=end.exit_code,
            signal=end.signal,
            end=end.end,
            duration=end.duration,
            leftovers=end.leftovers,
            truncated={name: each for name, each in cut.items() if each} | end.truncated,
            usage=end.usage,
        )

    def _gap(self, entry: Entry) -> None:
        facts: dict[str, Any] = msgspec.json.decode(entry.data)
        stream = facts.get("stream")
        for name, kept in self._kept.items():
            if stream in {None, name}:
                kept.lose(facts.get("bytes", 0) if stream else 0, facts.get("lines", 0))


class _Kept:
    """Head and tail of one stream, and what was lost between them."""

    def __init__(self, limit: int) -> None:
        self._head_limit = self._tail_limit = limit * 45 // 100  # source: CONTRACT, Truncation
        self._whole_limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._head_closed = False
        self._lost_bytes = 0
        self._lost_lines = 0
        self._lost_here = False
        self._dropped = False  # the cut is ours, and not the guest's
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> str:
        if self._head_closed:
            self._tail += data
            self._trim()
        else:
            self._head += data
            self._overflow()
        return self._decoder.decode(data)

    def rest(self) -> str:
        return self._decoder.decode(b"", final=True)

    def close(self) -> None:
        """Bring the tail to its size; it then begins with a line where it can."""
        count = max(len(self._tail) - self._tail_limit, 0)
        if self._dropped:
            line = self._tail.find(b"\n", max(count - 1, 0)) + 1
            self._drop(line if 0 < line < len(self._tail) else _after_code_point(self._tail, count))

    def lose(self, count: int, lines: int) -> None:
        """The guest left out `count` bytes here, holding `lines` line ends."""
        self._head_closed = True
        self._tail_limit = self._whole_limit  # what follows is the tail as the guest has cut it
        self._lost_bytes += count
        self._lost_lines += lines
        self._lost_here = True

    def bytes(self) -> bytes:
        return bytes(self._head + self._tail)

    def text(self, truncation: Truncation | None) -> str:
        if not self._lost_here:
            return self.bytes().decode(errors="replace")
        facts = truncation or self.truncation()
        lost = f"{facts.bytes} bytes, {facts.lines} lines" if facts else "some output"
        where = f"; the whole is in {facts.path}" if facts and facts.path else ""
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        gap = "" if not head or head.endswith("\n") else "\n"
        return f"{head}{gap}[... {lost} left out{where} ...]\n{tail}"

    def truncation(self) -> Truncation | None:
        if not self._lost_here:
            return None
        total = len(self._head) + len(self._tail) + self._lost_bytes
        return Truncation(bytes=self._lost_bytes, lines=self._lost_lines, total_bytes=total)

    def _overflow(self) -> None:
        if len(self._head) > self._whole_limit:
            at = _cut_at(self._head, self._head_limit)
            self._tail += self._head[at:]
            del self._head[at:]
            self._head_closed = True
            self._trim()

    def _trim(self) -> None:
        # Only when twice the room is taken, so that moving the rest down costs little for each byte.
        if len(self._tail) > 2 * self._tail_limit:
            self._drop(len(self._tail) - self._tail_limit)

    def _drop(self, count: int) -> None:
        self._lost_bytes += count
        self._lost_lines += self._tail.count(b"\n", 0, count)
        self._lost_here = self._dropped = True
        del self._tail[:count]


def _cut_at(data: bytearray, limit: int) -> int:
    """Where to cut `data` within `limit`: after a line, else between code points."""
    line = data.rfind(b"\n", 0, limit)
    if line >= 0:
        return line + 1
    while limit > 0 and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return limit


def _after_code_point(data: bytearray, at: int) -> int:
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at
