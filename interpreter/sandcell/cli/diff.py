"""`sandcell diff A.ipynb B.ipynb`: what changed in the outputs of a notebook."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING

from sandcell.cli.output import table, write_stdout
from sandcell.notebook_diff import diff_notebooks
from sandcell.notebook_file import read_notebook
from sandcell.screen import strip_ansi

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config
    from sandcell.notebook_diff import Change

__all__ = ["show_changes"]

_WIDTH = 48  # characters of what is shown of each side
_LEAD = 8  # of these before the first that differs


def show_changes(options: argparse.Namespace, config: Config) -> int:
    """Print what changed from one notebook to the other, and return 1 where something did, else 0."""
    changes = diff_notebooks(read_notebook(options.before), read_notebook(options.after))
    if options.json:
        write_stdout(json.dumps([asdict(each) for each in changes]) + "\n")
    elif changes:
        rows = [("CELL", "WHAT", "BEFORE", "AFTER"), *map(_row, changes)]
        write_stdout(table(rows) + "\n")
    return 1 if changes else 0


def _row(change: Change) -> tuple[str, str, str, str]:
    old, new = change.before_cell, change.after_cell
    cell = str(old) if old == new else f"{old or 'none'} > {new or 'none'}"
    return (cell, change.what, *_first_difference(change.before, change.after))


def _first_difference(before: str | None, after: str | None) -> tuple[str, str]:
    """Return the first line that differs, of both sides, around the first character that does."""
    lines = zip_longest(*(strip_ansi(each or "").splitlines() for each in (before, after)), fillvalue="")
    old, new = next(((a, b) for a, b in lines if a != b), ("", ""))
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    start = max(same - _LEAD, 0) if max(len(old), len(new)) > _WIDTH else 0
    shown = (_cut(old, start), _cut(new, start))
    return ("(none)" if before is None else shown[0], "(none)" if after is None else shown[1])


def _cut(line: str, start: int) -> str:
    text = line.expandtabs()[start : start + _WIDTH]
    return f"{'...' if start else ''}{text}{'...' if len(line) > start + _WIDTH else ''}"
