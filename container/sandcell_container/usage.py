"""What a sandbox uses, of what it may use: plain data, never a word about the host."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Amount", "Stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Bytes, processes or cores: `limit` is None without one, `used` where it is not known."""

    limit: int | float | None = None
    used: int | float | None = None
    peak: int | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """One look. `memory` and `disk` in bytes, `cpu_time` in seconds that all its processes took together since its start,
    `oom_kills` how many of them the system has killed for want of memory. `at` in seconds since the epoch."""

    at: float
    memory: Amount = field(default_factory=Amount)
    disk: Amount = field(default_factory=Amount)
    pids: Amount = field(default_factory=Amount)
    cpus: Amount = field(default_factory=Amount)
    cpu_time: float | None = None
    oom_kills: int | None = None
