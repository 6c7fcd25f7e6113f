"""A control group of the system: what its processes use together, and its end. Who opens the files is the caller's.

Version 1 has a folder for each controller, version 2 one for all. Source: cgroups(7), the kernel's admin-guide.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GROUP_FILES", "ControlGroup", "Usage", "end_group", "oom_kills_in", "read_usage"]


# What is read below, by version: controller and name.
GROUP_FILES: dict[int, tuple[tuple[str, str], ...]] = {
    1: (
        ("memory", "memory.usage_in_bytes"),
        ("memory", "memory.max_usage_in_bytes"),
        ("memory", "memory.stat"),
        ("memory", "memory.oom_control"),
        ("pids", "pids.current"),
        ("cpuacct", "cpuacct.usage"),
    ),
    2: (
        ("memory", "memory.current"),
        ("memory", "memory.peak"),
        ("memory", "memory.stat"),
        ("memory", "memory.events"),
        ("pids", "pids.current"),
        ("cpu", "cpu.stat"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Where one is: its folder for each of the controllers memory, pids, cpu and cpuacct that it has; of version 2 they are
    all the same."""

    version: int
    folders: dict[str, str]

    @property
    def paths(self) -> tuple[str, ...]:
        """Its folders, each once."""
        return tuple(dict.fromkeys(self.folders.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the processes of a group use; None where it does not say. Bytes, processes, seconds."""

    memory: int | None = None
    peak_memory: int | None = None
    pids: int | None = None
    cpu_time: float | None = None
    oom_kills: int | None = None


def read_usage(version: int, read: Callable[[str, str], str | None]) -> Usage:
    """Return what a group uses; `read` gives the text of a file by controller and name, None where there is none.

    Pages of files that are only kept because there is room do not count.
    """
    if version == 1:
        peak, cpu = "memory.max_usage_in_bytes", _number(read("cpuacct", "cpuacct.usage"))
        used, cache = _number(read("memory", "memory.usage_in_bytes")), "total_inactive_file"
        cpu_time = None if cpu is None else cpu / 1e9
    else:
        peak, cpu = "memory.peak", _field(read("cpu", "cpu.stat"), "usage_usec")
        used, cache = _number(read("memory", "memory.current")), "inactive_file"
        cpu_time = None if cpu is None else cpu / 1e6
    idle = _field(read("memory", "memory.stat"), cache) or 0
    return Usage(
        memory=None if used is None else max(used - idle, 0),
        peak_memory=_number(read("memory", peak)),
        pids=_number(read("pids", "pids.current")),
        cpu_time=cpu_time,
        oom_kills=oom_kills_in(version, read),
    )


def oom_kills_in(version: int, read: Callable[[str, str], str | None]) -> int | None:
    """Return how many processes of a group the system has killed for want of memory."""
    name = "memory.oom_control" if version == 1 else "memory.events"
    return _field(read("memory", name), "oom_kill")


def end_group(group: ControlGroup | None) -> bool:
    """Remove a group whose processes have ended; tells whether it is gone."""
    gone = True
    for path in group.paths if group else ():
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass  # at an earlier look
        except OSError as failed:
            if failed.errno not in {errno.EBUSY, errno.EACCES, errno.EROFS}:
                raise
            gone = (
                failed.errno != errno.EBUSY and gone
            )  # something of it is just ending; or it is not ours to remove
    return gone


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def _field(text: str | None, name: str) -> int | None:
    lines = (line.split() for line in (text or "").splitlines())
    return next((int(line[1]) for line in lines if len(line) == 2 and line[0] == name), None)
