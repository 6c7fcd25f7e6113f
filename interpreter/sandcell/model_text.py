"""What a language model is told of a result: its text, or what else it is. Nothing that was shown goes unsaid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sandcell.handle import left_out_of

if TYPE_CHECKING:
    from sandcell.result import Result

__all__ = ["text_of"]

_UNSEEN = ("svg", "pdf")  # named beside a text
_COUNTED = ("png", "jpeg")  # of all results together, elsewhere


def text_of(result: Result) -> str:
    """Return the text of a result, its JSON where it has none, else the names of what is shown. "" for images, which are
    counted elsewhere, and where all of it was too large, which is told elsewhere too."""
    text = result.markdown or _own_text(result) or result.latex or _json_of(result)
    named = [f"[a {name} is shown]" for name in _UNSEEN if name in result.formats()]
    if text or named:
        return "\n".join(filter(None, [text, *named]))
    if any(getattr(result, name) is not None for name in _COUNTED):
        return ""
    shown = [name for name in result.formats() if name != "text"]
    return f"[shown: {', '.join(shown)}{_titled(result)}]" if shown else ""


def _own_text(result: Result) -> str:
    """Return its text, "" where that only says what was too large: who tells of the run tells of that."""
    text = result.text or ""
    notes = tuple(f"[{out.mime} of " for out in left_out_of(result.metadata))
    is_note = bool(text and notes) and all(line.startswith(notes) for line in text.splitlines())
    return "" if is_note else text


def _json_of(result: Result) -> str:
    if "json" not in result.formats():
        return ""
    try:
        return json.dumps(result.json, ensure_ascii=False)
    except (RecursionError, ValueError):  # nested too deep for this caller's stack
        return ""


def _titled(result: Result) -> str:
    chart = result.chart
    return (
        "" if chart is None else f"; the chart is {chart.kind}" + (f": {chart.title}" if chart.title else "")
    )
