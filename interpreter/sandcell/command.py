"""What a command gave back, and how it is put together from the frames of its journal. Pure."""

from __future__ import annotations

import codecs
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from sandcell_container.end import CommandEnd, End, Truncation
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind
from sandcell_container.headtail import HeadTail

if TYPE_CHECKING:
    from collections.abc import Collection

    from sandcell_container.errors import SandcellError
    from sandcell_container.frames import Entry

__all__ = ["CommandOutput", "ExecResult", "StreamName", "command_failed"]

StreamName = Literal["stdout", "stderr"]

_STREAMS: dict[int, StreamName] = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}
_decode_end = msgspec.json.Decoder(CommandEnd).decode


@dataclass(frozen=True, kw_only=True, repr=False)
class ExecResult:
    """What a command wrote and how it ended. Durations and CPU times in seconds.

    `stdout`, `stderr`: what it wrote as text, bytes that are no UTF-8 as U+FFFD; where the middle was cut, a
    line says so and `truncated` has the facts by stream. `stdout_bytes`, `stderr_bytes`: as they came, without
    that line. `exit_code` is None when a signal ended it (then `signal` is its number). `leftovers` counts the
    processes of its tree that had to be ended. `usage`: cpu_user and cpu_system.
    """

    stdout_bytes: bytes
    stderr_bytes: bytes
    exit_code: int | None
    signal: int | None
    end: End
    duration: float
    leftovers: int = 0
    truncated: dict[str, Truncation] = field(default_factory=dict[str, Truncation])
    usage: dict[str, float] = field(default_factory=dict[str, float])
    cut_at: Mapping[str, int] = field(default_factory=dict[str, int])
    """By stream, how many of its bytes came before what was cut."""

    # Made when they are asked for: who wants bytes does not pay for text.

    @cached_property
    def stdout(self) -> str:
        return self._text("stdout", self.stdout_bytes)

    @cached_property
    def stderr(self) -> str:
        return self._text("stderr", self.stderr_bytes)

    @property
    def ok(self) -> bool:
        return self.end.cause == "exited" and self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        return self.end.cause == "timeout"

    def __repr__(self) -> str:
        how = f"exit_code={self.exit_code}" if self.signal is None else f"signal={self.signal}"
        said = "".join(
            f", {name}={reprlib.repr(text)}"
            for name, text in (("stdout", self.stdout), ("stderr", self.stderr))
            if text
        )
        return f"ExecResult({self.end.cause}, {how}{said})"

    def _text(self, name: StreamName, data: bytes) -> str:
        cut = self.truncated.get(name)
        if cut is None:
            return data.decode(errors="replace")
        at = self.cut_at.get(name, len(data))
        head, tail = data[:at].decode(errors="replace"), data[at:].decode(errors="replace")
        where = f"; the whole is in {cut.path}" if cut.path else ""
        lost = f"{cut.bytes} bytes, {cut.lines} lines" if cut.bytes else "some output"
        note = f"[... {lost} left out{where} ...]"
        gap = "" if not head or head.endswith("\n") else "\n"
        return f"{head}{gap}{note}\n{tail}"


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

    Of what comes uncut it keeps at most `max_output` bytes of each stream: the head and the tail. `heard` are the
    streams that somebody listens to.
    """

    def __init__(self, *, max_output: int, heard: Collection[StreamName] = ("stdout", "stderr")) -> None:
        self._kept: dict[StreamName, _Kept] = {"stdout": _Kept(max_output), "stderr": _Kept(max_output)}
        self._heard = heard
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
        if name is None:
            return None
        self._kept[name].add(entry.data)
        return (name, self._kept[name].text_of(entry.data)) if name in self._heard else None

    def rest(self) -> list[tuple[StreamName, str]]:
        """Return what was held back when the streams ended."""
        found: list[tuple[StreamName, str]] = [(name, self._kept[name].rest()) for name in self._heard]
        return [each for each in found if each[1]]

    @property
    def ended(self) -> bool:
        return self._end is not None

    def result(self) -> ExecResult:
        """Return the result; the command has ended."""
        assert self._end is not None
        end = self._end
        streams = {name: kept.finish(end.truncated.get(name)) for name, kept in self._kept.items()}
        return ExecResult(
            stdout_bytes=streams["stdout"].data,
            stderr_bytes=streams["stderr"].data,
            exit_code=end.exit_code,
            signal=end.signal,
            end=end.end,
            duration=end.duration,
            leftovers=end.leftovers,
            truncated={name: each.cut for name, each in streams.items() if each.cut},
            usage=end.usage,
            cut_at={name: len(each.head) for name, each in streams.items() if each.cut},
        )

    def _gap(self, entry: Entry) -> None:
        facts: dict[str, Any] = msgspec.json.decode(entry.data)
        stream = facts.get("stream")
        for name, kept in self._kept.items():
            if stream in {None, name}:
                kept.lose(facts.get("bytes", 0) if stream else 0, facts.get("lines", 0))


class _Kept:
    """What is kept of one stream: up to a gap that the guest has cut, and behind it."""

    def __init__(self, limit: int) -> None:
        self._before = HeadTail(limit)
        self._behind = HeadTail(limit)
        self._gap: Truncation | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> None:
        (self._before if self._gap is None else self._behind).feed(data)

    def text_of(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def rest(self) -> str:
        return self._decoder.decode(b"", final=True)

    def lose(self, count: int, lines: int) -> None:
        """The guest left out `count` bytes here, holding `lines` ends of lines."""
        before = self._gap or Truncation(bytes=0, lines=0, total_bytes=0)
        self._gap = Truncation(
            bytes=before.bytes + count, lines=before.lines + lines, total_bytes=before.total_bytes + count
        )

    def finish(self, said: Truncation | None) -> _Stream:
        """Return the stream; `said` is what the guest's last word has of the cut."""
        before, behind = self._before.finish(), self._behind.finish()
        if self._gap is None and not before.is_cut:
            return _Stream(before.head, b"", None)
        if self._gap is None:
            ours = Truncation(
                bytes=before.gap_bytes,
                lines=before.gap_lines,
                total_bytes=before.total_bytes,
                path=None if said is None else said.path,  # a stream is cut here alone
            )
            return _Stream(before.head, before.tail, ours)
        gap = replace(self._gap, total_bytes=self._gap.bytes + before.total_bytes + behind.total_bytes)
        return _Stream(before.head + before.tail, behind.head + behind.tail, said or gap)


class _Stream(NamedTuple):
    head: bytes
    tail: bytes
    cut: Truncation | None

    @property
    def data(self) -> bytes:
        return self.head + self.tail
