"""What keeps Podman from running containers on a machine, and the configuration that helps. Never the user's own files."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "CONFIGURATION",
    "Machine",
    "Trouble",
    "configuration_of",
    "examine_podman",
    "look_at_machine",
    "service_line",
]

CONFIGURATION = "podman-containers.conf"

_RUNTIMES = ("crun", "runc")
_CAP_SYS_RESOURCE = 24
# Its own defaults for containers; soft and hard. Source: containers/common, pkg/config/default_linux.go
_WANTED = 1048576
_NOT_FOR_ROOT = ("newuidmap", "newgidmap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What counts for Podman. `programs` are those found of the ones looked for; limits are hard ones, of this process."""

    programs: frozenset[str]
    is_root: bool
    is_hybrid: bool  # both versions of control groups are mounted
    may_raise_limits: bool
    open_files: int
    processes: int


class Trouble(NamedTuple):
    """Something that is missing: what, what to do, and what of a containers.conf helps, by its table, "" where nothing."""

    what: str
    remedy: str
    table: str = ""
    setting: str = ""


def look_at_machine() -> Machine:
    """Look at this machine and this process."""
    looked_for = ("podman", "conmon", "catatonit", *_RUNTIMES, *_NOT_FOR_ROOT)
    return Machine(
        programs=frozenset(each for each in looked_for if _find(each)),
        is_root=os.geteuid() == 0,
        is_hybrid=Path("/sys/fs/cgroup/unified/cgroup.controllers").exists(),
        may_raise_limits=_has_capability(_CAP_SYS_RESOURCE),
        open_files=_hard(resource.RLIMIT_NOFILE),
        processes=min(_hard(resource.RLIMIT_NPROC), int(Path("/proc/sys/kernel/pid_max").read_text())),
    )


def examine_podman(machine: Machine) -> list[Trouble]:
    """Return what keeps containers from starting, or some of what is promised from holding. Pure."""
    if "podman" not in machine.programs:
        return []  # nobody wants it here
    found = list[Trouble]()
    if "conmon" not in machine.programs:
        found.append(Trouble("conmon is missing, which holds each container", "install conmon"))
    if not machine.programs & set(_RUNTIMES):
        found.append(Trouble("there is no runtime", "install crun or runc"))
    elif machine.is_hybrid and "crun" in machine.programs:
        found.append(_hybrid(machine))
    if "catatonit" not in machine.programs:
        found.append(
            Trouble(
                "catatonit is missing: podman run --init fails, Sandcell does without", "install catatonit"
            )
        )
    missing = [each for each in _NOT_FOR_ROOT if each not in machine.programs]
    if missing and not machine.is_root:
        found.append(
            Trouble(f"{' and '.join(missing)} is missing, which rootless containers need", "install uidmap")
        )
    if not machine.may_raise_limits and min(machine.open_files, machine.processes) < _WANTED:
        found.append(_limits(machine))
    return found


def configuration_of(troubles: list[Trouble]) -> str:
    """Return the text of a containers.conf that helps with `troubles`, empty where none can be helped that way. Pure."""
    tables = dict[str, list[str]]()
    for each in troubles:
        if each.table:
            tables.setdefault(each.table, []).append(each.setting)
    return "\n".join(
        f"[{table}]\n" + "".join(f"{line}\n" for line in lines) for table, lines in tables.items()
    )


def service_line(configuration: Path, *, is_root: bool, runtime_dir: str) -> str:
    """Return the line that starts Podman's service with `configuration`, where Sandcell looks for it."""
    socket = "/run/podman/podman.sock" if is_root else f"{runtime_dir}/podman/podman.sock"
    return f"CONTAINERS_CONF={configuration} podman system service --time=0 unix://{socket}"


def _hybrid(machine: Machine) -> Trouble:
    what = "crun, Podman's default, cannot work with both versions of control groups mounted"
    if "runc" not in machine.programs:
        return Trouble(what, "install runc")
    return Trouble(what, "use runc: sandcell doctor --fix", "engine", 'runtime = "runc"')


def _limits(machine: Machine) -> Trouble:
    files, processes = machine.open_files, machine.processes
    return Trouble(
        f"containers cannot be given more than the {files} open files and {processes} processes that this process may have",
        "lower Podman's defaults: sandcell doctor --fix",
        "containers",
        f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]',
    )


def _find(program: str) -> bool:
    places = os.pathsep.join((os.defpath, "/usr/sbin", "/sbin", "/usr/libexec/podman", "/usr/lib/podman"))
    return shutil.which(program) is not None or shutil.which(program, path=places) is not None


def _hard(which: int) -> int:
    hard = resource.getrlimit(which)[1]
    return _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)


def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(held, 16) >> number & 1)
