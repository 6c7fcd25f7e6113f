"""What a sandbox uses, as its guest reads it: the files of its control group, else those of what lives in it.

Where the engine of this machine made a group, it has opened its files before the guest entered the sandbox, because they are
not seen inside; in a container they are.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sandcell_container.cgroup import GROUP_FILES, ControlGroup, oom_kills_in, read_usage
from sandcell_container.cgroup_mounts import CONTROLLERS, find_own_group
from sandcell_container.usage import Amount, Stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.process_table import LiveProcess

__all__ = ["Meter", "open_group_files"]

_INSIDE = "/sys/fs/cgroup"
_PROC = Path("/proc/self")
_LARGEST = 2**16
_WHOLE_MACHINE = "/proc/vmstat"  # counts for everybody: better than nothing where there is no group


class Meter:
    """See the module. `limits` are those of the sandbox, bytes, processes and cores; they may be replaced."""

    def __init__(self, boot: GuestBoot, *, proc: Path = _PROC) -> None:
        self.limits = dict(boot.limits)
        self._version = boot.group_version
        self._files = dict(boot.group_files)
        if not self._files and (group := _group_around(boot, proc)) is not None:
            self._version = group.version
            self._files = open_group_files(group.version, group.folders)

    @property
    def has_group(self) -> bool:
        """Whether there is a group: else what lives is added up by `stats`."""
        return bool(self._files)

    def oom_kills(self) -> int:
        """Return how many processes the system has killed here for want of memory, 0 where it does not say."""
        if self.has_group:
            return oom_kills_in(self._version, self._read) or 0
        with suppress(OSError):
            lines = (line.split() for line in Path(_WHOLE_MACHINE).read_text().splitlines())
            return next((int(line[1]) for line in lines if line[0] == "oom_kill"), 0)
        return 0

    def stats(self, live: Sequence[LiveProcess], disk: int | None) -> Stats:
        """Return what is used; `live` is what lives, `disk` the bytes of its files."""
        used = read_usage(self._version, self._read)
        if self.has_group:
            memory, pids, cpu_time = used.memory, used.pids, used.cpu_time
        else:
            memory, pids = sum(each.memory for each in live), len(live)
            cpu_time = sum(each.cpu for each in live)
        return Stats(
            at=time.time(),
            memory=Amount(limit=self.limits.get("memory"), used=memory, peak=used.peak_memory),
            disk=Amount(limit=self.limits.get("disk"), used=disk),
            pids=Amount(limit=self.limits.get("pids"), used=pids),
            cpus=Amount(limit=self.limits.get("cpus")),
            cpu_time=cpu_time,
            oom_kills=used.oom_kills,
        )

    def _read(self, controller: str, name: str) -> str | None:
        handle = self._files.get(f"{controller}/{name}")
        if handle is None:
            return None
        with suppress(OSError):
            return os.pread(handle, _LARGEST, 0).decode()
        return None


def open_group_files(version: int, folders: dict[str, str]) -> dict[str, int]:
    """Return descriptors of the files that a group's use is read from, those that it has."""
    found = dict[str, int]()
    for controller, name in GROUP_FILES[version]:
        if controller in folders:
            with suppress(OSError):
                path = os.path.join(folders[controller], name)
                found[f"{controller}/{name}"] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return found


def _group_around(boot: GuestBoot, proc: Path) -> ControlGroup | None:
    """Return the group of the container that this is in; None outside of one."""
    if boot.isolation.get("cgroup"):
        version = 2 if os.path.exists(f"{_INSIDE}/cgroup.controllers") else 1
        folders = {name: _INSIDE if version == 2 else f"{_INSIDE}/{name}" for name in CONTROLLERS}
        return ControlGroup(version=version, folders=folders)
    if not boot.isolation.get("pid"):
        return None
    try:
        return find_own_group((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    except OSError:  # a guest that entered from outside is none of the processes that this /proc shows
        return None
