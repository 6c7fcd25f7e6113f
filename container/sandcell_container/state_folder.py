"""The folders in which a user's records are. Who can write in one, or above it, could put records of his own there."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_folders", "make_state_folder", "unfit"]

_ABOVE = 0o755  # of what is made above it, whatever the umask: nobody else's to write


def make_state_folder(path: Path) -> None:
    """Make the folder `path`, 0700, unless it is there and this user's alone.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): it cannot be made, or is of somebody else or anybody's to write, as far as the
            folder that it lies in.
    """
    try:
        make_folders(path)
        problem = _problem(path) or _problem(path.parent)
    except OSError as failed:
        raise unfit(path, failed.strerror or str(failed)) from failed
    if problem:
        raise unfit(path, problem)


def make_folders(path: Path) -> None:
    """Make the folder `path`, 0700, and those above it that are missing."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        _make_above(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def _make_above(path: Path) -> None:
    if not path.parent.is_dir():
        _make_above(path.parent)
    path.mkdir(mode=_ABOVE, exist_ok=True)


def _problem(path: Path) -> str:
    """Return why a folder may not be trusted, nothing where it may. Root's are, and those of which each may take away
    only his own, as /tmp. A group that may write is the user's choice, and often the user alone."""
    found = path.stat()
    if found.st_uid not in {0, os.geteuid()}:
        return f"{path} belongs to the user {found.st_uid}"
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        return f"everybody may write in {path}"
    return ""


def unfit(path: Path, problem: str) -> SandcellError:
    """Return the error of a state folder that cannot be used."""
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"sandboxes cannot be recorded in {path}: {problem}",
        hint="name another folder by SANDCELL_STATE_DIR",
    )
