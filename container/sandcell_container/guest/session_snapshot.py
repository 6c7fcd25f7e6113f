"""The state of a session as a script that another bash begins with: what the session's own bash says of it, no more.

Bash writes it, as the user, into a file; a descriptor with the same bytes is what the other bash reads, so nothing
that changes the file later changes the snapshot. It holds the folder, options, functions, aliases, variables and the
umask; traps, jobs and open files are the session's alone.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.shell_lines import OUR_FUNCTIONS
from sandcell_container.holes import write_all
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from sandcell_container.guest.readable_file import ReadableFile
    from sandcell_container.guest.session import Session
    from sandcell_container.guest.session_command import CommandOrder

__all__ = ["Snapshot", "SnapshotStore", "take_snapshot"]

DESCRIPTOR = 3
"""The number at which the other bash finds the snapshot."""

_LARGEST = 64 * 2**20
_TARGET = "__sandcell_target"
# Each on its own: what a DEBUG trap of the user's says must not get into the file. `||`, for `set -e` and ERR traps.
_PARTS = (
    rb'''\builtin printf '%s\0' "${PWD-}"''',
    rb"""\builtin shopt -p""",  # first: patterns in functions may need them
    rb"""\builtin declare -f""",
    rb"""\builtin declare -Fx""",
    rb"""\builtin declare -p""",
    rb"""\builtin alias -p""",
    rb"""\builtin umask -p""",
    rb"""\builtin printf '%%s\n' 'unset -v "${!__sandcell_@}"; unset -f %s'""" % b" ".join(OUR_FUNCTIONS),
    rb"""\builtin set +o""",  # last: `set -e` and `set -u` are for the command
)
_END = b"# end of the snapshot\n"
_WRITE = (
    b"\n".join(
        rb"%s %s " % (part, b">>" if at else b">|") + b'"$__sandcell_target" || \\builtin :'
        for at, part in enumerate(_PARTS)
    )
    + rb"""
\builtin printf '%s\n' '# end of the snapshot' >>"$__sandcell_target"
"""
)
# Some of what bash says cannot be said again, as of variables that are always read-only: that is nobody's business.
_BEFORE = b"unset -v BASH_ENV PATH; exec 63>&2 2>/dev/null\n"
_AFTER = b"exec 2>&63 63>&- %d<&-\n" % DESCRIPTOR
_EXEC = r'\builtin exec -- "$@"'


class SnapshotStore(Protocol):
    """Reads and removes files with the user's rights; `Files` is one."""

    async def mkdir(self, path: str) -> object: ...
    async def read(self, path: str) -> ReadableFile: ...
    def remove_soon(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`fd` is the script, which its owner closes; `cwd` the folder that it was taken in."""

    fd: int
    cwd: str

    def argv(self, command: str | Sequence[str]) -> tuple[str, ...]:
        """Return what to start, in `cwd`, with `fd` as its descriptor 3, for a line or a program and its arguments."""
        if isinstance(command, str):
            return ("bash", "-c", command)
        return ("bash", "-c", _EXEC, "bash", *command)

    def env(self, path: str) -> dict[str, str]:
        """Return the environment to start it with; all others come out of the snapshot. `path` is where bash is found."""
        return {"PATH": path, "BASH_ENV": f"/dev/fd/{DESCRIPTOR}"}


async def take_snapshot(session: Session, order: CommandOrder, store: SnapshotStore, folder: str) -> Snapshot:
    """Return the state of a session, in its turn, with `cwd` and `env` of `order` in it; the order's text is not used.

    `folder` is where the file is made, and removed again.

    Raises as `Session.run`, and:
        InvalidRequest: CWD_NOT_FOUND, INVALID_ENV_NAME. Conflict (BUSY): its turn did not come.
        Unavailable (START_FAILED): it could not be written. TOO_LARGE: it has more than 64 MiB.
        Gone (SESSION_ENDED): the session ended.
    """
    path = f"{folder}/{new_id('ses')}"
    session.check_live()
    await store.mkdir(folder)
    env = {**order.env, _TARGET: path}
    command = session.run(
        replace(order, text=_WRITE.decode(), env=env, stdin=None, stream=False, max_output=2**16)
    )
    try:
        end = (await command.wait()).end
        if end.state == "lost":
            session.check_live()
        if end.cause != "exited" or end.code != 0:
            raise _not_written(f"bash was {end.cause}")
        file = await store.read(path)
    except BaseException:
        command.end_by("killed")
        raise
    finally:
        store.remove_soon(path)
    try:
        return await _copy(file)
    finally:
        await file.aclose()


async def _copy(file: ReadableFile) -> Snapshot:
    data = bytearray()
    async for chunk in file.chunks():
        data += chunk
        if len(data) > _LARGEST:
            message = f"the state of the session has more than {_LARGEST} bytes"
            raise error(ErrorCode.TOO_LARGE, message, hint="unset its large variables")
    cwd, found, script = bytes(data).partition(b"\0")
    if not found or not script.endswith(_END):
        raise _not_written("it is not whole")
    with _new_file() as fd:
        for part in (_BEFORE, script, _AFTER):
            write_all(fd, part)
        os.lseek(fd, 0, os.SEEK_SET)
        return Snapshot(fd=os.dup(fd), cwd=os.fsdecode(cwd))


@contextmanager
def _new_file() -> Generator[int]:
    fd = os.memfd_create("snapshot")
    try:
        yield fd
    finally:
        os.close(fd)


def _not_written(why: str) -> Exception:
    return error(
        ErrorCode.START_FAILED,
        f"the state of the session could not be written: {why}",
        hint="look at the space at home",
    )
