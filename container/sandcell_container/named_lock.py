"""A lock by name, for what several programs would make at once and one shall make."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandcell_container.state_folder import make_folders

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["named_lock"]


@contextmanager
def named_lock(folder: Path, name: str) -> Generator[None]:
    """Hold the lock `name`, a file of `folder`, which is made; waits for who holds it. A crash frees it."""
    make_folders(folder)
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
