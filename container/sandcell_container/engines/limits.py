"""Limits of a sandbox on this machine: by its control group for all of it together, else by the spawner for each process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.cgroup import end_group
from sandcell_container.engines.cgroups import limit_group, make_group
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.cgroup import ControlGroup
    from sandcell_container.spec import Limits

__all__ = ["AppliedLimits", "apply_limits", "check_strict", "shortfalls"]

_SUM = "for each process, not for their sum"


class AppliedLimits(NamedTuple):
    """`spawner` is what the spawner sets for itself and so for all it starts; `warnings` what does not hold as asked;
    `group` what the sandbox's processes join."""

    spawner: dict[str, int]
    warnings: tuple[str, ...]
    group: ControlGroup | None = None


def apply_limits(limits: Limits, *, strict: bool, group: ControlGroup | None = None) -> AppliedLimits:
    """Return how `limits` are applied, with `group` made where there can be one. Raises as `check_strict`."""
    failure: tuple[str, ...] = ()
    if group is not None:
        try:
            make_group(group)
            limit_group(group, limits)
        except OSError as failed:
            end_group(group)
            group = None
            failure = (f"no control group could be made: {failed.strerror}: {failed.filename}",)
    warnings = (*failure, *shortfalls(limits, group))
    try:
        check_strict(warnings, strict=strict)
    except BaseException:
        end_group(group)
        raise
    return AppliedLimits(_each_process(limits, has_group=group is not None), warnings, group)


def shortfalls(limits: Limits, group: ControlGroup | None) -> tuple[str, ...]:
    """Return what of `limits` does not hold as asked, with a group or without."""
    told = list[str]()
    if group is None and limits.memory is not None:
        told.append(f"memory is limited {_SUM}")
    if group is None and limits.cpus is not None and limits.cpus != math.ceil(limits.cpus):
        told.append(f"cpus={limits.cpus:g} is rounded up to {math.ceil(limits.cpus)} whole cores")
    if group is not None and limits.cpus is not None and "cpu" not in group.folders:
        told.append("cpus are not limited: this machine hands on no control group for them")
    if limits.disk is not None:
        told.append("disk is limited for each file, not for their sum")
    return tuple(told)


def check_strict(warnings: Sequence[str], *, strict: bool) -> None:
    """Return when nothing is wrong with `warnings`.

    Raises:
        InvalidRequest (UNSUPPORTED): `strict`, and there are some.
    """
    if strict and warnings:
        raise error(
            ErrorCode.UNSUPPORTED,
            f"this engine cannot hold the limits as asked: {'; '.join(warnings)}",
            hint="use the engine docker, or leave out strict=True",
        )


def _each_process(limits: Limits, *, has_group: bool) -> dict[str, int]:
    """Return what the spawner is to set. Without a group pids are counted by the user namespace, so for all together."""
    asked = {"disk": limits.disk}
    if not has_group:
        cores = None if limits.cpus is None else math.ceil(limits.cpus)
        asked |= {"memory": limits.memory, "pids": limits.pids, "cpus": cores}
    return {name: value for name, value in asked.items() if value is not None}
