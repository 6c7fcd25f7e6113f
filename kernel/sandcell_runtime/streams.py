"""`sys.stdout` and `sys.stderr` of a kernel: the pipes of the run that writes, or ipykernel's messages where it has none.

What differs from stock for messages: one never carries more than a piece; a writer that is far ahead of the reader
waits; a flush of nothing costs nothing; text that no JSON can carry is escaped.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, cast

from ipykernel.iostream import OutStream

from sandcell_runtime.pipes import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Generator

    from _typeshed import ReadableBuffer

    from sandcell_runtime.outlet import Outlet
    from sandcell_runtime.pipes import RunPipes, Stream

__all__ = ["KernelStream"]

PIECE = 256 * 2**10  # characters in one message, more only where one flush would make too many of them
_PIECES = 500  # the sending thread queues to itself, and would wait for itself after two thousand
HELD = 8 * 2**20  # characters that wait to be sent, before their writer waits


class KernelStream(OutStream):
    """One of the two streams. Until `connect` everything goes into messages."""

    flush_interval = 0.05
    flush_timeout = 60

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._held = 0
        self._outlet: Outlet | None = None
        super().__init__(*args, **kwargs)
        self._stream: Stream = STDERR if self.name == "stderr" else STDOUT

    def connect(self, outlet: Outlet) -> None:
        """Write into the pipes that `outlet` knows of."""
        self._outlet = outlet

    def fileno(self) -> int:
        """Return the descriptor that stays the same while runs come and go: a handler may keep it."""
        return self._stream + 1

    @property
    def buffer(self) -> StreamBytes:
        """The stream for bytes, which plain Python has and stock has not."""
        return StreamBytes(self)

    def write(self, string: str) -> int:
        pipes = self._pipes
        if pipes is None or not isinstance(string, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self._write_message(string)
        if string:
            pipes.write(self._stream, string)
        return len(string)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are, into messages as the text that they are."""
        pipes = self._pipes
        if pipes is None:
            self._write_message(data.decode("utf-8", "replace"))
        else:
            pipes.write_bytes(self._stream, data)

    def flush(self) -> None:
        """Send what was written into messages, before anything that is published later."""
        # What the IO thread has already taken out of the buffers is ahead of anything published from now on,
        # so there is nothing to wait for when they are empty. Six round trips a cell are saved by that.
        if self._buffers:
            super().flush()

    @property
    def _pipes(self) -> RunPipes | None:
        # Whoever registered a hook wants to see messages.
        return None if self._outlet is None or self._hooks else self._outlet.pipes

    def _write_message(self, string: str) -> int:
        super().write(string)
        self._held += len(string)
        if self._held > HELD:
            self.flush()
        return len(string)

    def _flush_buffers(self) -> Generator[tuple[dict[str, Any], str]]:
        self._held = 0
        waiting = cast("Generator[tuple[dict[str, Any], str]]", super()._flush_buffers())
        for parent, text in waiting:
            safe = _encodable(text)
            size = max(PIECE, len(safe) // _PIECES)
            for start in range(0, len(safe), size):
                yield parent, safe[start : start + size]


class StreamBytes(io.RawIOBase):
    """Takes bytes for a stream. Closing one closes nothing else."""

    def __init__(self, stream: KernelStream) -> None:
        super().__init__()
        self._stream = stream

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        written = bytes(data)
        self._stream.write_bytes(written)
        return len(written)


def _encodable(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates
        return text.encode("utf-8", "backslashreplace").decode()
    return text
