"""What may be changed of a sandbox that exists: checked, and turned into a change of its spec and a word to its guest. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

import msgspec
from msgspec import UNSET

from sandcell.api import UpdateSandbox
from sandcell.client.checks import check_timeout, wrong
from sandcell.client.container_options import network_of
from sandcell.client.options import make_limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.client.options import CreateOptions
    from sandcell_container.spec import Limits, OnRelease, SandboxSpec

__all__ = ["Change", "ChangeOptions", "Lost", "Update"]

_LIMITS = ("cpus", "memory", "disk", "pids")
_ON_RELEASE = ("remove", "stop", "keep")


class ChangeOptions(TypedDict, total=False):
    """What a sandbox is to be from now on: see `Sandbox.update`."""

    network: Any
    cpus: float | None
    memory: str | int | None
    disk: str | int | None
    pids: int | None
    idle_timeout: float | None
    on_release: OnRelease


class Lost(NamedTuple):
    """One thing that a restart has ended: a "context", "session", "process" or "terminal"."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a change came to: whether the sandbox was `restarted` for it, what was `lost` then, and what does not hold as
    asked. Files, environment and secrets are there."""

    restarted: bool = False
    lost: tuple[Lost, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Change:
    """Checked changes of a sandbox. Called with a spec it returns the changed one.

    Raises:
        TypeError: there is no such option. InvalidRequest: INVALID_ARGUMENT, UNSUPPORTED.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = options.keys() - ChangeOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"update() has no option {', '.join(sorted(unknown))}")
        limits = make_limits(cast("CreateOptions", options))
        self._limits = {name: getattr(limits, name) for name in _LIMITS if name in options}
        self._fields = dict[str, Any]()
        if "network" in options:
            self._fields["network"] = network_of(options["network"])
        if "idle_timeout" in options:
            self._fields["idle_timeout"] = check_timeout(options["idle_timeout"], what="idle_timeout")
        if "on_release" in options:
            self._fields["on_release"] = _release(options["on_release"])

    def __call__(self, spec: SandboxSpec) -> SandboxSpec:
        limits: Limits = replace(spec.limits, **self._limits)
        return replace(spec, limits=limits, **self._fields)

    @property
    def body(self) -> bytes:
        """What its guest is told while it runs on."""
        limits = self._limits or UNSET
        idle = self._fields.get("idle_timeout", UNSET)
        network = self._fields.get("network", UNSET)
        return msgspec.json.encode(UpdateSandbox(limits=limits, idle_timeout=idle, network=network))


def _release(given: object) -> str:
    if given not in _ON_RELEASE:
        raise wrong("on_release", f"= {given!r} is none", hint=f"one of {', '.join(_ON_RELEASE)}")
    return str(given)
