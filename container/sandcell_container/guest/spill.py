"""The whole of an output of which only head and tail are kept: a file of the user's, made when the cut is made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Spill", "SpillStore"]

_MAX_BYTES = 64 * 2**20  # what a journal may have on disk


class SpillStore(Protocol):
    """Makes and removes files with the user's rights; `Files` is one."""

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        """Make the new file `path`, and the folders above it; call back with a descriptor to write it, or None."""
        ...

    def remove_soon(self, path: str) -> None: ...


class Spill:
    """One file. What cannot be kept whole is not kept: no space, or more than 64 MiB."""

    def __init__(self, store: SpillStore, path: str) -> None:
        self._store = store
        self._path = path
        self._fd = -1
        self._size = 0

    def open_soon(self, callback: Callable[[], None]) -> None:
        """Make the file, then call back, whether that worked or not."""

        def opened(fd: int | None) -> None:
            self._fd = -1 if fd is None else fd
            callback()

        self._store.open_soon(self._path, opened)

    def write(self, data: bytes) -> None:
        """Add `data`, or give up the file."""
        if self._fd < 0:
            return
        self._size += len(data)
        try:
            if self._size > _MAX_BYTES:
                raise OSError("more than a spilled output may have")
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._close()
            self._store.remove_soon(self._path)

    def finish(self) -> str | None:
        """Return the path when all that was written is there."""
        if self._fd < 0:
            return None
        self._close()
        return self._path

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1
