"""Where a daemon may listen: what the docker and podman commands would use, then the usual places. Asks no daemon."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, assert_never

import msgspec

__all__ = ["Kind", "Surroundings", "addresses_of"]

Kind = Literal["docker", "podman"]
_Read = TypeVar("_Read", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What decides where daemons are looked for: the caller's variables, home and uid."""

    environ: Mapping[str, str]
    home: Path
    uid: int


def addresses_of(kind: Kind, around: Surroundings) -> tuple[str, ...]:
    """Return the addresses at which a daemon of `kind` may listen, the likeliest first, none twice.

    What the caller has chosen is the only one: another daemon would be a surprise. DOCKER_HOST and docker contexts
    count for podman too, which people reach that way, but choose nothing there: they may as well be Docker's.
    """
    match kind:
        case "docker":
            chosen = _docker_choice(around)
            found = (chosen,) if chosen else _docker_sockets(around)
        case "podman":
            chosen = around.environ.get("CONTAINER_HOST", "")
            found = (chosen,) if chosen else (_docker_choice(around), *_podman_sockets(around))
        case _:
            assert_never(kind)
    return tuple(dict.fromkeys(each for each in found if each))


def _docker_choice(around: Surroundings) -> str:
    return around.environ.get("DOCKER_HOST", "") or _context_address(around)


def _docker_sockets(around: Surroundings) -> tuple[str, ...]:
    """Docker's own, the rootless one's, Docker Desktop's."""
    return (
        "unix:///var/run/docker.sock",
        f"unix://{_runtime_dir(around)}/docker.sock",
        f"unix://{around.home}/.docker/desktop/docker.sock",
    )


def _podman_sockets(around: Surroundings) -> tuple[str, ...]:
    """Podman's own for root and for this user, and Docker's, where the package podman-docker may have put a link."""
    own = f"unix://{_runtime_dir(around)}/podman/podman.sock"
    return (own, "unix:///run/podman/podman.sock", "unix:///var/run/docker.sock")


def _runtime_dir(around: Surroundings) -> str:
    return around.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{around.uid}"


def _context_address(around: Surroundings) -> str:
    """Return the address of docker's current context, empty for the default one and where none can be read: these are
    the docker command's own files, and it tells of their faults.

    Source: docker/cli, cli/context/store: a context's folder is the SHA-256 of its name.
    """
    base = Path(around.environ.get("DOCKER_CONFIG") or around.home / ".docker")
    name = around.environ.get("DOCKER_CONTEXT") or _read(base / "config.json", _Settings).current_context
    if name in ("", "default"):
        return ""
    folder = hashlib.sha256(name.encode()).hexdigest()
    context = _read(base / "contexts" / "meta" / folder / "meta.json", _Context)
    endpoint = context.endpoints.get("docker")
    return "" if endpoint is None else endpoint.host


class _Settings(msgspec.Struct):
    current_context: str = msgspec.field(name="currentContext", default="")


class _Endpoint(msgspec.Struct):
    host: str = msgspec.field(name="Host", default="")


class _Context(msgspec.Struct):
    endpoints: dict[str, _Endpoint] = msgspec.field(name="Endpoints", default_factory=dict[str, _Endpoint])


def _read(path: Path, kind: type[_Read]) -> _Read:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return kind()
