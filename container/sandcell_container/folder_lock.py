"""The lock of a folder: a file that is flock'd by who holds it, its children included, and free when they are gone."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_held", "take_lock"]


def take_lock(folder: Path) -> int:
    """Return the descriptor of the lock, held; the caller has made sure that it is free."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def is_held(folder: Path) -> bool:
    """Whether somebody holds the lock. Called under the table's lock, so no other reader is mistaken for that."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
