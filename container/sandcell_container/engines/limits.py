"""Limits of a sandbox on this machine: by its control group for all of it together, else by the spawner for each process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.cgroup import end_group
from sandcell_container.engines.cgroups import limit_group, make_group
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.cgroup import ControlGroup
    from sandcell_container.spec import Limits

__all__ = ["AppliedLimits", "apply_limits"]

_SUM = "for each process, not for their sum"


class AppliedLimits(NamedTuple):
    """`spawner` is what the spawner sets for itself and so for all it starts; `warnings` what does not hold as asked;
    `group` what the sandbox's processes join."""

    spawner: dict[str, int]
    warnings: tuple[str, ...]
    group: ControlGroup | None = None


def apply_limits(limits: Limits, *, strict: bool, group: ControlGroup | None = None) -> AppliedLimits:
    """Return how `limits` are applied, with `group` made where there can be one.

    Raises:
        InvalidRequest (UNSUPPORTED): `strict`, and one of them would not hold as asked.
    """
    warnings = list[str]()
    if group is not None:
        try:
            make_group(group)
            warnings += limit_group(group, limits)
        except OSError as failed:
            end_group(group)
            group = None
            if limits.memory or limits.pids or limits.cpus:
                warnings.append(f"no control group could be made: {failed.strerror}: {failed.filename}")
    spawner = _each_process(limits, warnings) if group is None else dict[str, int]()
    if limits.disk is not None:
        spawner["disk"] = limits.disk
        warnings.append("disk is limited for each file, not for their sum")
    if strict and warnings:
        end_group(group)
        raise error(
            ErrorCode.UNSUPPORTED,
            f"this engine cannot hold the limits as asked: {'; '.join(warnings)}",
            hint="use the engine docker, or leave out strict=True",
        )
    return AppliedLimits(spawner, tuple(warnings), group)


def _each_process(limits: Limits, warnings: list[str]) -> dict[str, int]:
    """Return what the spawner is to set where nothing counts the whole; pids are counted by the user namespace."""
    spawner = dict[str, int]()
    if limits.memory is not None:
        spawner["memory"] = limits.memory
        warnings.append(f"memory is limited {_SUM}")
    if limits.pids is not None:
        spawner["pids"] = limits.pids
    if limits.cpus is not None:
        spawner["cpus"] = math.ceil(limits.cpus)
        if limits.cpus != spawner["cpus"]:
            warnings.append(f"cpus={limits.cpus:g} is rounded up to {spawner['cpus']} whole cores")
    return spawner
