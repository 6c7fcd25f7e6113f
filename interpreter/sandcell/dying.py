"""Whether a process is past executing code, a moment before anybody is told of its end."""

from __future__ import annotations

import signal

__all__ = ["is_dying", "says_dying"]

_EXITING = 0x4  # PF_EXITING, of the flags in /proc/PID/stat
_KILLED = 1 << (signal.SIGKILL - 1)
_STATE, _FLAGS, _PENDING = 0, 6, 28  # counted from behind the name


def is_dying(pid: int) -> bool:
    """Look at the process, which must not have been waited for by the caller. False where it cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return says_dying(file.read(1024))
    except OSError:
        return False


def says_dying(stat: bytes) -> bool:
    """Whether the text of /proc/PID/stat is that of a process that exits, has ended, or has been sent SIGKILL.

    Linux marks SIGKILL as pending in each thread at once; none of them gets back to its code.
    """
    fields = stat.rpartition(b")")[2].split()
    if len(fields) <= _PENDING:
        return False
    is_over = fields[_STATE] in (b"Z", b"X")
    return is_over or bool(int(fields[_FLAGS]) & _EXITING or int(fields[_PENDING]) & _KILLED)
