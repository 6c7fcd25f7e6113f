"""The output of a terminal, made safe for a terminal emulator of this machine: hostile code may have written it. Pure.

What could grow without end is bounded here: strings that a sequence opens and never closes, endless parameters, endless
marks on one letter.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

__all__ = ["ControlText"]

_LONGEST = 64  # characters of a sequence's parameters
_MOST_MARKS = 4  # on one letter

# Titles, links, pictures, the clipboard: nothing that is shown here.
_STRING_BEGIN = re.compile(r"\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f]")
_STRING_END = re.compile(r"\x1b\\|(?=\x1b[^\\])|[\x07\x9c\x18\x1a]")  # another sequence ends it, too
_CSI = r"(?:\x1b\[|\x9b)"
_TOO_LONG = re.compile(rf"{_CSI}[0-?]{{{_LONGEST},}}[ -/]*[@-~]?")
_BEGUN = re.compile(rf"(?:\x1b[ #%()]?|{_CSI}[0-?]*[ -/]{{0,8}})\Z")
_TOKENS = re.compile(rf"{_CSI}[0-?]*[ -/]*[@-~]|\x1b[^\[]|[^\x1b\x9b]+|.", re.DOTALL)


class ControlText:
    """Takes bytes as they come, cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._is_in_string = False

    def feed(self, data: bytes) -> list[str]:
        """Return text and sequences, each by itself; a sequence that is not whole yet is held back, and is short."""
        text = self._without_strings(self._held + self._decoder.decode(data))
        text = _TOO_LONG.sub("", text)
        begun = _BEGUN.search(text)
        self._held = begun[0] if begun is not None and len(begun[0]) <= _LONGEST else ""
        whole = text[: begun.start()] if begun is not None else text
        return [_plain(each) for each in _TOKENS.findall(whole)]

    def _without_strings(self, text: str) -> str:
        kept, at = list[str](), 0
        while at < len(text):
            found = (_STRING_END if self._is_in_string else _STRING_BEGIN).search(text, at)
            if not self._is_in_string:
                kept.append(text[at : found.start() if found else None])
            elif found is None and text.endswith("\x1b"):
                kept.append("\x1b")  # may be the first half of its end
            if found is None:
                break
            self._is_in_string = not self._is_in_string
            at = found.end()
        return "".join(kept)


def _plain(token: str) -> str:
    """Return text with nothing that has no place of its own, and few marks on each letter."""
    if token.isascii() or token[0] in "\x1b\x9b":
        return token
    kept, marks = list[str](), 0
    for each in token:
        marks = marks + 1 if unicodedata.combining(each) else 0
        if marks <= _MOST_MARKS and unicodedata.category(each) not in {"Cf", "Cs", "Co", "Cn"}:
            kept.append(each)
    return "".join(kept)
