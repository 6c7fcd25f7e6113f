"""Open files of this process: the last ones are for who asks it something, not for what it keeps."""

from __future__ import annotations

import errno
import resource

__all__ = ["leave_room", "raise_limit"]

_SPARE = 64


def raise_limit() -> None:
    """Let this process have as many open files as it ever may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def leave_room(newest: int) -> None:
    """Refuse a descriptor that is one of the last: numbers are given from the lowest on.

    Raises:
        OSError (EMFILE): it is.
    """
    if newest >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE:
        raise OSError(errno.EMFILE, "too many open files")
