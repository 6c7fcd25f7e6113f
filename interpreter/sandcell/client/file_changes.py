"""What a watch of files tells, as values. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from sandcell.client.checks import check_number, check_path
from sandcell.client.file_options import check_patterns
from sandcell.client.protocol import Request, error_of, path_of
from sandcell.names import decode_names
from sandcell_container.frames import Cursor, Kind
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell.client.file_options import SandboxPath
    from sandcell_container.frames import Entry

__all__ = ["FileChange", "change_of", "watch_request"]

ChangeType = Literal["created", "modified", "deleted", "moved", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One change. `path` is absolute, `relative_path` counts from what is watched; `old_path` is where it was moved from.

    "lost": some changes were not seen, and `why`; look at what is there. Watching again from the `cursor` gives what came after
    it. `time` in seconds since the epoch.
    """

    type: ChangeType
    path: str
    relative_path: str
    cursor: str
    time: float
    old_path: str | None = None
    directory: bool = False
    why: str = ""


class _Told(msgspec.Struct, frozen=True):
    type: ChangeType
    path: str = ""
    relative_path: str = ""
    old_path: str | None = None
    directory: bool = False
    why: str = ""


def change_of(entry: Entry, epoch: str) -> FileChange | None:
    """Return the change that an entry tells, None where it tells none.

    Raises:
        SandcellError: the guest tells that it cannot go on.
    """
    cursor = str(Cursor(epoch, entry.seq, entry.offset))
    if entry.kind == Kind.ERROR:
        raise error_of(500, entry.data)
    if entry.kind == Kind.GAP:
        count = cast("dict[str, int]", json.loads(entry.data)).get("entries", 0)
        told = _Told(type="lost", why=f"{count} changes are no longer kept")
    elif entry.kind == Kind.CHANGED:
        told = decode_names(entry.data, _Told)
    else:
        return None
    return FileChange(
        type=told.type,
        path=told.path,
        relative_path=told.relative_path,
        cursor=cursor,
        time=entry.time,
        old_path=told.old_path,
        directory=told.directory,
        why=told.why,
    )


def watch_request(
    path: SandboxPath,
    query: dict[str, str],
    *,
    recursive: bool,
    include: str | Iterable[str],
    exclude: str | Iterable[str],
    debounce: float,
) -> Request:
    """Return the request of a watch, with an id of its own: repeated, it is the same watch. Raises INVALID_PATH, INVALID_ARGUMENT."""
    if debounce:
        check_number(debounce, what="debounce", hint="seconds, 0 to 60")
    patterns = [("include", each) for each in check_patterns(include, what="include")]
    patterns += [("exclude", each) for each in check_patterns(exclude, what="exclude")]
    return Request(
        method="GET",
        path=path_of("files", "watch"),
        query={
            **query,
            "path": check_path(path),
            "id": new_id("wch"),
            "recursive": "true" if recursive else "false",
            "debounce": f"{debounce:g}",
        },
        more_query=tuple(patterns),
    )
