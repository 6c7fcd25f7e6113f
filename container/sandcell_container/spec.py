"""What a sandbox is asked to be, and what is known of one that exists: plain data, no IO."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.openings import Mount, PublishedPort

__all__ = ["GuestCommand", "Limits", "Network", "OnRelease", "SandboxSpec", "Status", "parse_size"]

OnRelease = Literal["remove", "stop", "keep"]
Network = str | tuple[str, ...]
"""What it may reach: "none", "open", or the items of a list, as `network` reads them."""
Status = Literal["creating", "running", "stopped", "failed", "removed"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)?", re.ASCII)
_LARGEST = 2**63 - 1  # as the system counts bytes
_UNIT = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def parse_size(size: object, *, what: str = "size") -> int:
    """Return `size` in bytes: an int of bytes, or text such as "512MiB" or "2GiB".

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is neither, not above zero, or more than the system can count.
    """
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is not None:
        count = int(float(match[1]) * _UNIT[match[2] or "B"])
    elif isinstance(size, int) and not isinstance(size, bool):
        count = size
    else:
        raise _no_size(what, f"{what}={repr(size)[:40]} is no size")
    if count <= 0:
        raise _no_size(what, f"{what}={size!r} has to be above zero")
    if count > _LARGEST:
        raise _no_size(what, f"{what}={str(size)[:40]} is more than a size can be")
    return count


def _no_size(what: str, message: str) -> SandcellError:
    hint = 'bytes, or text such as "512MiB"'
    return error(ErrorCode.INVALID_ARGUMENT, message, hint=hint, details={"field": what})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the sandbox may use; None is no limit of ours. Sizes in bytes, `cpus` in cores."""

    cpus: float | None = None
    memory: int | None = None
    disk: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestCommand:
    """How an engine starts the guest without knowing it: this room must not import what stands above it.

    `module` and `function` name the callable `(GuestBoot, listener, spawner) -> None` that serves until the
    sandbox ends; `preload` names modules worth importing before a fork; `runtime_dir` is the folder of
    `sandcell_runtime`, which user code may see.
    """

    module: str
    function: str
    runtime_dir: str
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """One sandbox as asked for, and as it is started again: an engine keeps this, readable for its own user alone.
    Durations in seconds.

    `grace` is how long the guest goes on without a lease once it has had one. `env` and `secrets` are given
    to user code only; only `secrets` are never shown. `python` is the interpreter whose environment user code gets
    (engine `local`). `image` is an image of the engine's, or a snapshot; `packages`, `apt` and `preset` are put into it
    once, for all who ask for the same. `network` is what it may reach, see `network`. `runtime` is what runs a container, such as "runsc".
    """

    id: str
    name: str
    image: str | None = None
    limits: Limits = field(default_factory=Limits)
    strict: bool = False
    env: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    hostname: str = "sandbox"
    python: str | None = None
    default_timeout: float | None = 300.0
    idle_timeout: float | None = 600.0
    grace: float = 0.0
    on_release: OnRelease = "remove"
    start_timeout: float = 60.0
    network: Network = "none"
    mounts: tuple[Mount, ...] = ()
    publish: tuple[PublishedPort, ...] = ()
    dns: tuple[str, ...] = ()
    read_only: bool = False
    runtime: str | None = None
    packages: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    preset: str | None = None
