"""Where control groups are mounted, and which of them a program is in. Pure: from the text of two files of /proc."""

from __future__ import annotations

from typing import NamedTuple

from sandcell_container.cgroup import ControlGroup

__all__ = ["CONTROLLERS", "GroupMount", "find_own_group", "read_groups", "read_mounts"]

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")


class GroupMount(NamedTuple):
    """One mount of a hierarchy: the folder `root` of it is at `place`."""

    kind: str
    root: str
    place: str
    options: frozenset[str]


def find_own_group(mounts: str, groups: str) -> ControlGroup | None:
    """Return the group of the container that this program is in, None where it sees none, or those of a whole machine.

    `mounts` is the text of /proc/self/mountinfo, `groups` of /proc/self/cgroup. It is for containers without a namespace
    for groups, as Docker makes them with version 1: the root of a mount is the path that the group has outside.
    """
    own = read_groups(groups)
    seen = [each for each in read_mounts(mounts) if each.root != "/"]
    v1 = {
        name: mount.place
        for mount in seen
        for name in CONTROLLERS
        if mount.kind == "cgroup" and name in mount.options and own.get(name) == mount.root
    }
    if v1:
        return ControlGroup(version=1, folders=v1)
    v2 = next((each.place for each in seen if each.kind == "cgroup2" and own.get("") == each.root), None)
    return ControlGroup(version=2, folders=dict.fromkeys(CONTROLLERS, v2)) if v2 else None


def read_mounts(text: str) -> list[GroupMount]:
    return [mount for line in text.splitlines() if (mount := _mount_of(line)) is not None]


def read_groups(text: str) -> dict[str, str]:
    """Return the group that a program is in by controller of version 1, and by "" for version 2."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return {each: path for _, controllers, path in lines for each in controllers.split(",")}


def _mount_of(line: str) -> GroupMount | None:
    # 31 23 0:28 /root /place rw,relatime shared:1 - cgroup source rw,memory. Source: proc(5), mountinfo.
    before, _, after = line.partition(" - ")
    fields, kinds = before.split(), after.split()
    if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in {"cgroup", "cgroup2"}:
        return None
    return GroupMount(kinds[0], _unescaped(fields[3]), _unescaped(fields[4]), frozenset(kinds[2].split(",")))


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\134", "\\")
