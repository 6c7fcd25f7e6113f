"""Errors of ours as a notebook shows them: its hints speak of lines of a notebook, not of calls. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandcell.failure import failure_of
from sandcell_kernel.answers import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REWORDED", "problem_of"]

_OF_HTTP = re.compile(r"\b(?:GET|PUT|POST|PATCH|DELETE) /|^\?\w+=|^for=")

REWORDED: Mapping[str, str] = {
    "recursive=True removes a folder with all that is in it; other calls want a file": "%sandbox download PATH LOCAL copies a folder, "
    "%sandbox files remove PATH --recursive removes one; else name a file",
    "overwrite=True takes its place": "copy and rename take its place with --overwrite",
    "docs/files.md says what is taken": "%sandbox? says how the line is written",
    "restart() starts it anew": "%sandbox restart starts it anew, with all that runs",
    "create_session() makes one": "a cell that begins with %%shell makes one",
    "give each process an id of its own, or none; remove() frees an id": "give each process an id of its own, or none",
    "give the new one another id; DELETE frees this one": "give the new one another id, or none",
    "GET /v1/ports lists those that are": "%sandbox ports lists those that are",
    "give it longer: start_timeout=": "give it longer: SANDCELL_START_TIMEOUT, in seconds, in the environment of Jupyter",
}
"""By what a program is told."""


def problem_of(caught: BaseException) -> Problem:
    """Return what a notebook shows of `caught`, which `failure_of` makes one of ours. A hint about HTTP is left out."""
    problem = Problem.of(failure_of(caught))
    lines = (REWORDED.get(line, "" if _OF_HTTP.search(line) else line) for line in problem.lines)
    return Problem(name=problem.name, value=problem.value, lines=tuple(filter(None, lines)))
