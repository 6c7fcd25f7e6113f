"""What the guest of a container is told, and how the runtime image is laid out."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandcell_container.engines.boot import Place, new_boot
from sandcell_container.engines.docker_options import PIDS
from sandcell_container.network import network_environment

if TYPE_CHECKING:
    from sandcell_container.engine import Record
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.spec import SandboxSpec

__all__ = ["GUEST_USER", "USER_UID", "boot_of"]

# Source: container/image/Dockerfile, container/image/entry.py
GUEST_USER = "guest"
USER_UID = 1000
_USER_PYTHON = "/opt/user/bin/python"
_RUNTIME_DIR = "/opt/sandcell/runtime"
_BASE_CWD = "/workspace"
# Exactly these on every engine. Source: CONTRACT section 5.
_BASE_ENV = {
    "PATH": "/opt/user/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/user",
    "USER": "user",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "TMPDIR": "/tmp",
    "SHELL": "/bin/bash",
}
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def boot_of(
    spec: SandboxSpec, record: Record, *, runtime: str, warnings: tuple[str, ...], settings: dict[str, str]
) -> GuestBoot:
    """Return what the guest of `spec` is told at its next start; `runtime` is what runs the container."""
    place = Place(_USER_PYTHON, _RUNTIME_DIR, _BASE_CWD, _BASE_ENV["HOME"], _BASE_ENV["USER"], spec.hostname)
    boot = new_boot(
        replace(spec, limits=replace(spec.limits, pids=spec.limits.pids or PIDS)),
        record,
        place,
        base_env={**_BASE_ENV, **network_environment(spec.network)},
        isolation={"runtime": runtime, "uid": USER_UID, "outside": _namespaces_here()},
        warnings=warnings,
        settings=settings,
    )
    return replace(boot, user_uid=USER_UID)


def _namespaces_here() -> dict[str, Any]:
    """Return the numbers of this program's namespaces. The entry compares them with its own: what differs is isolated."""
    return {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in _NAMESPACES}
