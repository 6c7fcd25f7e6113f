"""A file of this machine that is written whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["Replacement"]


class Replacement:
    """What is to become the file `path`: it lies beside it until `keep`, and `drop` takes it away.

    A symlink keeps pointing where it does, and its target is replaced. What is there and no file, a pipe or a
    device, is written as it is.

    Raises:
        OSError: it cannot be written there.
    """

    def __init__(self, path: str) -> None:
        self._target = Path(os.path.realpath(path))
        in_place = self._target.exists() and not self._target.is_file()
        self._part = None if in_place else self._target.with_name(f".sandcell-{secrets.token_hex(8)}.part")
        self._file: BinaryIO = (self._target if self._part is None else self._part).open("wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def keep(self) -> None:
        """Put it in its place, with the permission bits of what it replaces."""
        self._file.close()
        if self._part is None:
            return
        if self._target.exists():
            shutil.copymode(self._target, self._part)
        self._part.replace(self._target)
        self._part = None

    def drop(self) -> None:
        """Take it away, unless it was kept."""
        try:
            self._file.close()  # which writes what is left of it, and a full disk has no room
        finally:
            if self._part is not None:
                self._part.unlink(missing_ok=True)
