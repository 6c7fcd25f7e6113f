"""What a container uses, out of the daemon's answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell_container.engines.docker_options import PIDS
from sandcell_container.usage import Amount, Stats

if TYPE_CHECKING:
    from docker.models.containers import Container

    from sandcell_container.spec import Limits

__all__ = ["read_stats", "stats_of"]


class _Memory(msgspec.Struct, frozen=True):
    usage: int | None = None
    max_usage: int | None = None
    stats: dict[str, int] = msgspec.field(default_factory=dict[str, int])


class _Cpu(msgspec.Struct, frozen=True):
    cpu_usage: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class _Pids(msgspec.Struct, frozen=True):
    current: int | None = None


class _Answer(msgspec.Struct, frozen=True):
    """Source: Engine API, GET /containers/{id}/stats; Podman leaves some of it out."""

    memory_stats: _Memory = msgspec.field(default_factory=_Memory)
    cpu_stats: _Cpu = msgspec.field(default_factory=_Cpu)
    pids_stats: _Pids = msgspec.field(default_factory=_Pids)


def read_stats(container: Container, limits: Limits) -> Stats:
    """Ask the daemon once: for a single look, as two would take a second."""
    answer: Any = container.stats(stream=False, one_shot=True) if container.status == "running" else {}
    client: Any = container.client
    sizes = client.api.containers(all=True, size=True, filters={"id": container.id})
    written = sizes[0].get("SizeRw") if sizes else None
    return stats_of(answer, limits, written=written)


def stats_of(answer: dict[str, Any], limits: Limits, *, written: int | None) -> Stats:
    """Return what an answer means; `written` is how many bytes of files the container has made."""
    found = msgspec.convert(answer, _Answer)
    total = found.cpu_stats.cpu_usage.get("total_usage")
    return Stats(
        at=time.time(),
        memory=Amount(
            limit=limits.memory, used=_in_use(found.memory_stats), peak=found.memory_stats.max_usage
        ),
        disk=Amount(limit=limits.disk, used=written),
        pids=Amount(limit=limits.pids or PIDS, used=found.pids_stats.current),
        cpus=Amount(limit=limits.cpus),
        cpu_time=None if total is None else total / 1e9,
    )


def _in_use(memory: _Memory) -> int | None:
    """Leave out what is only kept of files that were read: the system takes that back at once where it is needed."""
    if memory.usage is None:
        return None
    cached = memory.stats.get("inactive_file", memory.stats.get("total_inactive_file", 0))
    return max(memory.usage - cached, 0)
