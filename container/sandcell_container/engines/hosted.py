"""What the engines of this machine are alike in: sandboxes that a `SandboxHost` starts, finds and ends."""

from __future__ import annotations

import time
from abc import abstractmethod
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandcell_container.cgroup import Usage, read_usage
from sandcell_container.engines.cgroups import find_parents, plan_group, read_file
from sandcell_container.engines.environment import PythonEnvironment, calling_environment, query_environment
from sandcell_container.engines.partial import PartialEngine
from sandcell_container.engines.sandbox_host import SandboxHost
from sandcell_container.usage import Amount, Stats

if TYPE_CHECKING:
    from sandcell_container.cgroup import ControlGroup
    from sandcell_container.end import End
    from sandcell_container.engine import Pruned, Record
    from sandcell_container.engines.cgroups import Parents
    from sandcell_container.engines.sandbox_host import Blueprint
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.registry import Entry
    from sandcell_container.spec import SandboxSpec

__all__ = ["HostedEngine"]


class HostedEngine(PartialEngine):
    """See the module. Implements `Engine`, where the contract of each method stands."""

    def __init__(self, settings: EngineSettings, *, uids: range = range(0)) -> None:
        self._settings = settings
        self._host = SandboxHost(self.name, settings, self._draw, plan_group=self._plan_group, uids=uids)

    @abstractmethod
    def _draw(self, entry: Entry) -> Blueprint:
        """Prepare the files of a sandbox, those that user code can write only where it never ran, and say what to start."""

    def create(self, spec: SandboxSpec) -> Record:
        return self._host.create(spec)

    def start(self, sandbox_id: str) -> Record:
        return self._host.start(sandbox_id)

    def stop(self, sandbox_id: str) -> None:
        self._host.stop(sandbox_id)

    def restart(self, sandbox_id: str) -> Record:
        self.stop(sandbox_id)
        return self.start(sandbox_id)

    def list(self) -> list[Record]:
        return self._host.list()

    def remove(self, sandbox_id: str) -> None:
        self._host.remove(sandbox_id)

    def prune(self) -> Pruned:
        return self._host.prune()

    def stats(self, sandbox_id: str) -> Stats:
        entry = self._host.entry(sandbox_id)
        group, limits = entry.group, entry.spec.limits
        used = read_usage(group.version, partial(read_file, group)) if group is not None else Usage()
        return Stats(
            at=time.time(),
            memory=Amount(limit=limits.memory, used=used.memory, peak=used.peak_memory),
            disk=Amount(limit=limits.disk),
            pids=Amount(limit=limits.pids, used=used.pids),
            cpus=Amount(limit=limits.cpus),
            cpu_time=used.cpu_time,
            oom_kills=used.oom_kills,
        )

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        return self._host.await_end(sandbox_id, timeout=timeout)

    def close(self) -> None:
        self._host.close()

    @cached_property
    def _parents(self) -> Parents | None:
        return find_parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())

    def _plan_group(self, sandbox_id: str) -> ControlGroup | None:
        return None if self._parents is None else plan_group(self._parents, f"sandcell-{sandbox_id}")

    @cached_property
    def _calling(self) -> PythonEnvironment:
        return calling_environment()

    def _environment_of(self, entry: Entry) -> PythonEnvironment:
        """Return what user code's Python stands on: as it was at the first start, which made a venv above it."""
        if entry.python:
            return PythonEnvironment.from_facts(entry.python)
        return query_environment(entry.spec.python) if entry.spec.python else self._calling
