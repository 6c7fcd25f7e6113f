"""What the engines of this machine are alike in: sandboxes that a `SandboxHost` starts, finds and ends."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sandcell_container.cgroup import Usage, read_usage
from sandcell_container.engine import Updated
from sandcell_container.engines.cgroups import find_parents, limit_group, plan_group, read_file
from sandcell_container.engines.copy_failure import not_running
from sandcell_container.engines.environment import PythonEnvironment, calling_environment, query_environment
from sandcell_container.engines.image_recipe import Recipe, recipe_of
from sandcell_container.engines.limits import check_strict, shortfalls
from sandcell_container.engines.partial import PartialEngine, unsupported
from sandcell_container.engines.sandbox_host import SandboxHost
from sandcell_container.engines.snapshots import Snapshots
from sandcell_container.errors import ErrorCode, error
from sandcell_container.network import kind_of
from sandcell_container.usage import Amount, Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandcell_container.cgroup import ControlGroup
    from sandcell_container.end import End
    from sandcell_container.engine import Probe, Pruned, Record, Snapshot
    from sandcell_container.engines.cgroups import Parents
    from sandcell_container.engines.derived_environments import DerivedEnvironments
    from sandcell_container.engines.hosted_copy import Inside
    from sandcell_container.engines.sandbox_host import Blueprint
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.engines.zygote_process import ZygoteProcess
    from sandcell_container.os_process import OsProcess
    from sandcell_container.registry import Entry
    from sandcell_container.spec import Limits, Network, SandboxSpec

__all__ = ["Furniture", "HostedEngine"]

_log = logging.getLogger(__name__)


class Furniture(NamedTuple):
    """What a sandbox has before it starts."""

    environment: PythonEnvironment
    has_files: bool


class HostedEngine(PartialEngine):
    """See the module. Implements `Engine`, where the contract of each method stands."""

    def __init__(self, settings: EngineSettings, *, uids: range = range(0)) -> None:
        self._settings = settings
        self._snapshots = Snapshots(settings.state / "snapshots", self.name)
        self._host = SandboxHost(self.name, settings, self._draw, plan_group=self._plan_group, uids=uids)

    @abstractmethod
    def probe(self) -> Probe: ...

    @abstractmethod
    def _draw(self, entry: Entry) -> Blueprint:
        """Prepare the files of a sandbox, those that user code can write only where it never ran, and say what to start."""

    @abstractmethod
    def _check_network(self, network: Network) -> None:
        """Raise InvalidRequest (UNSUPPORTED) or Unavailable (ENGINE_UNAVAILABLE): there is no such network here."""

    def create(self, spec: SandboxSpec) -> Record:
        self._check_network(spec.network)
        if self._recipe(spec).packages:
            self._environment_of(spec)  # before the time of its start begins to count
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

    def remove_unused(self, older_than: float) -> Sequence[str]:
        pythons = [*self._host.pythons(), *self._snapshots.pythons()]
        return self._derived_environments().remove_unused(pythons, older_than)

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

    def last_words(self, sandbox_id: str) -> str:
        return self._host.last_words(sandbox_id)

    def update(self, sandbox_id: str, change: Callable[[SandboxSpec], SandboxSpec]) -> Updated:
        entry = self._host.entry(sandbox_id)
        wanted = change(entry.spec)
        self._check_network(wanted.network)
        warnings = shortfalls(wanted.limits, entry.group)
        check_strict(warnings, strict=wanted.strict)
        before, after = self._host.respecify(sandbox_id, change)
        is_live = before.record.status == "running"
        restarts = is_live and (
            _needs_restart(before, after) or not _has_taken(before.group, after.spec.limits)
        )
        if restarts:
            self.restart(sandbox_id)
        return Updated(restarted=restarts, warnings=warnings)

    def snapshot(self, sandbox_id: str, name: str) -> Snapshot:
        return self._snapshots.make(name, self._host.entry(sandbox_id))

    def snapshots(self) -> Sequence[Snapshot]:
        return self._snapshots.list()

    def remove_snapshot(self, name: str) -> None:
        self._snapshots.remove(name)

    def copy_in(self, sandbox_id: str, path: str, archive: Iterable[bytes]) -> None:
        from sandcell_container.engines.hosted_copy import copy_in

        copy_in(self._inside(sandbox_id), path, archive)

    def copy_out(self, sandbox_id: str, path: str) -> Iterator[bytes]:
        from sandcell_container.engines.hosted_copy import copy_out

        yield from copy_out(self._inside(sandbox_id), path)

    def _inside(self, sandbox_id: str) -> Inside:
        """Return where files of a sandbox are copied. Raises Conflict (BUSY): it does not run."""
        from sandcell_container.engines.hosted_copy import Inside

        entry = self._host.entry(sandbox_id)
        if entry.record.status != "running":
            raise not_running()
        return Inside(init=self._init_of(entry), uid=entry.uid, workdir=self._workdir_of(entry))

    @abstractmethod
    def _init_of(self, entry: Entry) -> OsProcess | None:
        """Return the process whose namespaces a running sandbox has, None where it has none of its own."""

    @abstractmethod
    def _workdir_of(self, entry: Entry) -> str:
        """Return its working directory, by the name that it has inside."""

    def adopt(self, zygote: ZygoteProcess) -> None:
        """See `SandboxHost.adopt`."""
        self._host.adopt(zygote)

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

    def _furnish(self, entry: Entry) -> Furniture:
        """Return what user code's Python stands on: as it was when the sandbox, or its snapshot, was first made, because a
        venv was made above it; and whether its files are there."""
        if entry.record.starts:
            return Furniture(_known(entry.python), has_files=True)
        if entry.spec.image is not None:
            facts = self._snapshots.restore(entry.spec.image, entry.folder, owner=entry.uid)
            return Furniture(_known(facts), has_files=True)
        return Furniture(self._environment_of(entry.spec), has_files=False)

    def _environment_of(self, spec: SandboxSpec) -> PythonEnvironment:
        """Return what `spec` asks for, made where it is not there yet. Errors: those of `DerivedEnvironments.obtain`."""
        base = query_environment(spec.python) if spec.python else self._calling
        packages = self._recipe(spec).packages
        if not packages:
            return base
        return self._derived_environments().obtain(base, packages)

    def _derived_environments(self) -> DerivedEnvironments:
        from sandcell_container.engines.derived_environments import (
            DerivedEnvironments,
        )  # few ask for packages

        return DerivedEnvironments(self._settings.state / "environments", self._settings.images)

    def _recipe(self, spec: SandboxSpec) -> Recipe:
        """Return what is to be put in.

        Raises:
            InvalidRequest (UNSUPPORTED): it cannot be put in here.
        """
        recipe = recipe_of(spec.packages, spec.apt, spec.preset)
        if recipe.apt:
            raise unsupported(
                self.name,
                f"install Debian packages ({', '.join(recipe.apt)})",
                hint="what this machine has in /usr is there: install them on it, "
                'or choose engine="docker" or "podman"',
            )
        if recipe.packages and spec.image is not None:
            raise unsupported(
                self.name,
                "add packages to a snapshot",
                hint="snapshot a sandbox that was created with them",
            )
        if closed := [each for each in recipe.packages if "@" in each or "/" in each]:
            raise unsupported(
                self.name,
                f"install {closed[0][:80]!r}, which may have to be built",
                hint='name a package of the index, or choose engine="docker" or "podman"',
            )
        return recipe


def _known(facts: dict[str, Any]) -> PythonEnvironment:
    environment = PythonEnvironment.from_facts(facts)
    for path in (environment.executable, environment.prefix):
        if os.path.exists(path):
            continue
        raise error(
            ErrorCode.START_FAILED,
            f"the Python that the sandbox was made with is gone: {path}",
            hint="its files are kept; install that Python again, or copy them to a new sandbox",
        )
    return environment


def _has_taken(group: ControlGroup | None, limits: Limits) -> bool:
    """Have limits hold for what runs; tells whether they do: version 1 takes no less memory than is used just now."""
    try:
        if group is not None:
            limit_group(group, limits)
    except OSError as failed:
        _log.info("limits are not taken group=%s: %s", group, failed)
        return False
    return True


def _needs_restart(before: Entry, after: Entry) -> bool:
    """Whether a change cannot be made to what runs: a limit of each process, or whose end it ends with."""
    old, new = before.spec, after.spec
    if old.limits.disk != new.limits.disk or (old.on_release == "keep") != (new.on_release == "keep"):
        return True
    if old.network != new.network and {kind_of(old.network), kind_of(new.network)} != {"list"}:
        return True  # from one list to another its proxy goes by itself
    return before.group is None and old.limits != new.limits
