"""Removal of a tree that hostile code has filled: any name, any depth, any mode, any symlink."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["remove_tree"]


def remove_tree(path: Path) -> None:
    """Remove the directory `path` and all below it; nothing there is fine.

    Follows no symlink and keeps two descriptors open whatever the depth: folders found on the way are moved up into
    `path`, so no path ever grows long. Folders without permissions are opened up first. Nobody may write below
    `path` meanwhile, but other removers of the same tree may be at work.
    """
    try:
        top = _open_folder(str(path), None)
    except FileNotFoundError:
        return
    try:
        while folders := _remove_files(top, top):
            for name in folders:
                _empty(name, top)
    finally:
        os.close(top)
    _ignore_missing(os.rmdir, path)


def _empty(name: str, top: int) -> None:
    """Remove the folder `name` of `top`, its own folders moved up into `top`."""
    try:
        folder = _open_folder(name, top)
    except FileNotFoundError:
        return  # another remover was faster
    try:
        _remove_files(folder, top)
    finally:
        os.close(folder)
    _ignore_missing(os.rmdir, name, dir_fd=top)


def _remove_files(folder: int, top: int) -> list[str]:
    """Remove what is in `folder` and no folder; returns the folders left in it, which is none but in `top`."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            _ignore_missing(os.unlink, name, dir_fd=folder)
        elif folder != top:
            _move_up(name, folder, top)
    return [name for name, is_folder in entries if is_folder]


def _move_up(name: str, folder: int, top: int) -> None:
    # A folder that changes its parent has to be writable itself, because its ".." is rewritten.
    try:
        os.close(_open_folder(name, folder))
    except FileNotFoundError:
        return
    _ignore_missing(os.rename, name, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=top)


def _open_folder(name: str, parent: int | None) -> int:
    """Open a folder for reading, given all rights for its owner first; a symlink is an error."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        # Through /proc because chmod by descriptor is refused for O_PATH and chmod by name follows symlinks.
        itself = f"/proc/self/fd/{handle}"
        os.chmod(itself, 0o700)
        return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _ignore_missing(action: Callable[..., object], *args: object, **kwargs: object) -> None:
    try:
        action(*args, **kwargs)
    except FileNotFoundError:
        pass  # another remover was faster
