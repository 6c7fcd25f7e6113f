"""What a command is to read, from what the caller gave: bytes at once, or an open file that is read as it goes."""

from __future__ import annotations

import io
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from sandcell.client.checks import check_bytes_as_text, check_data, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Stdin", "StdinFile", "check_stdin"]

Stdin = str | bytes | BinaryIO | TextIO
"""What may be given: text, sent as UTF-8; bytes; an open file of either."""

_AT_ONCE = 2**20  # bytes that go into the request itself, which may then be sent a second time
_CHUNK = 2**18
_WAITED_FOR = (stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR)


class StdinFile:
    """An open file of the caller's, which stays open. `fd` is what to wait for before each `read`, None where there is
    nothing to wait for. `may_block`: also then, for a line of text that is not whole yet, or for what only the file knows.

    A file that was read from before may hold bytes that no `fd` tells of: these come with the next ones, or at the end.
    """

    def __init__(self, read: Callable[[], bytes], *, fd: int | None = None, may_block: bool = False) -> None:
        self._read = read
        self.fd = fd
        self.may_block = may_block

    def read(self) -> bytes:
        """Return the next bytes, empty at the end.

        Raises what the file raises; InvalidRequest (INVALID_ARGUMENT): it gives neither bytes nor text.
        """
        return self._read()

    @classmethod
    def of_descriptor(cls, fd: int) -> StdinFile:
        """Return what is read from a descriptor, which nobody else reads meanwhile."""
        return cls(lambda: os.read(fd, _CHUNK), fd=fd if _is_waited_for(fd) else None)


def check_stdin(given: Any) -> bytes | StdinFile | None:
    """Return what the command reads: bytes that go with the request, or what is read as it goes.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is neither data nor an open file that can be read; a path is none.
    """
    if given is None:
        return None
    if callable(getattr(given, "read", None)):
        return _file(given)
    if isinstance(given, os.PathLike):
        raise wrong("stdin", "is a path, which is no file", hint="open() it, or read it: path.read_bytes()")
    data = check_data(given, what="stdin")
    return data if len(data) <= _AT_ONCE else StdinFile(_reader(io.BytesIO(data)))


def _file(file: Any) -> StdinFile:
    if getattr(file, "closed", False):
        raise wrong("stdin", "is a closed file", hint="open it again; None gives the command no input")
    if not getattr(file, "readable", lambda: True)():
        raise wrong("stdin", "is a file that cannot be read", hint="open it for reading")
    fd = _descriptor_of(file)
    if fd is None or not _is_waited_for(fd):
        return StdinFile(_reader(file), may_block=True)
    by_line = isinstance(file, io.TextIOBase)
    return StdinFile(_reader(file, by_line=by_line), fd=fd, may_block=by_line)


def _reader(file: Any, *, by_line: bool = False) -> Callable[[], bytes]:
    """Return what reads the next piece of `file`. Text that has to be waited for comes by the line: `read` would wait
    for more than there is."""
    if by_line:
        return lambda: _bytes_of(file.readline(_CHUNK))
    read = getattr(file, "read1", file.read)
    return lambda: _bytes_of(read(_CHUNK))


def _bytes_of(piece: object) -> bytes:
    if isinstance(piece, str):
        return check_bytes_as_text(piece, what="stdin").encode("utf-8", "surrogateescape")
    if isinstance(piece, bytes | bytearray | memoryview):
        return bytes(cast("bytes", piece))
    problem = f"is a file that gives {type(piece).__name__}"
    raise wrong("stdin", problem, hint="a file opened by open(), in either mode")


def _descriptor_of(file: Any) -> int | None:
    try:
        fd: object = file.fileno()
    except (AttributeError, OSError):  # io.UnsupportedOperation is one
        return None
    return fd if isinstance(fd, int) else None


def _is_waited_for(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return any(is_so(mode) for is_so in _WAITED_FOR)
