"""What a language model is told of a run: all that was printed and shown, in order, what failed, what was cut. Pure.

Lines that begin with `[sandcell: ` are notes of ours, and no text of the code's can have one: what would look so is
given a backslash. Labels say where a stream or the error begins, so none of them can be imitated either.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from sandcell.handle import left_out_of
from sandcell.screen import cut_middle, strip_ansi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandcell.result import Result
    from sandcell.results import RunResult
    from sandcell_container.end import Truncation

__all__ = ["tell"]

_UNSEEN = ("svg", "pdf")  # named beside a text
_COUNTED = ("png", "jpeg")

# The beginning of a note, whatever is put between its letters so that it only looks like one.
_GAP = r"(?:[^\w\[]|_){0,8}"
_NOTE_LIKE = re.compile(rf"\[(?={_GAP}{_GAP.join('sandcell')})", re.IGNORECASE)
_NO_TEXT = re.compile(r"[^\S ]+|[\x00-\x1f\x7f-\x9f]+")
_ROUND = str.maketrans("[]", "()")


class _Piece(NamedTuple):
    """Some of what is told. `label` says what it is; "" is what a reader takes it for: output."""

    label: str
    text: str


def tell(run: RunResult, max_chars: int) -> str:
    """Return the run as text of at most `max_chars` characters."""
    lines, label = list[str](), ""
    for piece in _pieces(run):
        if piece.label != label:
            lines.append(_note(piece.label or "output"))
            label = piece.label
        lines.append(piece.text)
    text = "\n".join([*lines, *_ends(run)])
    return cut_middle(text, max_chars, note=_note("... {size} characters in all ..."))


def _pieces(run: RunResult) -> Iterator[_Piece]:
    """Yield what was printed and shown, in order, then the error."""
    images = 0
    for kind, what in _in_order(run):
        if isinstance(what, str):
            yield from _printed("stderr" if kind == "stderr" else "", what)
            continue
        yield from _printed("", text_of(what))
        for _ in range(sum(getattr(what, name) is not None for name in _COUNTED)):
            images += 1
            yield _Piece("", _note(f"image {images}"))
        yield from (_Piece("", note) for note in _beside(what))
    if run.error is not None:
        yield from _printed("error", "\n".join(run.error.traceback) or str(run.error))


def _in_order(run: RunResult) -> Iterator[tuple[str, str | Result]]:
    """Yield pieces of streams, and results; what nothing is known of comes last."""
    texts = {"stdout": run.stdout, "stderr": run.stderr}
    done = {"stdout": 0, "stderr": 0}
    left = dict(enumerate(run.results))
    for kind, end in run.order:
        if kind != "result":
            yield kind, texts[kind][done[kind] : end]
            done[kind] = max(end, done[kind])
        elif end in left:
            yield kind, left.pop(end)
    for stream, text in texts.items():
        yield stream, text[done[stream] :]
    for result in left.values():
        yield "result", result


def _printed(label: str, text: str) -> Iterator[_Piece]:
    """Yield a text of the code's, without escape sequences and without what looks like a note of ours."""
    plain = _NOTE_LIKE.sub(r"\\[", strip_ansi(text)).strip("\n")
    if plain.strip():
        yield _Piece(label, plain)


def text_of(result: Result) -> str:
    """Return the text of a result, its JSON where it has none, "" where there is neither, or all of it was too large, which
    the run's end tells."""
    return result.markdown or _own_text(result) or result.latex or _json_of(result)


def _beside(result: Result) -> Iterator[str]:
    """Yield notes of what is shown and told by no text; images have their own."""
    for name in result.formats():
        if name in _UNSEEN:
            yield _note(f"a {name} is shown")
    seen = {*_UNSEEN, "text"}
    if text_of(result) or any(getattr(result, name) is not None for name in (*_COUNTED, *_UNSEEN)):
        return
    shown = [name for name in result.formats() if name not in seen]
    if shown:
        yield _note(f"shown: {', '.join(shown)}{_titled(result)}")


def _ends(run: RunResult) -> Iterator[str]:
    """Yield notes of what the run as a whole came to."""
    if run.fresh_state:
        yield _note(run.fresh_state)
    if not run.ok and run.end.cause != "exited":
        yield _note(f"the run ended: {run.end.cause}")
    if run.end.state == "lost":
        yield _note("the interpreter's state is lost")
    for name, cut in run.truncated.items():
        yield _cut_note(name, cut)


def _cut_note(name: str, cut: Truncation) -> str:
    where = f"; the whole is in {cut.path}" if cut.path else ""
    return _note(f"{name}: {cut.bytes} bytes left out{where}")


def _note(text: str) -> str:
    """Return a note, one line whatever is in it: names of types and titles are the code's."""
    return f"[sandcell: {_NO_TEXT.sub(' ', text).translate(_ROUND)}]"


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
