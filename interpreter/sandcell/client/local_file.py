"""A file of this machine that is written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandcell_container.drafts import draft_name
from sandcell_container.holes import write_with_holes

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["OpenFile", "Replacement"]


class OpenFile:
    """A regular file of this machine that is sent: as many bytes as it has now. A context manager.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # closed by `__exit__`
        self.fd = self._file.fileno()
        status = os.fstat(self.fd)
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Replacement:
    """What is to become the file `path`: it lies beside it until `keep`, and `drop` takes it away.

    A symlink keeps pointing where it does, and its target is replaced.

    Raises:
        OSError: it cannot be written there, or what is there is no regular file: a pipe might be waited for without end,
            and a device is not to be replaced.
    """

    def __init__(self, path: str) -> None:
        self._target = Path(os.path.realpath(path))
        if self._target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if self._target.exists() and not self._target.is_file():
            raise OSError(errno.ENXIO, "what is there is no regular file", path)
        self._part: Path | None = self._target.with_name(draft_name().decode())
        self._file: BinaryIO = self._part.open("wb")

    @property
    def fd(self) -> int:
        """Its descriptor, for who writes to that and not by `write`."""
        return self._file.fileno()

    def write(self, data: bytes) -> None:
        write_with_holes(self.fd, data)

    def keep(self) -> None:
        """Put it in its place, with the permission bits of what it replaces."""
        if self._part is None:
            return
        os.ftruncate(self.fd, os.lseek(self.fd, 0, os.SEEK_CUR))
        self._file.close()
        if self._target.exists():
            self._part.chmod(stat.S_IMODE(self._target.stat().st_mode))
        self._part.replace(self._target)
        self._part = None

    def drop(self) -> None:
        """Take it away, unless it was kept."""
        try:
            self._file.close()  # which writes what is left of it, and a full disk has no room
        finally:
            if self._part is not None:
                self._part.unlink(missing_ok=True)
