"""What the caller asks for, checked and turned into plain requests. Pure: the same for both clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from sandcell_container.errors import ErrorCode, error
from sandcell_container.ids import check_id, new_id
from sandcell_container.spec import Limits, SandboxSpec, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.config import Config
    from sandcell_container.spec import GuestCommand, OnRelease

__all__ = [
    "NOT_GIVEN",
    "NotGiven",
    "check_env",
    "check_timeout",
    "given_id",
    "make_limits",
    "make_spec",
    "refuse_later",
]

NotGiven = UnsetType
NOT_GIVEN = UNSET

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ON_RELEASE = ("remove", "stop", "keep")


def check_timeout(timeout: float | NotGiven | None, *, what: str = "timeout") -> float | NotGiven | None:
    """Return `timeout`: seconds above 0, None for no limit, NOT_GIVEN for the sandbox's default.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is 0 or less, or no number.
    """
    if timeout is None or isinstance(timeout, UnsetType):
        return timeout
    if not timeout > 0:  # NaN too
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{what}={timeout!r} has to be above 0",
            hint="None is no limit",
            details={"field": what},
        )
    return float(timeout)


def check_env(env: Mapping[str, str | None] | None, *, what: str = "env") -> dict[str, str | None] | None:
    """Return `env` as plain data.

    Raises:
        InvalidRequest (INVALID_ENV_NAME): a name is none, or its value holds a NUL.
    """
    if env is None:
        return None
    for name, value in env.items():
        if _ENV_NAME.fullmatch(name) is None or "\0" in (value or ""):
            raise error(
                ErrorCode.INVALID_ENV_NAME,
                f"{what} has the variable {name[:80]!r}, which cannot be one",
                hint="letters, digits and _, not beginning with a digit; no NUL in the value",
                details={"name": name[:80]},
            )
    return dict(env)


def given_id(text: str | None, *, prefix: Any, what: str) -> str:
    """Return the id that the caller gave, checked, else a new one."""
    return new_id(prefix) if text is None else check_id(text, what=what)


def refuse_later(**asked: object) -> None:
    """Refuse what this version does not do: nothing that was asked for is ever ignored.

    Raises:
        InvalidRequest (UNSUPPORTED): one of `asked` is neither None nor empty.
    """
    for name, value in asked.items():
        if value is not None and value is not False and value != () and value != {}:
            raise error(
                ErrorCode.UNSUPPORTED,
                f"{name}={value!r} is not there yet in this version"[:200],
                hint=f"leave out {name}",
                details={"field": name},
            )


def make_spec(
    config: Config,
    guest: GuestCommand,
    *,
    name: str | None,
    image: str | None,
    limits: Limits,
    strict: bool,
    network: object,
    env: Mapping[str, str] | None,
    hostname: str | None,
    python: str | None,
    default_timeout: float | NotGiven | None,
    idle_timeout: float | NotGiven | None,
    on_release: OnRelease,
    start_timeout: float | NotGiven,
) -> SandboxSpec:
    """Return the sandbox as an engine is asked for it. What is not given comes from `config`.

    Raises:
        InvalidRequest: INVALID_NAME, INVALID_ARGUMENT, INVALID_ENV_NAME, UNSUPPORTED (a network).
    """
    if network != "none":
        refuse_later(network=network)
    if on_release not in _ON_RELEASE:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"on_release={on_release!r} is none of {', '.join(_ON_RELEASE)}",
            details={"field": "on_release"},
        )
    sandbox_id = new_id("sbx")
    checked = check_env(env) or {}
    return SandboxSpec(
        id=sandbox_id,
        name=check_id(name, what="name") if name is not None else sandbox_id,
        guest=guest,
        image=image if image is not None else config.image,
        limits=limits,
        strict=strict,
        env={key: value for key, value in checked.items() if value is not None},
        hostname=hostname or "sandbox",
        python=python,
        default_timeout=_or(check_timeout(default_timeout, what="default_timeout"), config.default_timeout),
        idle_timeout=_or(check_timeout(idle_timeout, what="idle_timeout"), config.idle_timeout),
        grace=config.lease_grace,
        on_release=on_release,
        start_timeout=_or(check_timeout(start_timeout, what="start_timeout"), config.start_timeout)
        or config.start_timeout,
    )


def make_limits(
    *, cpus: float | None, memory: str | int | None, disk: str | int | None, pids: int | None
) -> Limits:
    """Return the limits as numbers.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one is no size or not above zero.
    """
    for name, value in (("cpus", cpus), ("pids", pids)):
        if value is not None and not value > 0:
            raise error(
                ErrorCode.INVALID_ARGUMENT, f"{name}={value!r} has to be above 0", details={"field": name}
            )
    return Limits(
        cpus=cpus,
        memory=None if memory is None else parse_size(memory, what="memory"),
        disk=None if disk is None else parse_size(disk, what="disk"),
        pids=pids,
    )


def _or(value: float | NotGiven | None, default: float | None) -> float | None:
    return default if isinstance(value, UnsetType) else value
