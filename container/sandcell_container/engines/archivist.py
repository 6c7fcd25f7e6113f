"""The archive program for a sandbox of this machine: a process that enters its namespaces as its user, then packs or unpacks.

    archivist PID STARTED UID CWD VERB PATH     PID 0: there is nothing to enter; UID 0: nobody to become

User code can neither see nor signal it: like the guest it stays outside of the sandbox's PID namespace. What it needs is
imported before, and nothing after: the files that it sees then are those of hostile code.
"""

from __future__ import annotations

import os
import sys

from sandcell_container.engines import namespaces
from sandcell_container.engines.launcher import take_identity
from sandcell_container.guest import archive
from sandcell_container.os_process import OsProcess

__all__ = ["main"]


def main() -> int:
    """Do what the command line says; returns the exit code. What failed is one line on standard error."""
    pid, started, uid, workdir, verb, path = sys.argv[-6:]
    try:
        os.umask(0o022)
        if int(pid):
            _enter(OsProcess(int(pid), int(started)), int(uid))
        os.chdir(workdir)
    except OSError as failed:
        os.write(2, f"{type(failed).__name__}: {failed}\n".encode())
        return 1
    return archive.main(verb, path)


def _enter(init: OsProcess, uid: int) -> None:
    handle = init.open()
    if handle is None:
        raise ProcessLookupError("the sandbox has ended")
    if uid:
        take_identity(uid)
    namespaces.enter(init.pid)
    os.close(handle)
    namespaces.drop_privileges()
    namespaces.hide_from_peers()
    sys.meta_path.clear()
