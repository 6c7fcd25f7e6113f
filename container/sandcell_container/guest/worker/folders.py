"""Folders and names: looked at, made, removed, given another name."""

from __future__ import annotations

import errno
import os
import stat

from sandcell_container.guest.worker.describing import describe_one
from sandcell_container.guest.worker.opening import FOLDER, make_folder, rename_new, step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["mkdir", "place_in", "remove", "remove_tree", "rename", "stat_file"]


def stat_file(reply: Reply, path: bytes, _: dict[str, Any]) -> None:
    reply.done(describe_one(path))


def mkdir(reply: Reply, path: bytes, _: dict[str, Any]) -> None:
    make_folder(path)
    reply.done(describe_one(path))


def remove(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    if not is_folder:
        os.unlink(path)
    elif request["recursive"]:
        remove_tree(path)
    else:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    reply.done(None)


def rename(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Give another name, on the same file system."""
    target = os.fsencode(request["to"])
    os.lstat(path)  # before a folder is made for what is not there
    make_folder(os.path.dirname(target))
    place_in(path, target, overwrite=request["overwrite"])
    reply.done(describe_one(target))


def place_in(source: bytes, target: bytes, *, overwrite: bool) -> None:
    """Rename `source` to `target`, over what is there only with `overwrite`."""
    if overwrite:
        os.rename(source, target)
    else:
        rename_new(source, target)


def remove_tree(path: bytes) -> None:
    """Remove a folder and what is in it, however deep: one descriptor is open at a time, and no path grows.

    The way back up is `..`, which has to be the folder it came from: nothing else is touched when code moves folders.
    """
    above: list[tuple[os.stat_result, str, list[str]]] = []
    folder = os.open(path, FOLDER)
    try:
        left = _remove_files(folder)
        while left or above:
            if left:
                name = left.pop()
                above.append((os.fstat(folder), name, left))
                folder = step(folder, name)
                left = _remove_files(folder)
            else:
                status, name, left = above.pop()
                folder = step(folder, "..")
                if not os.path.samestat(os.fstat(folder), status):
                    raise OSError(errno.EBUSY, "was moved meanwhile")
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(path)


def _remove_files(folder: int) -> list[str]:
    """Remove what is in `folder` and no folder; return the names of those."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]
