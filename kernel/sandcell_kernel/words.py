"""The words of a line that is ours: apart by blanks of any kind, quoted as in a shell. Pure.

`shlex` takes time that grows with the square of a line, and splits at other blanks than `str.split` does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["split_words"]

_PART = re.compile(
    r"""(?P<space>\s+)|(?P<plain>[^\s'"\\]+)|'(?P<single>[^']*+)'|"(?P<double>(?:[^"\\]++|\\.)*+)"|\\(?P<escaped>.)""",
    re.DOTALL,
)
_ESCAPED = re.compile(
    r'\\(["\\])'
)  # what a backslash says between double quotes; elsewhere it stands for itself


def split_words(line: str) -> list[str]:
    """Return the words, without their quotes.

    Raises:
        ValueError: a quote is not closed, or nothing follows the last backslash.
    """
    return list(_words(line))


def _words(line: str) -> Iterator[str]:
    parts, at = list[str](), 0  # of the word that was begun, which may be empty in the end
    while at < len(line):
        found = _PART.match(line, at)
        if found is None:
            raise ValueError(_what_is_missing(line[at:]))
        at = found.end()
        if found.lastgroup != "space":
            text = found[found.lastgroup or 0]
            parts.append(_ESCAPED.sub(r"\1", text) if found.lastgroup == "double" else text)
        elif parts:
            yield "".join(parts)
            parts.clear()
    if parts:
        yield "".join(parts)


def _what_is_missing(rest: str) -> str:
    """Return what shlex says of a line whose rest is no part: it ends behind a backslash, or in a quote."""
    is_escaping = (len(rest) - len(rest.rstrip("\\"))) % 2 and not rest.startswith("'")
    return "No escaped character" if is_escaping else "No closing quotation"
