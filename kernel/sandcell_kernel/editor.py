"""What an editor is told of lines that are ours: what could stand there, what is this, is it whole. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandcell_kernel.cells import HelpCell, LineCell, PythonCell, WrongCell, read_cell
from sandcell_kernel.magics import MAGICS, describe_magic, magic_named
from sandcell_kernel.plain import list_of, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_kernel.magic import Magic

__all__ = ["Suggestions", "complete_line", "inspect_line", "is_whole", "merge_matches"]

_TYPES = "_jupyter_types_experimental"
_BLANK = "\r\n \t"
_BEGUN = re.compile(r"%{1,2}\w*")
_WORD = re.compile(r"\S*$")


@dataclass(frozen=True, slots=True)
class Suggestions:
    """What could stand between two characters of a cell. `is_all`: nobody else knows more."""

    matches: tuple[str, ...]
    start: int
    end: int
    is_all: bool

    def content(self) -> dict[str, Any]:
        """Return the content of a complete_reply."""
        return {
            "matches": list(self.matches),
            "cursor_start": self.start,
            "cursor_end": self.end,
            "metadata": {_TYPES: _types_of(self.matches, self.start, self.end)},
        }


def complete_line(code: str, cursor: int) -> Suggestions | None:
    """Return what of ours could stand at `cursor`, None where the line is none of ours, nor the beginning of one."""
    before = code[:cursor]
    at = before.rfind("\n") + 1
    line = before[at:].lstrip()
    if not line.startswith("%"):
        return None
    is_first = not code[:at].strip(_BLANK)
    word = _WORD.search(before)
    start = word.start() if word else cursor
    if _BEGUN.fullmatch(line):
        if not is_first and not isinstance(read_cell(code[:at]), LineCell):
            return None
        found = tuple(
            each.name for each in MAGICS if each.name.startswith(line) and (is_first or not each.is_of_cells)
        )
        return Suggestions(found, start, cursor, is_all=False) if found else None
    magic = magic_named(line.split(maxsplit=1)[0])
    if magic is None or not (is_first or not magic.is_of_cells):
        return None
    return Suggestions(tuple(_words_for(magic, line, before[start:])), start, cursor, is_all=True)


def merge_matches(content: dict[str, Any], ours: Suggestions) -> dict[str, Any]:
    """Return a kernel's complete_reply with ours in it. Where it speaks of another place, ours are left out."""
    theirs = list_of(content.get("matches"))
    if not theirs:
        return {**content, **ours.content(), "status": "ok"}
    if content.get("cursor_start") != ours.start:
        return content
    more = [each for each in ours.matches if each not in theirs]
    told = dict(table_of(content.get("metadata")))
    types = list_of(told.get(_TYPES))
    if types:
        told[_TYPES] = [*types, *_types_of(more, ours.start, ours.end)]
    return {**content, "matches": [*theirs, *more], "metadata": told}


def inspect_line(code: str, cursor: int) -> dict[str, Any] | None:
    """Return the content of an inspect_reply for a magic of ours on the line of the cursor, None where there is none."""
    at = code.rfind("\n", 0, cursor) + 1
    line = code[at:].partition("\n")[0].strip().strip("?").strip()
    magic = magic_named(line.split(maxsplit=1)[0]) if line else None
    if magic is None:
        return None
    return {"found": True, "data": {"text/plain": describe_magic(magic)}, "metadata": {}}


def is_whole(code: str) -> dict[str, Any] | None:
    """Return the content of an is_complete_reply, None where the cell is none of ours.

    As IPython has it: a line magic is whole, a cell magic when a blank line follows it.
    """
    match read_cell(code):
        case PythonCell():
            return None
        case LineCell() | HelpCell():
            return {"status": "complete"}
        case WrongCell():
            return {"status": "invalid"}
        case _:
            return {"status": "complete"} if code.endswith("\n\n") else {"status": "incomplete", "indent": ""}


def _words_for(magic: Magic, line: str, begun: str) -> list[str]:
    words = line.split()
    given = words if line.endswith((" ", "\t")) else words[:-1]
    known = list[str]()
    if magic.verbs and len(given) == 1:
        known = magic.first_words
    elif not magic.verbs:
        known = [each.name for each in magic.options]
    else:
        verb = magic.verb_of(given[1:])
        known = [each.name for each in verb.options] if verb is not None else []
        if len(given) == 2:
            known += magic.second_words(given[1])
    return [each for each in known if each not in given[1:] and each.startswith(begun)]


def _types_of(matches: Sequence[str], start: int, end: int) -> list[dict[str, Any]]:
    """Say what each match is: front ends show the list of these where there is one, and not the matches."""
    return [{"start": start, "end": end, "text": each, "type": "magic", "signature": ""} for each in matches]
