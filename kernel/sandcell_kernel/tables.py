"""What our magics show: tables with a text form and an HTML form. Pure; nothing in them is taken for markup."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Link", "Table", "describe_age", "describe_bytes", "link_to_data", "picture_of", "printable"]

_LONGEST_CELL = 200
_HEAD_STYLE = "text-align:left"
_CELL_STYLE = "text-align:left;white-space:pre-wrap"


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads somewhere: `url` is one of ours."""

    text: str
    url: str


Shown = str | Link


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below `head`, which is empty for a table of names and values."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]

    @classmethod
    def of(cls, title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
        """Make a table; a value of None is an empty cell, and long ones are cut."""
        return cls(title, tuple(head), tuple(tuple(map(_shown, row)) for row in rows))

    def bundle(self) -> dict[str, str]:
        """Return both forms by their MIME types."""
        return {"text/plain": self.text(), "text/html": self.html()}

    def text(self) -> str:
        if not self.rows:
            return f"{self.title}: none"
        plain = [tuple(map(_plain, row)) for row in self.rows]
        rows = [self.head, *plain] if self.head else plain
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        )
        return "\n".join([self.title, *(line.rstrip() for line in lines)])

    def html(self) -> str:
        title = f"<div><strong>{html.escape(self.title)}</strong></div>"
        if not self.rows:
            return f"{title}<div><em>none</em></div>"
        head = _row_of(self.head, "th", _HEAD_STYLE) if self.head else ""
        body = "".join(_row_of(row, "td", _CELL_STYLE) for row in self.rows)
        return f"{title}<table>{f'<thead>{head}</thead>' if head else ''}<tbody>{body}</tbody></table>"


def link_to_data(name: str, data: bytes) -> dict[str, str]:
    """Return a link that saves `data` as a file called `name`: the data is in the link itself."""
    shown = printable(name).replace("\n", " ")
    url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"
    size = describe_bytes(len(data))
    link = f'<a download="{html.escape(shown)}" href="{url}">{html.escape(shown)}</a> ({size})'
    return {"text/plain": f"{shown} ({size}): the link is in the HTML form", "text/html": link}


def picture_of(name: str, mime: str, data: bytes) -> dict[str, str]:
    """Return a picture, in an element that runs no script, whatever it holds."""
    size = describe_bytes(len(data))
    shown = printable(name).replace("\n", " ")
    url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    picture = f'<img src="{url}" alt="{html.escape(shown)}" style="max-width:100%">'
    return {"text/plain": f"{shown}: {mime}, {size}", "text/html": picture}


def describe_bytes(count: float | None) -> str:
    """Return a size as people write it, "" where it is not known."""
    if count is None:
        return ""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def describe_age(seconds: float) -> str:
    """Return how long ago something was, in the largest unit that it fills."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def printable(text: str) -> str:
    """Return text that does nothing to a terminal: user code may have put anything into it."""
    return "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def _shown(value: object) -> Shown:
    if isinstance(value, Link):
        return value
    text = "" if value is None else printable(str(value)).replace("\n", " ")
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 3]}..."


def _plain(cell: Shown) -> str:
    return cell.url if isinstance(cell, Link) else cell


def _row_of(cells: Sequence[Shown], tag: str, style: str) -> str:
    shown = "".join(f'<{tag} style="{style}">{_marked(cell)}</{tag}>' for cell in cells)
    return f"<tr>{shown}</tr>"


def _marked(cell: Shown) -> str:
    if isinstance(cell, Link):
        url = html.escape(cell.url)
        return f'<a href="{url}" target="_blank" rel="noopener noreferrer">{html.escape(cell.text)}</a>'
    return html.escape(cell)
