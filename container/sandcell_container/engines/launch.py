"""What the host program asks of its zygote, as data: one launch is one sandbox's two processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from sandcell_container.cgroup import ControlGroup
from sandcell_container.guest.boot import GuestBoot

__all__ = ["GUEST_DESCRIPTORS", "PLACE", "Launch", "Program", "Tunnel"]

PLACE = "/tmp"  # a folder that every machine has and every user may enter

# The descriptors sent with a launch, in this order, before those of the launcher.
GUEST_DESCRIPTORS = ("plan", "reply", "listener", "lock", "log", "memo", "spawner", "status", "policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the launcher becomes: `argv`, with an empty environment and, from descriptor 3 on, what was sent for it.

    With an `identity` (a uid that is its gid too, root only) it becomes that user first. `sources` are then bound at
    `place/0`, `place/1`, ... in a mount namespace of its own, because that user may not reach them where they are.
    `groups` are folders of control groups that it joins before all that.
    """

    argv: tuple[str, ...]
    identity: int | None = None
    sources: tuple[str, ...] = ()
    place: str = PLACE
    groups: tuple[str, ...] = ()

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Program:
        typed: dict[str, Any] = {name: tuple(fields[name]) for name in ("argv", "sources", "groups")}
        return cls(**(fields | typed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """What opens the network of a sandbox: the programs, the addresses in `items` that it may reach though they are not
    public, and whether it needs an `own_device`, because the host's is root's alone. `published` are ports that may be answered
    from, by who takes orders at the socket `orders`."""

    slirp: str
    nft: str
    items: tuple[str, ...]
    own_device: bool
    published: tuple[int, ...] = ()
    orders: str = ""

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Tunnel:
        typed: dict[str, Any] = {name: tuple(fields[name]) for name in ("items", "published")}
        return cls(**(fields | typed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one sandbox: the launcher becomes `program`, the guest waits `timeout` seconds at most for the
    spawner's word, then calls `module.function`. With `enter` it enters the sandbox's namespaces before, and
    imports from `import_roots` alone afterwards. `group` is the sandbox's control group, which the guest reads. With
    `filtered` a third process is the proxy that goes by the list of hosts in `policy`: see `egress`. With a
    `tunnel` it is slirp4netns: see `tunnel`."""

    boot: GuestBoot
    module: str
    function: str
    program: Program
    timeout: float
    enter: bool
    import_roots: tuple[str, ...] = ()
    group: ControlGroup | None = None
    filtered: bool = False
    tunnel: Tunnel | None = None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, text: bytes) -> Launch:
        fields: dict[str, Any] = json.loads(text)
        typed: dict[str, Any] = {
            "boot": GuestBoot.from_json(json.dumps(fields["boot"]).encode()),
            "program": Program.from_fields(fields["program"]),
            "import_roots": tuple(fields["import_roots"]),
            "group": None if fields["group"] is None else ControlGroup(**fields["group"]),
            "tunnel": None if fields["tunnel"] is None else Tunnel.from_fields(fields["tunnel"]),
        }
        return cls(**(fields | typed))
