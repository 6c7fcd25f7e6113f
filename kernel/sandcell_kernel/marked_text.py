"""The bytes of one stream of a run in, text and marks out, however they were cut on the way. Pure.

A mark is a secret of the kernel's followed by a number: what was written after it comes after the message on iopub with
that fence. Source: docs/protocol.md, "Output of a run".
"""

from __future__ import annotations

import codecs
import secrets

__all__ = ["MarkedText", "new_mark"]

_MARK_BEGIN = (
    b"\xfe"  # a byte that no UTF-8 has, so text is hardly ever held back because it could become a mark
)
_MARK_SECRET = 15
_NUMBER = 8
_UTF_8 = codecs.getincrementaldecoder("utf-8")


def new_mark() -> bytes:
    """Return the mark of a kernel. Code in that kernel may know it, and can lie about its own output alone."""
    return _MARK_BEGIN + secrets.token_bytes(_MARK_SECRET)


class MarkedText:
    """See the module. Text is UTF-8; what is not becomes U+FFFD."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._rest = b""
        self._decode = _UTF_8("replace").decode

    def feed(self, data: bytes) -> list[str | int]:
        """Return what `data` completes: text, none of it empty, and the numbers of marks, in order."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        if _MARK_BEGIN not in data:
            text = self._decode(data)
            return [text] if text else []
        return self._take_apart(data)

    def finish(self) -> str:
        """Return the text that was held back, because nothing comes any more."""
        rest, self._rest = self._rest, b""
        return self._decode(rest, True)  # noqa: FBT003 -- the codec's signature

    def _take_apart(self, data: bytes) -> list[str | int]:
        parts: list[str | int] = []
        start, size = 0, len(self._mark)
        while (at := data.find(self._mark, start)) >= 0 and at + size + _NUMBER <= len(data):
            self._add(parts, data[start:at])
            start = at + size + _NUMBER
            parts.append(int.from_bytes(data[at + size : start], "big"))
        end = at if at >= 0 else self._begun_mark(data, start)
        self._add(parts, data[start:end])
        self._rest = data[end:]
        return parts

    def _add(self, parts: list[str | int], data: bytes) -> None:
        text = self._decode(data)
        if text:
            parts.append(text)

    def _begun_mark(self, data: bytes, start: int) -> int:
        """Return where at the end of `data` a mark begins, its length where none does."""
        at = data.find(_MARK_BEGIN, max(start, len(data) - len(self._mark)))
        while at >= 0:
            if self._mark.startswith(data[at:]):
                return at
            at = data.find(_MARK_BEGIN, at + 1)
        return len(data)
