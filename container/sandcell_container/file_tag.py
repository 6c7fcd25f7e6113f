"""The tag of a file's content, by which it is known again. Standard library only, and cheap: the worker imports it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

__all__ = ["tag_of"]


def tag_of(status: os.stat_result) -> str:
    """Return what differs when a file was replaced or written to: its number, size, and time to the nanosecond."""
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
