"""Output that is shown again, without the questions that programs put to a terminal. Pure.

A terminal answers such a question by typing: asked again by a replay, its answer would be typed into whatever runs now.
Source: xterm's "Control Sequences"; kitty's keyboard protocol for `CSI ? u`.
"""

from __future__ import annotations

import re

__all__ = ["Replayed"]

_QUESTION = re.compile(
    rb"\x05"  # ENQ
    rb"|\x1bZ"  # DECID
    rb"|\x1b\[\??[0-9;]*n"  # DSR: where the cursor is, and more
    rb"|\x1b\[[>=]?[0-9;]*c"  # DA: what terminal it is
    rb"|\x1b\[>[0-9;]*q"  # XTVERSION
    rb"|\x1b\[\??[0-9;]*\$p"  # DECRQM: which modes are on
    rb"|\x1b\[\?[0-9;]*S"  # XTSMGRAPHICS
    rb"|\x1b\[1[13-9](?:;[0-9]*)*t|\x1b\[2[01](?:;[0-9]*)*t"  # what its window is
    rb"|\x1b\[[0-9;]*x"  # DECREQTPARM
    rb"|\x1b\[\?u"  # which keys it tells apart
    rb"|\x1b\](?:4|5|1[0-9]|52);[^\x07\x1b]{0,200}\?(?:\x07|\x1b\\)"  # OSC: colours, the clipboard
    rb"|\x1bP[+$]q[^\x1b]{0,200}\x1b\\"  # XTGETTCAP, DECRQSS
)
_BEGUN = re.compile(rb"\x1b(?:\[[0-9;?>=$]{0,64}|[\]P][^\x07\x1b]{0,200}\x1b?)?\Z")


class Replayed:
    """Takes it piece by piece, cut anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown now; what may be the beginning of a question is held back."""
        text = _QUESTION.sub(b"", self._held + data)
        begun = _BEGUN.search(text)
        self._held = begun[0] if begun else b""
        return text[: len(text) - len(self._held)]

    def rest(self) -> bytes:
        """Return what was held back: the replay is over, and what comes next belongs to it."""
        held, self._held = self._held, b""
        return held
