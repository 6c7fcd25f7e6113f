"""Bodies of `POST /v1/files/{verb}`. See `sandcell.api`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sandcell.api import Body

__all__ = [
    "CopyFile",
    "FilePath",
    "InsertText",
    "ListFiles",
    "ReplaceText",
    "SearchFiles",
    "TextEdit",
]


# --- files


_Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
_Patterns = Annotated[tuple[str, ...], msgspec.Meta(max_length=100)]


class FilePath(Body, frozen=True, kw_only=True):
    path: str


class ListFiles(Body, frozen=True, kw_only=True):
    """POST /v1/files/list. `glob`: patterns, one of which a name or relative path has to match. `cursor` is the
    `next_cursor` of the page before."""

    path: str = "."
    recursive: bool = False
    hidden: bool = True
    glob: _Patterns = ()
    sort: Literal["name", "size", "mtime"] = "name"
    limit: _Limit = 1000
    cursor: str | None = None


class CopyFile(Body, frozen=True, kw_only=True):
    """POST /v1/files/copy and /rename. `overwrite`: what is at `to` is replaced."""

    path: str
    to: str
    overwrite: bool = False


class TextEdit(Body, frozen=True, kw_only=True):
    """`old` has to be there exactly once."""

    old: str
    new: str


class ReplaceText(Body, frozen=True, kw_only=True):
    """POST /v1/files/replace. All edits are done, one after another, or none. `if_match`: tags, one of which the file
    has to have."""

    path: str
    edits: tuple[TextEdit, ...]
    if_match: tuple[str, ...] | None = None


class InsertText(Body, frozen=True, kw_only=True):
    """POST /v1/files/insert. Behind line `line`: 0 is the start, beyond the end appends."""

    path: str
    line: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    text: str
    if_match: tuple[str, ...] | None = None


class SearchFiles(Body, frozen=True, kw_only=True):
    """POST /v1/files/search. `pattern` is a regular expression of Python's `re`, for each line. `everywhere`: also in `.git`,
    `node_modules` and `.cache`. `timeout` in seconds."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    path: str = "."
    glob: _Patterns = ()
    exclude: _Patterns = ()
    everywhere: bool = False
    hidden: bool = True
    ignore_case: bool = False
    context: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    limit: _Limit = 200
    timeout: Annotated[float, msgspec.Meta(gt=0, le=300)] = 20.0
