"""What a container is asked to be: pure, from a spec to the daemon's words, and what of it does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docker.types import LogConfig, Mount

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.engines.docker_daemon import Facts
    from sandcell_container.engines.docker_folder import Folder
    from sandcell_container.spec import Limits, SandboxSpec

__all__ = [
    "ID",
    "MOUNT",
    "NAME",
    "PIDS",
    "STATE",
    "check_openings",
    "check_spec",
    "container_name",
    "container_options",
    "cpu_options",
    "host_options",
    "limit_options",
    "refuse_warnings",
    "warnings_of",
]

ID, STATE, NAME = "sandcell.id", "sandcell.state", "sandcell.name"  # labels
MOUNT = "/run/sandcell/host"
PIDS = 2048
"""How many processes there may be at most where no limit is asked for: a fork bomb is not to take the machine along."""

# All others are dropped, those too that Docker gives by default. Both are given up by every process before anything of
# the user's runs, and with no-new-privileges nothing inside ever gets one back.
_CAPABILITIES = {
    "SETUID": "the entry, as root, turns into the guest's user and into the user's",
    "SETGID": "likewise for their groups",
}
_CAPABILITIES_OF_READ_ONLY = {"CHOWN": "the entry gives the places in memory to whose they are"}
# With a read-only root: where user code writes, with its share of what may be written in all; and the guest's own place.
_SHARES = {"/workspace": 0.5, "/home/user": 0.2, "/tmp": 0.2, "/var/tmp": 0.1}
_WRITABLE = 2**30  # bytes, where no limit of the disk says another
_GUEST_PLACE, _GUEST_SIZE = "/var/lib/sandcell", 16 * 2**20
# What the entry is told to give away. Podman cannot mount a tmpfs that is somebody's.
_OWNERS = {"/workspace": "user", "/home/user": "user", _GUEST_PLACE: "guest"}
_MODES = {"/tmp": "1777", "/var/tmp": "1777", _GUEST_PLACE: "700"}
_PERIOD = 100_000
_PAGE = 4096
_BYTES_A_FILE = 4096  # as an inode costs memory that `size` does not count


def check_openings(spec: SandboxSpec) -> None:
    """Refuse what would mean nothing in a new sandbox.

    Raises:
        InvalidRequest (INVALID_ARGUMENT).
    """
    if spec.publish and kind_of(spec.network) != "open":
        raise _meaningless(
            "publish", "nothing comes to it", 'expose the port: sandbox.ports, or give it network="open"'
        )
    if any(":" in each.host for each in spec.publish):
        raise _meaningless("publish", "an open network has no IPv6", "name an address of IPv4")
    if spec.dns and kind_of(spec.network) != "open":
        raise _meaningless(
            "dns", "nothing in there asks for names", 'leave it out, or give it network="open"'
        )
    if any(":" in each for each in spec.dns):
        raise _meaningless("dns", "an open network has no IPv6", "name an address of IPv4")


def check_spec(spec: SandboxSpec, facts: Facts, engine: str) -> None:
    """Refuse what a daemon would silently not do.

    Raises:
        InvalidRequest (UNSUPPORTED): what cannot be had with these facts.
    """
    # Podman's Docker-compatible interface takes any name, and runs its default.
    runtimes = {facts.default_runtime} if engine == "podman" else set(facts.runtimes)
    if spec.runtime is not None and spec.runtime not in runtimes:
        raise error(
            ErrorCode.UNSUPPORTED,
            f"{engine} has no runtime {spec.runtime[:40]!r} to choose here",
            hint=f"there is {', '.join(sorted(runtimes))}; its configuration may name others",
            details={"field": "runtime"},
        )


def _meaningless(field: str, why: str, remedy: str) -> SandcellError:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"{field} has no meaning: {why}",
        hint=remedy,
        details={"field": field},
    )


def container_name(spec: SandboxSpec) -> str:
    """Return what its container is called; the daemon has no name twice."""
    return f"sandcell-{spec.name}"


def container_options(spec: SandboxSpec, folder: Folder) -> dict[str, Any]:
    """Return the arguments of `create_container` beside its image and `host_config`."""
    return {
        "name": container_name(spec),
        "hostname": spec.hostname,
        "labels": {ID: spec.id, STATE: str(folder.path.parent), NAME: spec.name},
        "command": [f"own={_OWNERS[place]}:{place}" for place in _tmpfs(spec) if place in _OWNERS],
        "use_config_proxy": False,  # the environment of user code is ours to say
    }


def host_options(spec: SandboxSpec, folder: Folder) -> dict[str, Any]:
    """Return the arguments of `create_host_config`. Sources of mounts have been looked for already.

    Output of the container goes nowhere, because the daemon would keep it all. There is no init: the spawner is PID 1
    and reaps.
    """
    options: dict[str, Any] = {
        "mounts": [Mount(MOUNT, str(folder.path), type="bind"), *_resolver(spec, folder), *_mounts(spec)],
        "network_mode": "none",  # what it may reach it reaches by other means: see `docker_way`
        "ipc_mode": "private",
        "cap_drop": ["ALL"],
        "cap_add": sorted(_CAPABILITIES | (_CAPABILITIES_OF_READ_ONLY if spec.read_only else {})),
        "security_opt": ["no-new-privileges"],
        "log_config": LogConfig(type="none"),
        "runtime": spec.runtime,
        **limit_options(spec.limits),
    }
    if spec.read_only:
        options |= {"read_only": True, "tmpfs": _tmpfs(spec)}
    elif spec.limits.disk is not None:
        options["storage_opt"] = {"size": str(spec.limits.disk)}
    return options


def limit_options(limits: Limits) -> dict[str, Any]:
    """Return what a container may use. Swap counts as memory."""
    return {
        "mem_limit": limits.memory,
        "memswap_limit": limits.memory,
        **cpu_options(limits),
        "pids_limit": limits.pids or PIDS,
    }


def cpu_options(limits: Limits) -> dict[str, int]:
    """Return the share of time that `cpus` cores are, in microseconds; in nanocores it could not be changed later."""
    if limits.cpus is None:
        return {}
    return {"cpu_period": _PERIOD, "cpu_quota": max(round(limits.cpus * _PERIOD), 1000)}


def warnings_of(spec: SandboxSpec, facts: Facts) -> tuple[str, ...]:
    """Return what of the limits the daemon cannot apply on its machine, and what a read-only root means."""
    limits = spec.limits
    unmet = {
        "memory is not limited: no control group for it": limits.memory and not facts.memory_limit,
        "swap is not limited with the memory": limits.memory and facts.memory_limit and not facts.swap_limit,
        "cpus is not limited: no control group for it": limits.cpus and not facts.cpu_limit,
        "pids is not limited: no control group for it": limits.pids and not facts.pids_limit,
    }
    return tuple(text for text, is_so in unmet.items() if is_so)


def _resolver(spec: SandboxSpec, folder: Folder) -> list[Mount]:
    """Return the mount that names the resolver of an open network: a daemon knows of none, or refuses to be told."""
    if kind_of(spec.network) != "open":
        return []
    return [Mount("/etc/resolv.conf", str(folder.resolver), type="bind", read_only=True)]


def _mounts(spec: SandboxSpec) -> list[Mount]:
    return [
        Mount(each.target, each.source, type="bind", read_only=each.read_only, propagation="rprivate")
        for each in spec.mounts
    ]


def _tmpfs(spec: SandboxSpec) -> dict[str, str]:
    """Return what is in memory, with its options: none unless the root is read-only, and nothing that is mounted.

    What is written there counts as memory: together at most half of it, so that processes have the rest.
    """
    if not spec.read_only:
        return {}
    whole = spec.limits.disk or _WRITABLE
    if spec.limits.memory is not None:
        whole = min(whole, spec.limits.memory // 2)
    sizes = {place: int(whole * share) // _PAGE * _PAGE for place, share in _SHARES.items()} | {
        _GUEST_PLACE: _GUEST_SIZE
    }
    mounted = {each.target for each in spec.mounts}
    return {
        place: f"size={size},nr_inodes={max(1000, size // _BYTES_A_FILE)},exec,mode={_MODES.get(place, '755')}"
        for place, size in sizes.items()
        if place not in mounted
    }


def refuse_warnings(warnings: Sequence[str], engine: str) -> SandcellError:
    """Return the error of `strict`, where something does not hold as asked for."""
    return error(
        ErrorCode.UNSUPPORTED,
        f"{engine} cannot hold this as asked for: {'; '.join(warnings)}",
        hint="leave it out, or leave out strict=True",
        details={"warnings": list(warnings)},
    )
