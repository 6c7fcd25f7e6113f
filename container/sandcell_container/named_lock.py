"""A lock by name, for what several programs would make at once and one shall make."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandcell_container.state_folder import make_folders

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["idle_lock", "last_held", "named_lock"]


@contextmanager
def named_lock(folder: Path, name: str) -> Generator[None]:
    """Hold the lock `name`, a file of `folder`, which is made; waits for who holds it. A crash frees it. See `last_held`."""
    make_folders(folder)
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(lock)
        yield
    finally:
        os.close(lock)


@contextmanager
def idle_lock(folder: Path, name: str, *, since: float) -> Generator[bool]:
    """Hold a lock that nobody holds or has held for `since` seconds; yields whether that is so. To do so counts as no use."""
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield time.time() - os.fstat(lock).st_mtime >= since
    finally:
        os.close(lock)


def last_held(folder: Path, name: str) -> float:
    """Return when somebody has taken the lock last, in seconds since the epoch, 0 where nobody has here."""
    try:
        return (folder / name).stat().st_mtime
    except FileNotFoundError:
        return 0.0
