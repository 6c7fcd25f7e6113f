"""The write ends of one run's stdout and stderr, which the guest made and reads at their other end.

What is written here is out of this process at once: it outlives a crash, and stands in one order with what child
processes and C code write. A mark is how a message on iopub keeps its place in that order; see docs/protocol.md.
"""

from __future__ import annotations

import itertools
import os
import select
from select import PIPE_BUF
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["STDERR", "STDOUT", "RunPipes", "Stream"]

Stream = Literal[0, 1]
STDOUT: Stream = 0
STDERR: Stream = 1

_MARK_NUMBER = 8  # bytes


class RunPipes:
    """Output of one run. Its descriptors are closed when nothing here refers to it: no thread, no task, no callback."""

    __slots__ = ("_announced", "_descriptors", "_mark", "_marked", "_numbers", "msg_id")

    def __init__(self, msg_id: str, descriptors: tuple[int, int], *, mark: bytes) -> None:
        self.msg_id = msg_id
        self._descriptors = descriptors
        self._mark = mark
        self._numbers = itertools.count(1)
        self._announced = 0
        self._marked = [0, 0]

    def __del__(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def descriptor(self, stream: Stream) -> int:
        return self._descriptors[stream]

    def take_over(self) -> None:
        """Be descriptors 1 and 2 of this process."""
        for number, descriptor in enumerate(self._descriptors, start=1):
            os.dup2(descriptor, number)

    def write(self, stream: Stream, text: str) -> None:
        """Write `text` as UTF-8; what UTF-8 cannot carry (lone surrogates) is escaped. Waits for a slow reader."""
        self.write_bytes(stream, text.encode("utf-8", "backslashreplace"))

    def write_bytes(self, stream: Stream, data: bytes) -> None:
        number = self._announced
        if number > self._marked[stream]:
            self._marked[stream] = number
            data = self._mark_of(number) + data
        descriptor = self._descriptors[stream]
        if len(data) <= PIPE_BUF:
            _write_whole(descriptor, data)
        else:
            for piece in _pieces(data):
                _write_whole(descriptor, piece)

    def fence(self, *, is_last: bool) -> int:
        """Return the number of the message that is sent next: what is written from now on comes after it.

        `is_last`: little is to come after it, so the mark waits for that. What others write meanwhile may then be
        taken for earlier, which costs less than to mark the end of every run.
        """
        number = next(self._numbers)
        if is_last:
            self._announced = number
        else:
            for stream in (STDOUT, STDERR):
                self._marked[stream] = number
                _write_whole(self._descriptors[stream], self._mark_of(number))
        return number

    def _mark_of(self, number: int) -> bytes:
        return self._mark + number.to_bytes(_MARK_NUMBER, "big")


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write what a pipe takes at once or not at all, so that writers at the same time cannot get into it."""
    while True:
        try:
            os.write(descriptor, data)
        except BlockingIOError:  # a program that shares the pipe made it so
            poller = select.poll()
            poller.register(descriptor, select.POLLOUT)
            poller.poll()
        else:
            return


def _pieces(data: bytes) -> Generator[bytes]:
    """Yield `data` in pieces of at most PIPE_BUF bytes, cut between code points."""
    start, size = 0, len(data)
    while start < size:
        end = min(start + PIPE_BUF, size)
        if end < size:
            end = _code_point_before(data, end)
        yield data[start:end]
        start = end


def _code_point_before(data: bytes, end: int) -> int:
    for at in range(end, end - 4, -1):
        if data[at] & 0xC0 != 0x80:
            return at
    return end  # no UTF-8, which has no code points to keep whole
