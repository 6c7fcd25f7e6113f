"""Limits without cgroups: what the spawner can set for each process, and what has to be said about the rest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.spec import Limits

__all__ = ["AppliedLimits", "apply_limits"]


class AppliedLimits(NamedTuple):
    """`spawner` is what the spawner sets for itself and so for all it starts; `warnings` what does not hold as asked."""

    spawner: dict[str, int]
    warnings: tuple[str, ...]


def apply_limits(limits: Limits, *, strict: bool) -> AppliedLimits:
    """Return how `limits` are applied.

    Raises:
        InvalidRequest (UNSUPPORTED): `strict`, and one of them would not hold as asked.
    """
    spawner, warnings = dict[str, int](), list[str]()
    if limits.memory is not None:
        spawner["memory"] = limits.memory
        warnings.append("memory is limited for each process, not for their sum")
    if limits.pids is not None:
        spawner["pids"] = limits.pids
    if limits.cpus is not None:
        spawner["cpus"] = math.ceil(limits.cpus)
        if limits.cpus != spawner["cpus"]:
            warnings.append(f"cpus={limits.cpus:g} is rounded up to {spawner['cpus']} whole cores")
    if limits.disk is not None:
        warnings.append("disk is not limited")
    if strict and warnings:
        raise error(
            ErrorCode.UNSUPPORTED,
            f"this engine cannot hold the limits as asked: {'; '.join(warnings)}",
            hint="use an engine with cgroups, or leave out strict=True",
        )
    return AppliedLimits(spawner, tuple(warnings))
