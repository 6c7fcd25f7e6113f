"""Files as a client sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FileInfo", "FilePage", "FileType", "SearchMatch", "SearchResult", "TransferReport"]

FileType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One file of the sandbox. `path` is absolute, `relative_path` counts from the folder that was listed.

    `size` in bytes, `mtime` in seconds since the epoch, `mode` the permission bits, `owner` a user name or uid.
    `target` is where a symlink points. `readable`, `writable`, `executable` speak of the user of user code.
    Names that are not UTF-8 carry lone surrogates (PEP 383).

    `etag` differs when the content does. `binary`: its beginning has a NUL or is no UTF-8; `mime` is guessed by the name,
    and where that says nothing by `binary`. Both are None where nobody has looked: in lists, and of what is no file that
    can be read.
    """

    name: str
    path: str
    relative_path: str
    type: FileType
    size: int
    mtime: float
    mode: int
    owner: str
    target: str | None = None
    readable: bool = True
    writable: bool = True
    executable: bool = False
    etag: str = ""
    binary: bool | None = None
    mime: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePage:
    """Some of what is in a folder. `next_cursor` asks for those behind it, None where there are no more."""

    files: list[FileInfo]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMatch:
    """One line that matches: `line` and `column`, from 1, are where; `text` is the line, of a long one 500 characters of it,
    `match` what of it matched. `before` and `after` are the lines around it."""

    path: str
    relative_path: str
    line: int
    column: int
    text: str
    match: str
    before: list[str]
    after: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """`truncated`: there may be more matches, because the limit was reached or, with `timed_out`, the time was over.
    `files`: how many were looked into."""

    matches: list[SearchMatch]
    files: int
    truncated: bool
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    """A folder that was copied. `skipped` names what was not, and why: at most 100 of them."""

    files: int
    bytes: int
    skipped: list[str]
