"""What a container is asked to be: pure, from a spec to the daemon's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docker.types import LogConfig, Mount

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell_container.spec import SandboxSpec

__all__ = ["ID", "MOUNT", "NAME", "STATE", "container_options"]

ID, STATE, NAME = "sandcell.id", "sandcell.state", "sandcell.name"  # labels
MOUNT = "/run/sandcell/host"

# All others are dropped, those that Docker gives by default too. With no-new-privileges and both given up by every
# process before anything of the user's runs, nothing inside ever has one again.
_CAPABILITIES = {
    "SETUID": "the entry turns into the guest's user and into the user's",
    "SETGID": "likewise for their groups",
}


def container_options(spec: SandboxSpec, image: str, folder: Path) -> dict[str, Any]:
    """Return the arguments of `containers.create`; `image` is an id, `folder` the sandbox's on this machine.

    Output of the container goes nowhere, because the daemon would keep it all.
    """
    limits = spec.limits
    return {
        "image": image,
        "name": f"sandcell-{spec.name}",
        "hostname": spec.hostname,
        "labels": {ID: spec.id, STATE: str(folder.parent), NAME: spec.name},
        "mounts": [Mount(MOUNT, str(folder), type="bind")],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": sorted(_CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "log_config": LogConfig(type="none"),
        "auto_remove": spec.on_release == "remove",
        "mem_limit": limits.memory,
        "memswap_limit": limits.memory,
        "nano_cpus": None if limits.cpus is None else round(limits.cpus * 1e9),
        "pids_limit": limits.pids,
    }
