"""Snapshots of sandboxes of this machine: copies of their files, one folder each.

    STATE/snapshots/NAME/          0700
        snapshot.json              0600: what it is, and the Python that its environment stands on
        workspace/  home/
    STATE/snapshots/.draft-RANDOM/ one being made, or left by a crash

A snapshot appears whole, by a rename. Nobody writes into one; a sandbox made of it gets a copy.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell_container.engine import Snapshot
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_tree import remove_tree
from sandcell_container.ids import check_id
from sandcell_container.record_file import read_plain
from sandcell_container.state_folder import make_state_folder
from sandcell_container.tree_copy import copy_tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sandcell_container.registry import Entry

__all__ = ["Snapshots"]

FOLDERS = ("workspace", "home")
_DRAFT = ".draft-"
_OLD_DRAFT_S = 3600.0  # one that nobody can still be making


class _Kept(msgspec.Struct):
    """What a snapshot.json holds."""

    snapshot: Snapshot
    python: dict[str, Any]


class Snapshots:
    """Those of one engine in the folder `state`. Thread-safe, and shared by programs: it holds nothing itself."""

    def __init__(self, state: Path, engine: str) -> None:
        self._state = state
        self._engine = engine

    def make(self, name: str, entry: Entry) -> Snapshot:
        """Copy the files of a sandbox. Errors: see `Engine.snapshot`."""
        check_id(name, what="name of a snapshot")
        if (self._state / name).exists():
            raise _taken(name)
        make_state_folder(self._state)
        self._clean()
        draft = self._state / f"{_DRAFT}{secrets.token_hex(8)}"
        draft.mkdir(mode=0o700)
        try:
            size = sum(copy_tree(entry.folder / each, draft / each) for each in FOLDERS)
            made = Snapshot(name=name, engine=self._engine, created_at=time.time(), size=size)
            _write(draft / "snapshot.json", made, entry.python)
            draft.rename(self._state / name)
        except OSError as failed:
            remove_tree(draft)
            raise _failed(name, failed) from failed
        except BaseException:
            remove_tree(draft)
            raise
        return made

    def list(self) -> Sequence[Snapshot]:
        """Return them, the oldest first."""
        folders = self._state.iterdir() if self._state.is_dir() else ()
        found = [kept.snapshot for folder in folders if (kept := _read(folder)) is not None]
        mine = (each for each in found if each.engine == self._engine)
        return sorted(mine, key=lambda each: each.created_at)

    def pythons(self) -> Sequence[dict[str, Any]]:
        """Return what the Pythons of all snapshots here stand on, whatever engine they are of."""
        folders = self._state.iterdir() if self._state.is_dir() else ()
        return [kept.python for folder in folders if (kept := _read(folder)) is not None]

    def restore(self, name: str, folder: Path, *, owner: int | None) -> dict[str, Any]:
        """Copy the files of a snapshot into a sandbox's `folder`, for the user `owner`; returns what its Python stands on.

        Raises:
            Unavailable (IMAGE_NOT_FOUND): there is no such snapshot.
            OSError: as `copy_tree`.
        """
        place = self._state / name
        kept = _read(place) if name and "/" not in name and not name.startswith(".") else None
        if kept is None or kept.snapshot.engine != self._engine:
            known = ", ".join(each.name for each in self.list()[-20:])
            raise error(
                ErrorCode.IMAGE_NOT_FOUND,
                f"the engine {self._engine} has no snapshot {name[:80]!r}, and it has no other images",
                hint=f"there are: {known}" if known else "sandbox.snapshot(name) makes one",
            )
        for each in FOLDERS:
            copy_tree(place / each, folder / each, owner=owner)
        return kept.python

    def remove(self, name: str) -> None:
        """Remove one; none is fine."""
        check_id(name, what="name of a snapshot")
        grave = self._state / f"{_DRAFT}{secrets.token_hex(8)}"
        try:
            (self._state / name).rename(grave)
        except FileNotFoundError:
            return
        remove_tree(grave)

    def _clean(self) -> None:
        """Remove what a crash has left."""
        for folder in self._state.iterdir():
            if folder.name.startswith(_DRAFT) and folder.stat().st_mtime < time.time() - _OLD_DRAFT_S:
                remove_tree(folder)


def _write(path: Path, made: Snapshot, python: dict[str, Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"snapshot": asdict(made), "python": python}, file)


def _read(folder: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(read_plain(folder / "snapshot.json"), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None  # a draft, or nothing of ours


def _taken(name: str) -> SandcellError:
    return error(
        ErrorCode.EXISTS,
        f"there is a snapshot {name!r} already",
        hint="give it another name, or remove that one first",
    )


def _failed(name: str, failed: OSError) -> SandcellError:
    match failed.errno:
        case errno.ENOTEMPTY | errno.EEXIST:
            return _taken(name)
        case errno.ENOSPC | errno.EDQUOT:
            return error(ErrorCode.NO_SPACE, f"there is no room for the snapshot {name!r}")
        case _:
            return error(
                ErrorCode.PERMISSION_DENIED,
                f"the snapshot {name!r} cannot be made: {failed.strerror}: {str(failed.filename)[:200]!r}",
                hint="everything has to be readable for the sandbox's own user",
            )
