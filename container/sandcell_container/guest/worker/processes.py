"""Terminals, which belong to whoever opens them, and what /proc says of processes."""

from __future__ import annotations

import os
import time

from sandcell_container.guest.worker.describing import owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["describe_process", "processes", "terminal"]

LONGEST_COMMAND = 2**12


def terminal(reply: Reply, _path: bytes, _: dict[str, Any]) -> None:
    """Open a PTY: its slave belongs to whoever opens it, and the user's programs open theirs again."""
    master, slave = os.openpty()
    try:
        reply.done(os.ttyname(slave), master, slave)
    finally:
        os.close(master)
        os.close(slave)


def processes(reply: Reply, _path: bytes, request: dict[str, Any]) -> None:
    for pid in request["pids"]:
        row = describe_process(pid, command_of(pid), owner_of)
        if row is not None:
            reply.part(row)
    reply.done(len(request["pids"]))


def command_of(pid: int) -> bytes:
    """Return the beginning of a process's command line. Takes a lock of that process, and so may hang."""
    try:
        return read_start(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ")
    except (FileNotFoundError, ProcessLookupError):
        return b""


def describe_process(pid: int, command: bytes, name_of: Callable[[int], str]) -> dict[str, object] | None:
    """Return what /proc says of a process, None where it is gone or only waits to be reaped. Source: proc(5).

    Without a `command` it has its name, in brackets. `name_of` makes a name of its user's number. Never hangs.
    """
    try:
        head, _, rest = read_start(f"/proc/{pid}/stat").rpartition(b")")
        uid = read_start(f"/proc/{pid}/status").partition(b"\nUid:\t")[2].split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()
    if fields[0] in (b"Z", b"X"):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks
    return {
        "pid": pid,
        "user": name_of(int(uid)),
        "cpu": (int(fields[11]) + int(fields[12])) / ticks,
        "memory": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        "started": time.time() - age,
        "command": os.fsdecode(command) or f"[{os.fsdecode(head.partition(b'(')[2])}]",
    }


def read_start(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(LONGEST_COMMAND)
