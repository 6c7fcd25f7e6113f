"""What a kernel that is not ours writes to its own stdout and stderr, past its messages: C code, children, the kernel itself."""

from __future__ import annotations

import asyncio
import codecs
import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OwnOutput"]

_READ_SIZE = 64 * 2**10
_WORDS_KEPT = 8 * 2**10
_MOST_READS = 16  # of one pipe in one go


class OwnOutput:
    """Reads both pipes from the start, so that nothing blocks; `on_text` gets what comes once it is set.

    `text` is the end of what was said on both, for the case that the kernel dies.
    """

    def __init__(self, stdout: int, stderr: int) -> None:
        self.on_text: Callable[[Literal["stdout", "stderr"], str], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._kept = ""
        self._pipes = {
            stdout: _Pipe("stdout", _decoder()),
            stderr: _Pipe("stderr", _decoder()),
        }
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._read, descriptor)

    @property
    def text(self) -> str:
        return self._kept.strip()

    def read(self) -> None:
        """Hand over what is there, now: it was written before a message that has just come."""
        for descriptor in list(self._pipes):
            for _ in range(_MOST_READS):
                if not self._read(descriptor):
                    break

    def close(self) -> None:
        """Read what is there, then give the descriptors back. Closing twice is fine."""
        self.read()
        for descriptor in list(self._pipes):
            self._give_back(descriptor)

    def _read(self, descriptor: int) -> bool:
        pipe = self._pipes.get(descriptor)
        if pipe is None:
            return False
        try:
            data = os.read(descriptor, _READ_SIZE)
        except BlockingIOError:
            return False
        self._take(pipe, pipe.decoder.decode(data, final=not data))
        if not data:
            self._give_back(descriptor)
        return bool(data)

    def _take(self, pipe: _Pipe, text: str) -> None:
        if not text:
            return
        self._kept = (self._kept + text)[-_WORDS_KEPT:]
        if self.on_text is not None:
            self.on_text(pipe.name, text)

    def _give_back(self, descriptor: int) -> None:
        del self._pipes[descriptor]
        self._loop.remove_reader(descriptor)
        os.close(descriptor)


class _Pipe:
    def __init__(self, name: Literal["stdout", "stderr"], decoder: codecs.IncrementalDecoder) -> None:
        self.name: Literal["stdout", "stderr"] = name
        self.decoder = decoder


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
