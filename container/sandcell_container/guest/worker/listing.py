"""What is in a folder, page by page. A page is found again by the place where the last one ended: nothing is kept between them."""

from __future__ import annotations

import heapq
import os

from sandcell_container.guest.worker.describing import describe
from sandcell_container.guest.worker.globs import PathFilter
from sandcell_container.guest.worker.opening import check_enterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["Found", "list_folder", "walk"]


class Found:
    """One thing in a folder: `path` as it is opened, `relative` to the folder that was walked."""

    __slots__ = ("is_folder", "path", "relative")

    def __init__(self, path: bytes, relative: bytes, *, is_folder: bool) -> None:
        self.path = path
        self.relative = relative
        self.is_folder = is_folder


def walk(
    folder: bytes, *, recursive: bool, hidden: bool, skip: PathFilter | None = None, after: bytes = b""
) -> Iterator[Found]:
    """Yield what is in `folder`, by name, each folder before what is in it, from what comes behind `after` on.

    Symlinks are not followed. What goes away meanwhile is left out, and so is what is in a folder below that the user may
    not read, or that `skip` excludes.
    """
    check_enterable(folder)
    levels = [_entries(folder, b"", hidden, after)]
    while levels:
        found, rest = next(levels[-1], (None, b""))
        if found is None:
            levels.pop()
            continue
        if skip is not None and skip.excludes(found.relative):
            continue
        if not rest:
            yield found
        if recursive and found.is_folder:
            try:
                levels.append(_entries(found.path, found.relative, hidden, rest[1:]))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue


def _entries(folder: bytes, relative: bytes, hidden: bool, after: bytes) -> Iterator[tuple[Found, bytes]]:  # noqa: FBT001 -- once, above
    """Return what is in one folder behind the path `after`; with each what of `after` is below it, and begins with a slash."""
    with os.scandir(folder) as found:
        names = [(each.name, each.is_dir(follow_symlinks=False)) for each in found]
    if not hidden:
        names = [each for each in names if not each[0].startswith(b".")]
    names.sort()
    first, _, below = after.partition(b"/")
    return (
        (
            Found(os.path.join(folder, name), os.path.join(relative, name), is_folder=is_folder),
            b"/" + below if name == first else b"",
        )
        for name, is_folder in names
        if name >= first
    )


def list_folder(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Send at most `limit` entries behind the key `after`, in the order `sort`; at the end, whether there are more."""
    after = request["after"]
    entries = _by_name(path, request) if request["sort"] == "name" else _by_value(path, request)
    limit = request["limit"]
    for entry in entries:
        if limit == 0:
            reply.done({"after": after, "more": True})
            return
        found, status, key = entry
        try:
            reply.part(describe(found.path, found.relative, status))
        except FileNotFoundError:
            continue
        after = key
        limit -= 1
    reply.done({"after": after, "more": False})


def _wanted(path: bytes, request: dict[str, Any], after: bytes) -> Iterator[tuple[Found, os.stat_result]]:
    names = PathFilter(request["glob"])
    walked = walk(path, recursive=request["recursive"], hidden=request["hidden"], after=after)
    for found in walked:
        if names.wants(found.relative):
            try:
                yield found, os.lstat(found.path)
            except FileNotFoundError:
                continue


def _by_name(path: bytes, request: dict[str, Any]) -> Iterator[tuple[Found, os.stat_result, list[Any]]]:
    after = os.fsencode(request["after"][1]) if request["after"] else b""
    for found, status in _wanted(path, request, after):
        yield found, status, [0, os.fsdecode(found.relative)]


def _by_value(path: bytes, request: dict[str, Any]) -> Iterator[tuple[Found, os.stat_result, list[Any]]]:
    """By size or time, the largest or newest first, then by path. All have to be looked at for each page."""
    begin = (request["after"][0], os.fsencode(request["after"][1])) if request["after"] else None
    keyed = (
        (
            (-(status.st_size if request["sort"] == "size" else status.st_mtime_ns), found.relative),
            found,
            status,
        )
        for found, status in _wanted(path, request, b"")
    )
    rest = (each for each in keyed if begin is None or each[0] > begin)
    for key, found, status in heapq.nsmallest(request["limit"] + 1, rest, key=lambda each: each[0]):
        yield found, status, [key[0], os.fsdecode(key[1])]
