"""What changed between two runs of a notebook, by what its cells show. Pure: notebooks as dicts in, changes out.

Cells belong together by their code. Numbers of executions, times, tracebacks, ids and metadata are no change; nor is what is
up to chance: how the two streams of a cell were mixed, and where in memory something lay ("at 0x7f...").
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandcell.notebook import Notebook

__all__ = ["Change", "diff_notebooks"]

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference. `before_cell` and `after_cell` are places among all cells, from 1; None where it has none there.

    `what`: "code"; "stdout" or "stderr"; "error"; "result" or "display", with the MIME type that differs. `before` and
    `after` are texts, of binary data its size and digest; None where there is nothing on that side.
    """

    before_cell: int | None
    after_cell: int | None
    what: str
    before: str | None
    after: str | None


class _Cell(NamedTuple):
    number: int
    source: str
    outputs: Sequence[dict[str, Any]]


class _Shown(NamedTuple):
    """One thing that a cell shows: a stream or an error under "", or a bundle by MIME type."""

    kind: str
    parts: dict[str, str]


def diff_notebooks(before: Notebook, after: Notebook) -> list[Change]:
    """Return what `after` shows differently from `before`, in the order of the cells. Empty where all is the same."""
    old, new = _cells_of(before), _cells_of(after)
    matcher = SequenceMatcher(None, [c.source for c in old], [c.source for c in new], autojunk=False)
    changes = list[Change]()
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        for pair in zip_longest(old[old_start:old_end], new[new_start:new_end]):
            changes += _diff_cells(*pair)
    return changes


def _diff_cells(old: _Cell | None, new: _Cell | None) -> Iterator[Change]:
    numbers = {"before_cell": old.number if old else None, "after_cell": new.number if new else None}
    old_source, new_source = old.source if old else None, new.source if new else None
    if old_source != new_source:
        yield Change(**numbers, what="code", before=old_source, after=new_source)
    olds, news = _shown_by(old), _shown_by(new)
    for name in ("stdout", "stderr", "error"):
        texts = [each.get(name, _Shown(name, {})).parts.get("") for each in (olds.named, news.named)]
        if texts[0] != texts[1]:
            yield Change(**numbers, what=name, before=texts[0], after=texts[1])
    for a, b in zip_longest(olds.bundles, news.bundles):
        yield from _diff_bundles(numbers, a, b)


def _diff_bundles(numbers: Mapping[str, int | None], a: _Shown | None, b: _Shown | None) -> Iterator[Change]:
    old, new = a.parts if a else {}, b.parts if b else {}
    kind = (b or a or _Shown("display", {})).kind
    for mime in dict.fromkeys([*old, *new]):
        if old.get(mime) != new.get(mime):
            what = f"{kind} {mime}"
            yield Change(**numbers, what=what, before=old.get(mime), after=new.get(mime))


class _ShownBy(NamedTuple):
    named: dict[str, _Shown]
    bundles: list[_Shown]


def _shown_by(cell: _Cell | None) -> _ShownBy:
    named = dict[str, _Shown]()
    bundles = list[_Shown]()
    for output in cell.outputs if cell else ():
        match output.get("output_type"):
            case "stream":
                name = str(output.get("name", "stdout"))
                so_far = named.get(name, _Shown(name, {"": ""})).parts[""]
                named[name] = _Shown(
                    name, {"": so_far + _without_addresses(_text_of(output.get("text", "")))}
                )
            case "error":
                said = f"{output.get('ename', '')}: {output.get('evalue', '')}"
                named["error"] = _Shown("error", {"": _without_addresses(said)})
            case "execute_result":
                bundles.append(_Shown("result", _parts_of(output)))
            case _:
                bundles.append(_Shown("display", _parts_of(output)))
    return _ShownBy(named, bundles)


def _parts_of(output: Mapping[str, Any]) -> dict[str, str]:
    return {mime: _part_of(mime, value) for mime, value in output.get("data", {}).items()}


def _part_of(mime: str, value: object) -> str:
    text = _text_of(value)
    if mime.startswith(("image/", "application/pdf")) and "svg" not in mime:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{len(text) * 3 // 4} bytes, {digest}"
    return _without_addresses(text)


def _without_addresses(text: str) -> str:
    return _ADDRESS.sub("at 0x...", text)


def _text_of(value: object) -> str:
    """Return what a notebook holds as text: a str, its lines, or JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value)):
        return "".join(cast("list[str]", value))
    return json.dumps(value, sort_keys=True)


def _cells_of(notebook: Notebook) -> list[_Cell]:
    return [
        _Cell(number, _text_of(cell.get("source", "")), cell.get("outputs", ()))
        for number, cell in enumerate(notebook["cells"], 1)
        if cell.get("cell_type") == "code"
    ]
