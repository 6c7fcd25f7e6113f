"""A folder of this machine as a stream of tar, both ways. What comes from a sandbox counts as hostile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from sandcell_container.errors import ErrorCode, error
from sandcell_container.file_info import TransferReport
from sandcell_container.tar_folder import FolderMaker
from sandcell_container.tar_reader import InvalidArchive, TarReader
from sandcell_container.tar_writer import FolderPacker

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["FolderReceiver", "pack_folder"]

_PIECE = 256 * 2**10


def pack_folder(path: str) -> Generator[bytes]:
    """Yield the folder in pieces of some size. Raises OSError where it cannot be read."""
    held, size = list[bytes](), 0
    for chunk in FolderPacker(os.fsencode(path)).chunks():
        held.append(chunk)
        size += len(chunk)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


class FolderReceiver:
    """Makes in the folder `path` what a stream holds: `write` its pieces, then `finish`. A context manager.

    Nothing is written outside of the folder, whatever the stream says: symlinks that lead out of it are left out.

    Raises:
        OSError: it cannot be written there.
        InternalError: what came is no archive.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
        self._maker = FolderMaker(os.fsencode(path), any_links=False)
        self._reader = TarReader(self._maker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._maker.close()

    def write(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except InvalidArchive as problem:
            raise _nonsense(problem) from problem

    def finish(self) -> TransferReport:
        """Return what was made."""
        try:
            self._reader.close()
        except InvalidArchive as problem:
            raise _nonsense(problem) from problem
        maker = self._maker
        maker.finish()
        return TransferReport(files=maker.files, bytes=maker.bytes, skipped=maker.left_out)


def _nonsense(problem: InvalidArchive) -> Exception:
    return error(
        ErrorCode.INTERNAL,
        f"the sandbox sent a folder that cannot be made here: {problem}",
        hint="what is in it may have been made to do harm",
    )
