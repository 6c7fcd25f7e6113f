"""stdout and stderr of a kernel: ipykernel's streams, made whole, bounded and quick.

What differs from stock: bytes that come through the descriptors (child processes, C code) are decoded across
reads and are all taken in before a run's reply; one message never carries more than a piece; a writer that is
far ahead of the reader waits; a flush of nothing costs nothing; text that no JSON can carry is escaped.
"""

from __future__ import annotations

import codecs
import os
import select
import threading
from typing import TYPE_CHECKING, Any, cast

from ipykernel.iostream import OutStream

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["KernelStream"]

PIECE = 256 * 2**10  # characters in one message, more only where one flush would make too many of them
_PIECES = 500  # the sending thread queues to itself, and would wait for itself after two thousand
HELD = 8 * 2**20  # characters that wait to be sent, before their writer waits
_PIPE_SIZE = 64 * 2**10  # one read takes all that a pipe of the default size holds


class KernelStream(OutStream):
    """One of `sys.stdout` and `sys.stderr` in the kernel process, and the descriptor behind it."""

    flush_interval = 0.05
    flush_timeout = 60

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._taking = threading.RLock()  # a signal handler that prints may interrupt its holder
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = 0
        super().__init__(*args, **kwargs)

    def write(self, string: str) -> int:
        super().write(string)
        self._held += len(string)
        if self._held > HELD:
            self._send()
        return len(string)

    def flush(self) -> None:
        """Send what was written, also by child processes so far, before anything that is published later."""
        if self._is_master_process():
            self._take()
        self._send()

    def _send(self) -> None:
        # What the IO thread has already taken out of the buffers is ahead of anything published from now on,
        # so there is nothing to wait for when they are empty. Six round trips a cell are saved by that.
        if self._buffers:
            super().flush()

    def _flush_buffers(self) -> Generator[tuple[dict[str, Any], str]]:
        self._held = 0
        waiting = cast("Generator[tuple[dict[str, Any], str]]", super()._flush_buffers())
        for parent, text in waiting:
            safe = _encodable(text)
            size = max(PIECE, len(safe) // _PIECES)
            for start in range(0, len(safe), size):
                yield parent, safe[start : start + size]

    def _watch_pipe_fd(self) -> None:
        """Body of the thread that reads the descriptor; stock would also copy it to the original one."""
        descriptor = self._fid
        while descriptor is not None and select.select([descriptor], [], []) and self._should_watch:
            self._take()

    def _take(self) -> None:
        """Move what waits in the pipe into the stream, in the name of the run that is on now."""
        descriptor = self._fid
        with self._taking:
            if descriptor is not None and select.select([descriptor], [], [], 0)[0]:
                text = self._decode(os.read(descriptor, _PIPE_SIZE))
                if text:
                    self.write(text)


def _encodable(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates
        return text.encode("utf-8", "backslashreplace").decode()
    return text
