"""Patterns for names of files.

`*` and `?` are any characters but a slash, `**` any folders, `[a-z]` and `[!a-z]` one of some, `{a,b}` either. A pattern
without a slash is for the name alone, wherever the file lies; one with a slash for the whole relative path.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PathFilter", "glob_regex"]

_TOKEN = re.compile(r"(?:\*\*/)+|\*\*+|\*+|\?|\[[!^]?\]?[^\]]*\]|\{|\}|,|\\.|.", re.DOTALL)


def glob_regex(pattern: str) -> str:
    """Return the regular expression that matches what `pattern` does, whole."""
    made, depth = "", 0
    for token in _TOKEN.findall(pattern):
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
        made += _translate(token, in_braces=depth > 0 or (token == "}" and depth == 0))
        depth = max(depth, 0)
    return made + ")" * depth


def _translate(token: str, *, in_braces: bool) -> str:
    if token.startswith("**/"):
        return "(?:[^/]+/)*"
    if token.startswith("*"):
        return ".*" if len(token) > 1 else "[^/]*"
    if token == "?":
        return "[^/]"
    if token[0] == "[" and len(token) > 2:
        inner = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        negated = inner[0] in "!^" and len(inner) > 1
        return f"(?!/)[{'^' + inner[1:] if negated else inner}]"
    if in_braces and token in "{},":
        return {"{": "(?:", "}": ")", ",": "|"}[token]
    return re.escape(token[1:] if len(token) == 2 and token[0] == "\\" else token)


class PathFilter:
    """Whether a path is wanted: it matches one of `include` (none: all do), and none of `exclude`."""

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._include = _compile(include)
        self._exclude = _compile(exclude)

    def wants(self, relative: bytes) -> bool:
        return not self.excludes(relative) and (not self._include or _matches(self._include, relative))

    def excludes(self, relative: bytes) -> bool:
        """Tell whether it is excluded; what is in an excluded folder is, too."""
        return bool(self._exclude) and _matches(self._exclude, relative)


_Compiled = list[tuple["re.Pattern[str]", bool]]


def _compile(patterns: Iterable[str]) -> _Compiled:
    try:
        return [
            (re.compile(glob_regex(each.strip("/")), re.DOTALL), "/" in each.strip("/")) for each in patterns
        ]
    except re.error as problem:
        from sandcell_container.guest.worker.opening import Refusal

        raise Refusal("INVALID_ARGUMENT", f"a pattern is none: {problem}") from None


def _matches(compiled: _Compiled, relative: bytes) -> bool:
    path = os.fsdecode(relative)
    name = path.rpartition("/")[2]
    return any(pattern.fullmatch(path if is_path else name) for pattern, is_path in compiled)
