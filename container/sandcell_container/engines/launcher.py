"""The child of the zygote that becomes bubblewrap (or a bare spawner): what it gives up on the way."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import TYPE_CHECKING, NoReturn

from sandcell_container.engines import namespaces
from sandcell_container.engines.launch import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["become", "main", "take_identity"]

_FIRST = 3  # the first descriptor that the program finds, after 0, 1 and 2
_HIGHEST = 65536


def become(program: Program, descriptors: Sequence[int], *, log: int, parent: int) -> NoReturn:
    """Turn this process into `program.argv`, its descriptors from 3 on `descriptors`, its errors written to `log`.

    Never returns: what fails is written to `log` after "sandcell: ", and the process ends with 127.
    """
    try:
        namespaces.tie_to_parent(parent)
        namespaces.leave_keyring()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # user code's memory is no business of the host's
        for folder in program.groups:
            _join(folder)
        if program.identity is not None:
            if program.sources:
                namespaces.own_mounts()
                namespaces.bind_all(program.sources, program.place)
            take_identity(program.identity)
            namespaces.tie_to_parent(parent)
        os.chdir("/")
        os.umask(0o022)
        _arrange(descriptors, log)
        os.execve(program.argv[0], program.argv, {})
    except OSError as failed:
        os.write(
            log, f"sandcell: {failed.strerror or failed}: {failed.filename or program.argv[0]}\n".encode()
        )
    finally:
        os._exit(127)


def main() -> NoReturn:
    """Become argv[2], a Program as JSON, with the descriptors argv[3]; its words go to standard error."""
    program = Program.from_fields(json.loads(sys.argv[2]))
    become(program, json.loads(sys.argv[3]), log=2, parent=os.getppid())


def take_identity(uid: int) -> None:
    """Become the user and group `uid` for good, in no other group."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as failed:
        raise OSError(failed.errno, f"become the user {uid}: {failed.strerror}") from failed


def _join(group: str) -> None:
    handle = os.open(os.path.join(group, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, b"0")  # who writes
    finally:
        os.close(handle)


def _arrange(descriptors: Sequence[int], log: int) -> None:
    # By way of numbers above all others: a target may be the number of one still to be moved, and dup2 of a
    # number to itself would leave it to be closed by exec.
    above = max(*descriptors, log, _FIRST + len(descriptors)) + 1
    for at, descriptor in enumerate((log, log, *descriptors)):
        os.dup2(descriptor, above + at, inheritable=False)
    for at in range(2 + len(descriptors)):
        os.dup2(above + at, 1 + at)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(_FIRST + len(descriptors), _HIGHEST)
