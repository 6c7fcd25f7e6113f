"""One file as a client sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FileInfo", "FileType"]

FileType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One file of the sandbox. `path` is absolute, `relative_path` counts from the folder that was listed.

    `size` in bytes, `mtime` in seconds since the epoch, `mode` the permission bits, `owner` a user name or uid.
    `target` is where a symlink points. `readable`, `writable`, `executable` speak of the user of user code.
    Names that are not UTF-8 carry lone surrogates (PEP 383).
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
