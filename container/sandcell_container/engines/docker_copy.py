"""Copies in and out of a running container, as streams: by a program that runs as its user, so with no more rights."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandcell_container.engines.copy_failure import MOST_SAID, failure_of_copy, not_running
from sandcell_container.guest import archive as archive_program

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Iterable, Iterator

    from docker.models.containers import Container

__all__ = ["copy_in", "copy_out"]

_USER = "user"  # Source: container/image/Dockerfile
_PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
_TEXT = Path(archive_program.__file__).read_text()
_HEAD = struct.Struct(">BxxxI")  # Source: Engine API, "Attach to a container", stream format
_STDOUT = 1
_PIECE = 2**16


def copy_in(container: Container, path: str, archive: Iterable[bytes]) -> None:
    """Unpack a tar stream in the folder `path`. Source: `Engine.copy_in`.

    Raises:
        NotFound (FILE_NOT_FOUND), InvalidRequest (NOT_A_DIRECTORY, INVALID_PATH: a member leads out of the folder),
        Refused (PERMISSION_DENIED), Limited (NO_SPACE), Conflict (BUSY: it does not run).
    """
    with _running(container, "unpack", path) as program:
        try:
            for piece in archive:
                program.channel.sendall(piece)
            program.close_input()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has ended, and says why
        for _ in program.output():
            pass
        program.check(path)


def copy_out(container: Container, path: str) -> Iterator[bytes]:
    """Yield `path` as a tar stream, in pieces. Source: `Engine.copy_out`; errors: as `copy_in`."""
    with _running(container, "pack", path) as program:
        program.channel.sendall(
            b"go\n"
        )  # its first bytes could come with the answer's head, where the SDK drops them
        yield from program.output()
        program.check(path)


class _Program:
    """The program inside, and the connection to its streams."""

    def __init__(self, container: Container, exec_id: str, reader: Any) -> None:
        self._api: Any = container.client.api if container.client else None
        self._exec_id = exec_id
        self._reader = reader
        self.channel: socket.socket = reader._sock  # the SDK hands out a reader only
        self._said = b""

    def close_input(self) -> None:
        self.channel.shutdown(1)

    def output(self) -> Iterator[bytes]:
        """Yield what it writes to standard output, to its end; a bounded part of what it says else is kept."""
        while head := self._read(_HEAD.size):
            stream, left = _HEAD.unpack(head)
            while left:
                data = self.channel.recv(min(left, _PIECE))
                if not data:
                    return
                left -= len(data)
                if stream == _STDOUT:
                    yield data
                else:
                    self._said = (self._said + data)[:MOST_SAID]

    def check(self, path: str) -> None:
        """Raise what it says where it has failed."""
        if self._api.exec_inspect(self._exec_id)["ExitCode"]:
            raise failure_of_copy(path, self._said)

    def _read(self, size: int) -> bytes:
        """Return `size` bytes, or none where there are no more."""
        held = b""
        while len(held) < size:
            data = self.channel.recv(size - len(held))
            if not data:
                return b""
            held += data
        return held


@contextmanager
def _running(container: Container, verb: str, path: str) -> Generator[_Program]:
    if container.status != "running":
        raise not_running()
    api: Any = container.client.api if container.client else None
    made = api.exec_create(container.id, [*_PYTHON, _TEXT, verb, path], user=_USER, stdin=True)
    reader = api.exec_start(made["Id"], socket=True)
    try:
        yield _Program(container, str(made["Id"]), reader)
    finally:
        reader._sock.close()
        reader.close()
