"""Copies in and out of a running sandbox of this machine, as streams, by a process with the rights of its user alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple

from sandcell_container.engines.copy_failure import MOST_SAID, failure_of_copy
from sandcell_container.engines.zygote_process import import_path

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from sandcell_container.os_process import OsProcess

__all__ = ["Inside", "copy_in", "copy_out"]

_START = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.archivist import main; sys.exit(main())"
)
_PIECE = 2**18
_END_TIMEOUT = 10.0  # seconds, of a process that has closed its streams


class Inside(NamedTuple):
    """Where copies are made: in the namespaces of `init`, None without any, as the user `uid`, None for the own one."""

    init: OsProcess | None
    uid: int | None
    workdir: str


def copy_in(inside: Inside, path: str, archive: Iterable[bytes]) -> None:
    """Unpack a tar stream in the folder `path`. Source: `Engine.copy_in`.

    Raises:
        NotFound (FILE_NOT_FOUND), InvalidRequest (NOT_A_DIRECTORY, INVALID_PATH: a member leads out of the folder),
        Refused (PERMISSION_DENIED), Limited (NO_SPACE), Gone (SANDBOX_GONE: it has just ended).
    """
    with _running(inside, "unpack", path) as (process, given, _):
        try:
            for piece in archive:
                left = memoryview(piece)
                while left:
                    left = left[given.write(left) :]
            given.close()
        except BrokenPipeError:
            pass  # it has ended, and says why
        _check(process, path)


def copy_out(inside: Inside, path: str) -> Iterator[bytes]:
    """Yield `path` as a tar stream, in pieces. Source: `Engine.copy_out`; errors: as `copy_in`."""
    with _running(inside, "pack", path) as (process, given, taken):
        given.write(b"go\n")
        given.close()
        while data := taken.read(_PIECE):
            yield data
        _check(process, path)


def _check(process: subprocess.Popen[bytes], path: str) -> None:
    """Raise what it says where it has failed."""
    assert process.stderr is not None
    said = process.stderr.read(MOST_SAID)
    if process.wait(_END_TIMEOUT):
        raise failure_of_copy(path, said)


@contextmanager
def _running(
    inside: Inside, verb: str, path: str
) -> Generator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """Run it for the block, with its input and output, neither of them buffered; it is ended with the block."""
    init = (inside.init.pid, inside.init.started) if inside.init is not None else (0, 0)
    where = [*map(str, (*init, inside.uid or 0)), inside.workdir]
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _START, json.dumps(import_path()), *where, verb, os.fsdecode(path)],
        bufsize=0,
        cwd="/",
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, process.stdin, process.stdout
        finally:
            process.kill()
