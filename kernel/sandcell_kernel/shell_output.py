"""The output of a shell cell: bytes in, stream messages out, bounded. Pure."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ShellOutput", "StreamText"]

StreamName = Literal["stdout", "stderr"]


class StreamText(NamedTuple):
    """One stream message: which stream, and its text."""

    name: StreamName
    text: str


class ShellOutput:
    """Decodes both streams as UTF-8 across chunks and shows the first `max_bytes` of them together.

    Front ends freeze on output without a bound; what was not shown is told at the end.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._hidden = 0
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def feed(self, name: StreamName, data: bytes) -> Iterator[StreamText]:
        """Take a chunk and return what can be shown of it: one text or none."""
        shown = data[: self._left]
        self._left -= len(shown)
        self._hidden += len(data) - len(shown)
        if text := self._decoders[name].decode(shown):
            yield StreamText(name, text)

    def finish(self) -> Iterator[StreamText]:
        """Return what is left: broken characters at the end of a stream, and how much was not shown."""
        for name in ("stdout", "stderr"):
            if text := self._decoders[name].decode(b"", final=True):
                yield StreamText(name, text)
        if self._hidden:
            yield StreamText("stderr", f"\n[sandcell] {self._hidden} more bytes of output are not shown\n")
