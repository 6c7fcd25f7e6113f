"""Reads a stream of tar, piece by piece, and hands what is in it to who makes it: a machine of bytes, with little memory.

Standard library only: the worker and the client have it. What it is given counts as hostile: names that lead out of the
folder, sizes that are none and everything but files, folders and symlinks are refused. Sources: POSIX pax, GNU tar's manual.
"""

from __future__ import annotations

import json
import tarfile

from sandcell_container.tar_writer import SKIPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class TarSink(Protocol):
        """Who makes what is in an archive; names are relative and lead nowhere else, bits are those of permissions."""

        def folder(self, name: tuple[bytes, ...], mode: int, mtime: int) -> None: ...
        def symlink(self, name: tuple[bytes, ...], target: bytes) -> None: ...
        def begin_file(self, name: tuple[bytes, ...], mode: int, mtime: int) -> None: ...
        def write(self, data: memoryview) -> None: ...
        def end_file(self) -> None: ...
        def skipped(self, names: list[str]) -> None: ...


__all__ = ["InvalidArchive", "TarReader"]

BLOCK = 512
LONGEST_RECORDS = 2**18  # of a header that says more of the next one
LONGEST_NAME = 4095
LATEST = 2**33  # seconds since the epoch: what no file system may know
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_MORE = (b"x", b"X", b"g", b"L", b"K")


_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class InvalidArchive(ValueError):
    """It is no tar archive, or holds what is not made from one."""


class TarReader:
    """`feed` takes the stream, `close` says that there is no more. Both raise InvalidArchive, and what the sink raises."""

    def __init__(self, sink: TarSink) -> None:
        self._sink = sink
        self._held = bytearray()
        self._left = 0  # bytes of the present file
        self._padding = 0
        self._records: bytearray | None = None  # of a header that says more
        self._kind = b""
        self._next: dict[str, bytes] = {}
        self._is_file = False
        self._is_over = False

    def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._is_over:
            if self._left:
                piece = view[: self._left]
                self._take(piece)
            elif self._padding:
                piece = view[: self._padding]
                self._padding -= len(piece)
            else:
                piece = view[: BLOCK - len(self._held)]
                self._held += piece
                if len(self._held) == BLOCK:
                    block, self._held = bytes(self._held), bytearray()
                    self._read_header(block)
            view = view[len(piece) :]

    def close(self) -> None:
        if not self._is_over:
            raise InvalidArchive(_compression(self._held) or "the archive ends before its end")

    def _take(self, piece: memoryview) -> None:
        self._left -= len(piece)
        if self._records is not None:
            self._records += piece
            if not self._left:
                self._read_records(bytes(self._records))
        elif self._is_file:
            self._sink.write(piece)
            if not self._left:
                self._end_file()

    def _read_header(self, block: bytes) -> None:
        if not any(block):
            self._is_over = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError, OverflowError) as problem:
            raise InvalidArchive(_compression(block) or f"it is no tar archive: {problem}") from None
        if info.type in _MORE:
            self._begin_records(info)
            return
        more, self._next = self._next, {}
        size = _number(more["size"]) if "size" in more else info.size
        mtime = _number(more["mtime"].partition(b".")[0]) if "mtime" in more else int(info.mtime)
        name = _safe_name(more.get("path", _bytes_of(info.name)))
        self._make(info, name, more, size, min(max(mtime, 0), LATEST))

    def _make(
        self, info: tarfile.TarInfo, name: tuple[bytes, ...], more: dict[str, bytes], size: int, mtime: int
    ) -> None:
        mode = info.mode & 0o777
        if info.type in _FILES and not info.name.endswith("/"):
            self._begin_file(name, mode, mtime, size)
        elif size:
            raise InvalidArchive(f"{_shown(name)} is no file and has content")
        elif info.type in (tarfile.DIRTYPE, tarfile.AREGTYPE):
            self._sink.folder(name, mode, mtime)
        elif info.type == tarfile.SYMTYPE:
            target = more.get("linkpath", _bytes_of(info.linkname))
            if not name or not target or len(target) > LONGEST_NAME or b"\0" in target:
                raise InvalidArchive(f"{_shown(name)} is a symlink to nowhere")
            self._sink.symlink(name, target)
        else:
            raise InvalidArchive(f"{_shown(name)} is no file, folder or symlink")

    def _begin_file(self, name: tuple[bytes, ...], mode: int, mtime: int, size: int) -> None:
        if not name:
            raise InvalidArchive("a file has no name")
        if not 0 <= size < 2**62:
            raise InvalidArchive(f"{_shown(name)} has {size} bytes")
        self._sink.begin_file(name, mode, mtime)
        self._is_file, self._left, self._padding = True, size, -size % BLOCK
        if not size:
            self._end_file()

    def _end_file(self) -> None:
        self._is_file = False
        self._sink.end_file()

    # headers that say more of the next one

    def _begin_records(self, info: tarfile.TarInfo) -> None:
        if not 0 < info.size <= LONGEST_RECORDS:
            raise InvalidArchive(f"a header has {info.size} bytes")
        self._kind, self._records = info.type, bytearray()
        self._left, self._padding = info.size, -info.size % BLOCK

    def _read_records(self, data: bytes) -> None:
        self._records = None
        if self._kind == b"L":
            self._next["path"] = data.rstrip(b"\0")
        elif self._kind == b"K":
            self._next["linkpath"] = data.rstrip(b"\0")
        else:
            found = _parse_records(data)
            if self._kind == b"g":
                self._tell_skipped(found)
            else:
                self._next.update(found)
            if any(key.startswith("GNU.sparse") for key in found):
                raise InvalidArchive("it holds a sparse file")

    def _tell_skipped(self, found: dict[str, bytes]) -> None:
        try:
            names: object = json.loads(found.get(SKIPPED, b"[]"))
        except (ValueError, RecursionError):
            names = []
        if isinstance(names, list):
            told: list[object] = names  # pyright: ignore[reportUnknownVariableType] -- `cast` would load typing
            self._sink.skipped([str(each)[:LONGEST_NAME] for each in told[:1000]])


def _parse_records(data: bytes) -> dict[str, bytes]:
    """Return what the records of a pax header say: "LENGTH KEY=VALUE\\n" each."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        digits, blank, _ = data[at : at + 8].partition(b" ")
        size = _number(digits)
        record = data[at : at + size]
        if not blank or size <= len(digits) + 2 or len(record) != size or not record.endswith(b"\n"):
            raise InvalidArchive("a header is cut")
        key, _, value = record[len(digits) + 1 : -1].partition(b"=")
        found[key.decode("utf-8", "replace")] = value
        at += size
    return found


def _compression(begin: bytes | bytearray) -> str:
    """Return what is wrong with an archive that begins so, where that is compressed."""
    found = (name for magic, name in _COMPRESSED.items() if begin.startswith(magic))
    return next((f"it is compressed with {name}: unpack that first" for name in found), "")


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 19:
        raise InvalidArchive(f"{digits[:20]!r} is no number")
    return int(digits)


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _safe_name(path: bytes) -> tuple[bytes, ...]:
    """Return the parts of a name that stays in the folder; none are the folder itself."""
    parts = tuple(part for part in path.split(b"/") if part not in (b"", b"."))
    if path.startswith(b"/") or b".." in parts:
        raise InvalidArchive(f"{_shown(parts)} leads out of the folder")
    if len(path) > LONGEST_NAME or b"\0" in path or any(len(part) > 255 for part in parts):
        raise InvalidArchive(f"{_shown(parts)} is too long, or holds a NUL")
    return parts


def _shown(parts: tuple[bytes, ...]) -> str:
    return repr(b"/".join(parts)[:200].decode("utf-8", "replace"))
