"""Content of a kernel's messages, read without trust: a field of a wrong type is its empty value.

Whoever runs code in a kernel can send anything in its name, so nothing here may raise for what it is given.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sandcell.events import Truncated
from sandcell.handle import left_out_of
from sandcell_kernel.wire import BadMessage, TooComplex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell_kernel.wire import Message

__all__ = [
    "VALUE_MIME",
    "Bundle",
    "ResultLimits",
    "content_of",
    "metadata_of",
    "size_of",
    "split_text",
    "take_flag",
    "take_lines",
    "take_number",
    "take_numbers",
    "take_object",
    "take_pages",
    "take_text",
]

VALUE_MIME = "application/vnd.sandcell.value+json"
_PIECE = 64 * 2**10  # characters of one entry of output
_MAX_LOOSE = (
    4 * 2**20
)  # bytes that are read a second time, by a decoder that forgives and takes ten times as much


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLimits:
    """Bounds in bytes of one result in line: `image` for image types, `text` for all others."""

    text: int = 2**20
    image: int = 10 * 2**20

    def of(self, mime: str) -> int:
        return self.image if mime.startswith("image/") else self.text

    def shorten(self, text: str) -> str:
        """Return `text`, cut with a note where it is over the bound."""
        left_out = len(text) - self.text
        return text if left_out <= 0 else f"{text[: self.text]}... ({left_out} characters more)"

    def shorten_lines(self, lines: list[str]) -> list[str]:
        """Return those of the last `lines` that fit, the first of them cut with a note where needed."""
        kept: list[str] = []
        left = self.text
        for line in reversed(lines):
            if len(line) > left:
                kept.append(f"... ({len(lines) - len(kept)} entries left out)")
                break
            left -= len(line)
            kept.append(line)
        return kept[::-1]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The MIME bundle of a display."""

    data: dict[str, Any]
    metadata: dict[str, Any]

    @classmethod
    def read(cls, content: dict[str, Any]) -> Bundle:
        return cls(take_object(content, "data"), take_object(content, "metadata"))

    def without_value(self) -> tuple[Bundle, Any]:
        """Return the bundle as it is for others, and the plain value that our runtime put beside it."""
        if VALUE_MIME not in self.data:
            return self, None
        rest = {mime: value for mime, value in self.data.items() if mime != VALUE_MIME}
        return Bundle(rest, self.metadata), self.data[VALUE_MIME]

    def truncations(self) -> list[Truncated]:
        """Return what our runtime says that it has left out of the bundle, or put into files."""
        left_out = take_number(take_object(self.metadata, "sandcell"), "left_out")
        if left_out:  # all of it; a text is in its place
            return [Truncated(stream="result", bytes=left_out, total_bytes=left_out)]
        return [out.event() for out in left_out_of(self.metadata)]


def content_of(message: Message) -> dict[str, Any]:
    """Return the content; text that is no valid UTF-8 with marks in its place, {} where it is no object at all.

    Content that would be too large in memory is that of a display whose text says so.
    """
    try:
        return message.body()
    except TooComplex as problem:
        return _left_out(message, str(problem))
    except BadMessage:
        pass  # Python's json sends lone surrogates and worse, which a strict decoder refuses
    if len(message.content) > _MAX_LOOSE:
        return _left_out(message, "it is no valid JSON")
    try:
        loose: object = json.loads(message.content.decode("utf-8", "replace"))
        clean = _without_surrogates(loose)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", clean) if isinstance(clean, dict) else {}


def _left_out(message: Message, why: str) -> dict[str, Any]:
    size = len(message.content)
    text = f"[{size} bytes left out: {why}]"
    return {"data": {"text/plain": text}, "metadata": {"sandcell": {"left_out": size}}}


def metadata_of(message: Message) -> dict[str, Any]:
    """Return the metadata, {} where they are none."""
    try:
        return message.meta()
    except BadMessage:
        return {}


def split_text(text: str) -> list[str]:
    """Return `text` in pieces between code points, none larger than an entry should be; [] for no text."""
    if len(text) <= _PIECE:
        return [text] if text else []
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def take_text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def take_flag(content: dict[str, Any], name: str) -> bool:
    return content.get(name) is True


def take_number(content: dict[str, Any], name: str) -> int | None:
    value = content.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def take_numbers(content: dict[str, Any], names: Iterable[str]) -> dict[str, float]:
    """Return those of the named fields that are finite numbers."""
    values = ((name, content.get(name)) for name in names)
    return {
        name: value
        for name, value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def take_object(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def take_lines(content: dict[str, Any], name: str) -> list[str]:
    value = content.get(name)
    lines = cast("list[object]", value) if isinstance(value, list) else []
    return [line for line in lines if isinstance(line, str)]


def take_pages(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a pager would show, as for `print?`: front ends without one show it as output, so it is a display."""
    payload = reply.get("payload")
    parts = cast("list[object]", payload) if isinstance(payload, list) else []
    pages = (cast("dict[str, Any]", part) for part in parts if isinstance(part, dict))
    return [page for page in pages if page.get("source") == "page" and take_object(page, "data")]


def size_of(value: object) -> int:
    """Return how many bytes a part of a bundle takes in line."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return len(msgspec.json.encode(value))


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {str(_without_surrogates(key)): _without_surrogates(item) for key, item in table.items()}
    return value
