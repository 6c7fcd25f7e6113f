"""Where a cell runs: its first line decides. Pure text, no session and no kernel is known here."""

from __future__ import annotations

from dataclasses import dataclass

from sandcell_container.errors import SandcellError
from sandcell_container.ids import check_id

__all__ = ["Cell", "PythonCell", "ShellCell", "WrongCell", "read_cell"]

_DEFAULT_SESSION = "shell"


@dataclass(frozen=True, slots=True)
class PythonCell:
    """A cell for the front's context, which gets the request untouched."""


@dataclass(frozen=True, slots=True)
class ShellCell:
    """A cell for the shell session `session_id`; `code` is what follows the first line."""

    session_id: str
    code: str


@dataclass(frozen=True, slots=True)
class WrongCell:
    """A cell whose first line is ours but cannot be followed; `problem` tells the user why."""

    problem: str


Cell = PythonCell | ShellCell | WrongCell


def read_cell(code: str) -> Cell:
    """Tell where `code` runs.

    `%%shell [session]` on the first line that is not blank (as IPython looks for a cell magic) names a shell
    session, "shell" by default. Everything else is Python; magics that are not ours are IPython's.
    """
    first, _, rest = code.lstrip("\r\n \t").partition("\n")
    words = first.split()
    if not words or words[0] != "%%shell":
        return PythonCell()
    if len(words) > 2:
        return WrongCell(f"%%shell takes one name of a session, not {' '.join(words[1:])[:80]!r}")
    try:
        return ShellCell(
            check_id(words[1], what="name of a session") if words[1:] else _DEFAULT_SESSION, rest
        )
    except SandcellError as problem:
        return WrongCell(f"{problem.message}: {problem.hint}")
