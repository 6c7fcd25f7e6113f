"""What the headers of a request say of a file: which bytes of it, and what has to hold. Pure. Source: RFC 9110, 13 and 14."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.files import Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Span", "condition_of", "is_known", "line_span", "span_of"]

_TAG = re.compile(r'\s*(?:(W/)?"([^"]*)")\s*(?:,|$)')
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)
_LINES = re.compile(r"(\d{1,18})-(\d{0,18})", re.ASCII)


class Span(NamedTuple):
    """Bytes `start` to `end` of a file, the latter not among them. `is_part`: not all of it was asked for."""

    start: int
    end: int
    is_part: bool = True


def condition_of(headers: Mapping[str, str]) -> Condition:
    """Return what has to hold for a file to be changed: If-Match, and If-None-Match with a star.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): a header cannot be read, or is none that can be heeded here.
    """
    none_match = headers.get("If-None-Match")
    if none_match is not None and none_match.strip() != "*":
        raise _wrong("If-None-Match", none_match, "* is for a file that is not there yet")
    match = headers.get("If-Match")
    tags = None if match is None else _tags("If-Match", match)
    return Condition(tags=tags, is_new=none_match is not None)


def is_known(headers: Mapping[str, str], etag: str) -> bool:
    """Tell whether who asks has this content already."""
    given = headers.get("If-None-Match")
    if given is None:
        return False
    tags = _tags("If-None-Match", given, weak=True)
    return "*" in tags or etag in tags


def span_of(headers: Mapping[str, str], size: int, etag: str) -> Span | None:
    """Return which bytes of a file are asked for; None where it has none of them. More ranges than one are all of it.

    If-Range with another tag asks for all of it.
    """
    whole = Span(0, size, is_part=False)
    found = _RANGE.fullmatch(headers.get("Range", "").strip())
    if found is None or found[0] == "bytes=-" or headers.get("If-Range", f'"{etag}"') != f'"{etag}"':
        return whole
    if not found[1]:
        length = min(int(found[2]), size)
        return Span(size - length, size) if length else None
    start, end = int(found[1]), int(found[2]) + 1 if found[2] else size
    if end <= start and found[2]:
        return whole  # the header is none, and is ignored
    return Span(start, min(end, size)) if start < size else None


def line_span(text: str) -> tuple[int, int | None]:
    """Return the first line and how many (None: all that follow) of "FIRST-LAST" or "FIRST-".

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it says no lines.
    """
    found = _LINES.fullmatch(text)
    first = int(found[1]) if found is not None else 0
    last = int(found[2]) if found is not None and found[2] else None
    if first < 1 or (last is not None and last < first - 1):
        hint = "lines=FIRST-LAST or lines=FIRST-, from 1"
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"lines={text[:40]} are none",
            hint=hint,
            details={"field": "lines"},
        )
    return first, None if last is None else last - first + 1


def _tags(name: str, text: str, *, weak: bool = False) -> tuple[str, ...]:
    """Return the tags that a header lists. A weak one matches no content for sure: it is left out, or taken as the others."""
    if text.strip() == "*":
        return ("*",)
    found, at = list[str](), 0
    while at < len(text):
        match = _TAG.match(text, at)
        if match is None:
            raise _wrong(name, text, "tags in quotes, as ETag has them, with commas between; or *")
        if weak or match[1] is None:
            found.append(match[2])
        at = match.end()
    return tuple(found)


def _wrong(name: str, text: str, hint: str) -> Exception:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"{name}: {text[:80]} cannot be heeded",
        hint=hint,
        details={"field": name},
    )
