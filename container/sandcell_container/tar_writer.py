"""A folder as a stream of tar, made piece by piece. Standard library only: the worker and the client have it.

Regular files, folders and symlinks go in, with permission bits and times; what else is there, and what cannot be read, is
named in a last header that other programs pass over.
"""

from __future__ import annotations

import json
import os
import stat
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SKIPPED", "FolderPacker"]

BLOCK = 512
PIECE = 2**18
SKIPPED = "SANDCELL.skipped"
MOST_TOLD = 200
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FolderPacker:
    """`wants` says of relative paths which go in; what is in a folder that it does not want stays out, too."""

    def __init__(self, folder: bytes, *, wants: Callable[[bytes], bool] = lambda _: True) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []
        self._folder = folder
        self._wants = wants

    def chunks(self) -> Iterator[bytes]:
        """Yield the stream. OSError where the folder itself cannot be read."""
        with os.scandir(self._folder):
            pass
        todo = [b""]
        while todo:
            relative = todo.pop()
            yield from self._pack(relative, todo)
        if self.skipped:
            yield _global_header(json.dumps(self.skipped[:MOST_TOLD]))
        yield bytes(2 * BLOCK)

    def _pack(self, relative: bytes, todo: list[bytes]) -> Iterator[bytes]:
        path = os.path.join(self._folder, relative) if relative else self._folder
        try:
            status = os.lstat(path) if relative else os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                names = sorted(os.listdir(path), reverse=True)
                below = [os.path.join(relative, name) for name in names]
                todo += [each for each in below if self._wants(each)]
                yield _header(relative or b".", status, tarfile.DIRTYPE)
            elif stat.S_ISLNK(status.st_mode):
                yield _header(relative, status, tarfile.SYMTYPE, target=os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                yield from self._pack_file(relative, path)
            else:
                self._skip(relative, "it is no file, folder or symlink")
        except OSError as problem:
            if not relative:
                raise
            self._skip(relative, problem.strerror or "it cannot be read")

    def _pack_file(self, relative: bytes, path: bytes) -> Iterator[bytes]:
        with os.fdopen(os.open(path, _OPEN), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                self._skip(relative, "it was replaced meanwhile")
                return
            yield _header(relative, status, tarfile.REGTYPE, size=status.st_size)
            yield from self._pack_bytes(relative, file.fileno(), status.st_size)
        self.files += 1

    def _pack_bytes(self, relative: bytes, fd: int, size: int) -> Iterator[bytes]:
        left = size
        while left > 0:
            try:
                data = os.read(fd, min(PIECE, left))
            except OSError:
                data = b""
            if not data:
                self._skip(relative, "it became shorter meanwhile, or cannot be read: its end is zeros")
                data = bytes(min(PIECE, left))
            left -= len(data)
            self.bytes += len(data)
            yield data
        yield bytes(-size % BLOCK)

    def _skip(self, relative: bytes, why: str) -> None:
        text = f"{os.fsdecode(relative)}: {why}"
        if not self.skipped or self.skipped[-1] != text:
            self.skipped.append(text)


def _header(
    relative: bytes, status: os.stat_result, kind: bytes, *, size: int = 0, target: bytes = b""
) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(relative))
    info.type = kind
    info.size = size
    info.mode = stat.S_IMODE(status.st_mode) & 0o777
    info.mtime = max(int(status.st_mtime), 0)
    info.linkname = os.fsdecode(target)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _global_header(skipped: str) -> bytes:
    return tarfile.TarInfo.create_pax_global_header({SKIPPED: skipped})
