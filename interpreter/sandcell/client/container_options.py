"""What only a sandbox in a container can be given: checked and turned into plain data. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from sandcell.client.checks import check_text, wrong
from sandcell_container.errors import ErrorCode, error
from sandcell_container.openings import check_targets, parse_mount, parse_port
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sandcell_container.spec import Network

__all__ = ["CONTAINER_OPTIONS", "container_fields", "engine_for", "fit_engine", "network_of"]

CONTAINER_OPTIONS = (
    "mounts",
    "publish",
    "dns",
    "read_only",
    "runtime",
)
"""Those that an engine without containers refuses, by the names of the fields of a spec."""

_WITH_CONTAINERS = ("docker", "podman")
_HINTS = {
    "mounts": "upload the files: sandbox.files",
    "publish": "expose the port: sandbox.ports",
}
_HOSTNAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:~=<>!,;\[\]@/ \"'()*&^%-]*", re.ASCII)
_APT = re.compile(r"[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?", re.ASCII)
_DEFAULTS = {each.name: each.default for each in fields(SandboxSpec)}


def container_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a SandboxSpec that the options of these names mean.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one is not what it has to be.
    """
    found: dict[str, Any] = {
        "mounts": tuple(parse_mount(each) for each in _items(options, "mounts")),
        "publish": tuple(parse_port(each) for each in _items(options, "publish")),
        "dns": tuple(_address(each) for each in _items(options, "dns")),
        "packages": tuple(_named(each, _PACKAGE, "packages") for each in _items(options, "packages")),
        "apt": tuple(_named(each, _APT, "apt") for each in _items(options, "apt")),
        "read_only": options.get("read_only", False),
        "runtime": _text(options, "runtime"),
        "preset": _text(options, "preset"),
        "hostname": _hostname(_text(options, "hostname")),
        "network": network_of(options.get("network", "none")),
    }
    check_targets(found["mounts"])
    if found["preset"] is not None:
        from sandcell_container.engines.image_recipe import recipe_of  # few want one

        recipe_of((), (), found["preset"])  # whether there is such a preset
    if not isinstance(found["read_only"], bool):
        raise wrong("read_only", "has to be True or False", hint="read_only=True")
    return found


def engine_for(spec: SandboxSpec, asked: str, asked_image: str | None) -> str:
    """Return the engine to open for `spec`: "auto" is "local" for an open network, which containers have for root alone."""
    if asked != "auto" or asked_image is not None or spec.network == "none":
        return asked
    from sandcell_container.network import kind_of  # most sandboxes have none

    return "local" if kind_of(spec.network) == "open" else asked


def fit_engine(spec: SandboxSpec, engine: str, asked_image: str | None) -> SandboxSpec:
    """Return `spec` for the engine that was chosen: only some have containers, and images besides their own snapshots.

    Raises:
        InvalidRequest (UNSUPPORTED): something was asked for that this one has not. Nothing is ever ignored.
    """
    if engine in _WITH_CONTAINERS:
        return spec
    for name in (*CONTAINER_OPTIONS, *(["hostname"] if engine == "process" else [])):
        if getattr(spec, name) != _DEFAULTS[name]:
            other = _HINTS.get(name, f"leave out {name}")
            raise error(
                ErrorCode.UNSUPPORTED,
                f"the engine {engine} cannot do {name}=",
                hint=f'{other}, or choose engine="docker" or "podman"',
                details={"field": name},
            )
    return replace(spec, image=asked_image)


def network_of(given: object) -> Network:
    """Return a network as it was asked for. Raises InvalidRequest (INVALID_ARGUMENT): it is none."""
    if given == "none":
        return "none"
    from sandcell_container.network import parse_network  # most sandboxes have none

    return parse_network(given)


def _items(options: Mapping[str, Any], name: str) -> list[Any]:
    given = options.get(name, ())
    if isinstance(given, list | tuple | set | frozenset):
        return [*cast("Iterable[Any]", given)]
    raise wrong(name, "has to be a list", hint=f"{name}=[...]")


def _text(options: Mapping[str, Any], name: str) -> str | None:
    given = options.get(name)
    return None if given is None else check_text(given, what=name)


def _hostname(given: str | None) -> str:
    if given is not None and (len(given) > 253 or not _HOSTNAME.fullmatch(given)):
        raise wrong("hostname", f"= {given[:80]!r} is none", hint="letters, digits and -, such as lab-1")
    return given or "sandbox"


def _address(given: object) -> str:
    text = check_text(given, what="dns")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise wrong("dns", f"= {text[:80]!r} is no address", hint="addresses of name servers") from None


def _named(given: object, pattern: re.Pattern[str], what: str) -> str:
    """Return a requirement or package: never one that a program would take for an option of its own."""
    text = check_text(given, what=what).strip()
    if not pattern.fullmatch(text):
        raise wrong(what, f"holds {text[:80]!r}, which is no name of one", hint='such as "requests>=2"')
    return text
