"""What a change of a sandbox's spec means for its container: pure, but for the one that a running container takes."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import docker.errors

from sandcell_container.engines.docker_options import cpu_options
from sandcell_container.engines.partial import unsupported
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import kind_of

if TYPE_CHECKING:
    from docker.models.containers import Container

    from sandcell_container.spec import Limits, SandboxSpec

__all__ = ["Change", "change_of", "update_running"]

# What its files stand on, or others know it by.
_FIXED = {"id", "name", "image", "packages", "apt", "preset", "python"}
_OF_NEXT_CALL = {"start_timeout", "strict"}
_OF_GUEST = {"env", "secrets", "default_timeout", "idle_timeout", "grace", "on_release"}


class Change(Enum):
    """What has to be done, from nothing to the most."""

    NOTHING = 0
    HOSTS = 1  # its proxy reads another list
    LIMITS = 2  # a running container may take it
    START = 3  # its guest is told at a start
    ANEW = 4  # another container, of the same files


def change_of(old: SandboxSpec, new: SandboxSpec, *, engine: str) -> Change:
    """Return what turns the sandbox of `old` into that of `new`.

    Raises:
        InvalidRequest (UNSUPPORTED): nothing does.
    """
    changed = {each.name for each in fields(new) if getattr(old, each.name) != getattr(new, each.name)}
    if fixed := changed & _FIXED:
        raise unsupported(
            engine, f"change {', '.join(sorted(fixed))} of a sandbox", hint="create another one"
        )
    if not changed - _OF_NEXT_CALL:
        return Change.NOTHING
    if changed - _OF_NEXT_CALL == {"network"} and {kind_of(old.network), kind_of(new.network)} == {"list"}:
        return Change.HOSTS
    if changed - _OF_NEXT_CALL <= {"limits"} and not new.read_only and _is_live(old.limits, new.limits):
        return Change.LIMITS
    if "open" not in (kind_of(old.network), kind_of(new.network)):
        changed -= {"network"}  # else a mount comes or goes with it
    return Change.START if changed <= _OF_NEXT_CALL | _OF_GUEST else Change.ANEW


def _is_live(old: Limits, new: Limits) -> bool:
    """Whether only memory and cores change, to other ones: a limit cannot be taken away, as 0 means "as it is"."""
    if replace(old, memory=None, cpus=None) != replace(new, memory=None, cpus=None):
        return False
    pairs = ((old.memory, new.memory), (old.cpus, new.cpus))
    return all(before == after or (before is not None and after is not None) for before, after in pairs)


def update_running(container: Container, limits: Limits) -> bool:
    """Give a container other limits while it runs; False where the daemon cannot, as Podman before 4.4.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it uses more than that already.
    """
    asked: dict[str, Any] = {**cpu_options(limits)}
    if limits.memory is not None:
        asked |= {"mem_limit": limits.memory, "memswap_limit": limits.memory}
    try:
        container.update(**asked)
    except docker.errors.NotFound:
        return False
    except docker.errors.APIError as problem:
        if "busy" not in str(problem.explanation).lower():
            raise
        raise _too_little(limits) from problem
    return True


def _too_little(limits: Limits) -> SandcellError:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"the sandbox uses more memory than the new limit of {limits.memory} bytes already",
        hint="stop it first, or end what uses the memory",
        details={"field": "memory"},
    )
