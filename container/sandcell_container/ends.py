"""How sandboxes ended of which nothing else is left: so much is kept of the last of them, for who asks a moment later."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from sandcell_container.memo import read_end
from sandcell_container.record_file import open_plain, read_record

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell_container.end import End

__all__ = ["Ends", "read_words"]

_MOST = 200
_MOST_WORDS = 4 * 2**10  # bytes


def read_words(log: Path) -> str:
    """Return the end of what a guest has said, nothing where it said nothing."""
    try:
        with open(open_plain(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_WORDS))
            return file.read(_MOST_WORDS).decode(errors="replace")
    except OSError:
        return ""


class Ends:
    """One small file for each in `folder`, shared by programs; the oldest go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, sandbox_id: str, end: End, words: str = "") -> None:
        """Remember how a sandbox ended, and what its guest said last. Without room it is not remembered, which harms
        nothing else."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._drop_oldest()
            path = self._folder / sandbox_id
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(json.dumps({"end": asdict(end), "words": words}) + "\n")

    def find(self, sandbox_id: str) -> End | None:
        """Return how a sandbox ended, None where that is not known any more."""
        return read_end(self._folder / sandbox_id)

    def words(self, sandbox_id: str) -> str:
        """Return what the guest of a sandbox said last, nothing where that is not known any more."""
        try:
            kept = read_record(self._folder / sandbox_id, dict[str, object])
        except ValueError:
            return ""
        return str((kept or {}).get("words", ""))

    def _drop_oldest(self) -> None:
        found = list(self._folder.iterdir())
        if len(found) < _MOST:
            return
        for path in sorted(found, key=lambda each: each.lstat().st_mtime)[: len(found) - _MOST + 1]:
            path.unlink(missing_ok=True)
