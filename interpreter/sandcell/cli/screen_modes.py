"""What programs switch on in a terminal, so that it can be switched off when they no longer do that themselves. Pure.

Source: xterm's "Control Sequences", DECSET and DECRST.
"""

from __future__ import annotations

import re

__all__ = ["ScreenModes"]

_CHANGE = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_BEGUN = re.compile(rb"\x1b(?:\[(?:\?[0-9;]{0,64})?)?\Z")
_USUALLY_ON = frozenset({7, 25})  # lines wrap, the cursor shows
_UNDONE = _USUALLY_ON | {
    *(1, 5, 6, 66),  # keys and colours of the screen
    *(9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016),  # the mouse is told of
    *(47, 1047, 1049),  # the other screen
    2004,  # what is pasted is marked
}
_PLAIN = b"\x1b[0m"  # no colours


class ScreenModes:
    """Follows what is written to a terminal; `undo` puts back what was changed."""

    def __init__(self) -> None:
        self._changed: dict[int, None] = {}
        self._begun = b""
        self._is_plain = True

    def feed(self, data: bytes) -> None:
        """Take what was written, cut anywhere."""
        text = self._begun + data
        self._is_plain = self._is_plain and b"\x1b" not in text
        for change in _CHANGE.finditer(text):
            for number in filter(None, change[1].split(b";")):
                self._note(int(number), is_on=change[2] == b"h")
        begun = _BEGUN.search(text)
        self._begun = begun[0] if begun else b""

    def undo(self) -> bytes:
        """Return what is to be written to the terminal, the latest change first."""
        undone = (b"\x1b[?%d%c" % (mode, b"lh"[mode in _USUALLY_ON]) for mode in reversed(self._changed))
        return b"".join(undone) + (b"" if self._is_plain else _PLAIN)

    def _note(self, mode: int, *, is_on: bool) -> None:
        if mode in _UNDONE:
            self._changed.pop(mode, None)
            if is_on != (mode in _USUALLY_ON):
                self._changed[mode] = None
