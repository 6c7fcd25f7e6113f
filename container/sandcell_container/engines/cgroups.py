"""Control groups for the sandboxes of this machine: where they may be made, with which limits, and how they go.

The order: version 2 where memory and pids can be handed on by a group that this program may write to, else version 1 where
its own groups of memory and pids may be written to, else none. Source: cgroups(7).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.cgroup import ControlGroup
from sandcell_container.cgroup_mounts import CONTROLLERS, GroupMount, read_groups, read_mounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell_container.spec import Limits

__all__ = ["Parents", "find_parents", "limit_group", "make_group", "plan_group", "read_file"]

_NEEDED = ("memory", "pids")
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000


class Parents(NamedTuple):
    """Folders in which groups may be made, by controller."""

    version: int
    folders: dict[str, str]


def find_parents(mounts: str, groups: str) -> Parents | None:
    """Return where groups may be made, None where nowhere.

    `mounts` is the text of /proc/self/mountinfo, `groups` of /proc/self/cgroup. Of version 2 it hands on the controllers
    to the groups that will be made, where that is not done yet.
    """
    found, own = read_mounts(mounts), read_groups(groups)
    return _find_v2(found, own) or _find_v1(found, own)


def plan_group(parents: Parents, name: str) -> ControlGroup:
    """Return where a group will be; nothing is made."""
    folders = {each: os.path.join(parent, name) for each, parent in parents.folders.items()}
    return ControlGroup(version=parents.version, folders=folders)


def make_group(group: ControlGroup) -> None:
    """Make a group, or take the one that is there."""
    for path in group.paths:
        os.makedirs(path, exist_ok=True)


def limit_group(group: ControlGroup, limits: Limits) -> None:
    """Have `limits` hold for all processes of the group together, those that it has a controller for."""
    if group.version == 1:
        _limit_memory_v1(group, limits.memory)
    else:
        _write(group, "memory", "memory.max", _or_max(limits.memory))
        _write(group, "memory", "memory.swap.max", "0", optional=True)
    _write(group, "pids", "pids.max", _or_max(limits.pids))
    if "cpu" in group.folders:
        _limit_cpus(group, limits.cpus)


def read_file(group: ControlGroup, controller: str, name: str) -> str | None:
    """Return the text of one of the group's files, None where there is none."""
    folder = group.folders.get(controller)
    if folder is None:
        return None
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read()
    except OSError:
        return None


def _find_v2(mounts: Iterable[GroupMount], own: dict[str, str]) -> Parents | None:
    for mount in mounts:
        folder = _folder(mount, own.get("")) if mount.kind == "cgroup2" else None
        # The nearest first. A group with processes of its own hands nothing on, so it is mostly the next one above.
        while folder is not None:
            if os.access(folder, os.W_OK) and _hands_on(folder):
                here = [each for each in CONTROLLERS if each in _words(folder, "cgroup.subtree_control")]
                return Parents(2, dict.fromkeys(here, folder))
            folder = os.path.dirname(folder) if folder != mount.place else None
    return None


def _hands_on(folder: str) -> bool:
    """Whether groups below have the controllers that are needed; tries to have it so."""
    missing = [each for each in _NEEDED if each not in _words(folder, "cgroup.subtree_control")]
    if missing and set(missing) <= set(_words(folder, "cgroup.controllers")):
        with suppress(OSError):  # EBUSY: it has processes of its own
            _write_text(
                os.path.join(folder, "cgroup.subtree_control"), " ".join(f"+{each}" for each in missing)
            )
    return all(each in _words(folder, "cgroup.subtree_control") for each in _NEEDED)


def _words(folder: str, name: str) -> list[str]:
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read().split()
    except OSError:
        return []


def _find_v1(mounts: Iterable[GroupMount], own: dict[str, str]) -> Parents | None:
    folders = dict[str, str]()
    for mount in mounts:
        for controller in CONTROLLERS:
            if mount.kind == "cgroup" and controller in mount.options:
                folder = _folder(mount, own.get(controller))
                if folder is not None and os.access(folder, os.W_OK):
                    folders[controller] = folder
    return Parents(1, folders) if all(each in folders for each in _NEEDED) else None


def _folder(mount: GroupMount, group: str | None) -> str | None:
    """Return where a group is seen, below or at the place where its hierarchy is mounted."""
    if group is None or ".." in group.split("/"):
        return None  # a group outside of what a container shows of the hierarchy
    inside = os.path.relpath(group, mount.root) if group.startswith(mount.root) else "."
    folder = os.path.normpath(os.path.join(mount.place, inside))
    return folder if os.path.isdir(folder) else None


def _limit_memory_v1(group: ControlGroup, limit: int | None) -> None:
    # memsw may never be below memory: the one that grows goes first.
    value = "-1" if limit is None else str(limit)
    names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    for name in (names[0], *reversed(names), names[0]):
        with suppress(OSError):  # the order that does not fit; the last one counts
            _write(group, "memory", name, value, optional=True)
    _write(group, "memory", names[0], value)


def _limit_cpus(group: ControlGroup, cpus: float | None) -> None:
    quota = None if cpus is None else max(int(cpus * _PERIOD_US), _LEAST_QUOTA_US)
    if group.version == 2:
        _write(group, "cpu", "cpu.max", f"{_or_max(quota)} {_PERIOD_US}")
        return
    _write(group, "cpu", "cpu.cfs_period_us", str(_PERIOD_US))
    _write(group, "cpu", "cpu.cfs_quota_us", "-1" if quota is None else str(quota))


def _or_max(limit: float | None) -> str:
    return "max" if limit is None else str(int(limit))


def _write(group: ControlGroup, controller: str, name: str, value: str, *, optional: bool = False) -> None:
    path = os.path.join(group.folders[controller], name)
    if not optional or os.path.exists(path):
        _write_text(path, value)


def _write_text(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
