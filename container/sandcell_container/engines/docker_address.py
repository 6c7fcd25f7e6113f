"""Where a daemon may listen: what the docker and podman commands would use, then the usual places. Asks no daemon."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, assert_never

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = ["Kind", "Surroundings", "addresses_of", "all_addresses", "faults_of"]

Kind = Literal["docker", "podman"]
_Read = TypeVar("_Read", bound=msgspec.Struct)
_UNREADABLE = (OSError, msgspec.DecodeError, UnicodeDecodeError)


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

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): for docker a context is chosen that is not there.
    """
    match kind:
        case "docker":
            chosen = _docker_choice(around)
            found = (chosen,) if chosen else _docker_sockets(around)
        case "podman":
            chosen = around.environ.get("CONTAINER_HOST", "")
            found = (chosen,) if chosen else (_docker_hint(around), *_podman_sockets(around))
        case _:
            assert_never(kind)
    return tuple(dict.fromkeys(each for each in found if each))


def all_addresses(around: Surroundings) -> tuple[str, ...]:
    """Return where any daemon may listen, also beside a choice of docker's that leads nowhere."""
    found = (_docker_hint(around), *_docker_sockets(around), *addresses_of("podman", around))
    return tuple(dict.fromkeys(each for each in found if each))


def faults_of(around: Surroundings) -> tuple[str, ...]:
    """Return what is to be told of docker's own settings, each one line: that they cannot be read, so that they choose nothing.
    The docker command goes on in spite of that as well."""
    if around.environ.get("DOCKER_HOST") or around.environ.get("DOCKER_CONTEXT"):
        return ()
    path = _settings_file(around)
    try:
        _read(path, _Settings)
    except _UNREADABLE as problem:
        return (f"repair {path}, of which nothing is heeded, no context either: {problem}",)
    return ()


def _docker_choice(around: Surroundings) -> str:
    return around.environ.get("DOCKER_HOST", "") or _context_address(around)


def _docker_hint(around: Surroundings) -> str:
    try:
        return _docker_choice(around)
    except SandcellError:
        return ""  # whose fault it is to tell is docker's


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
    """Return the address of docker's current context, empty for the default one.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): it is not there, or cannot be read.
    Source: docker/cli, cli/context/store: a context's folder is the SHA-256 of its name.
    """
    name = around.environ.get("DOCKER_CONTEXT") or _current_context(around)
    if name in ("", "default"):
        return ""
    folder = hashlib.sha256(os.fsencode(name)).hexdigest()
    path = _settings_folder(around) / "contexts" / "meta" / folder / "meta.json"
    try:
        endpoint = _read(path, _Context).endpoints.get("docker")
    except _UNREADABLE as problem:
        raise _no_context(name, f"{path}: {problem}") from problem
    if endpoint is None or not endpoint.host:
        raise _no_context(name, "it is not there, or has no address of a daemon")
    return endpoint.host


def _no_context(name: str, why: str) -> SandcellError:
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"the docker context {name[:80]!r} cannot be used: {why}",
        hint='see docker context ls; DOCKER_CONTEXT and docker context use choose one, or use engine="local"',
    )


def _current_context(around: Surroundings) -> str:
    try:
        return _read(_settings_file(around), _Settings).current_context or ""
    except _UNREADABLE:
        return ""  # see `faults_of`


def _settings_folder(around: Surroundings) -> Path:
    return Path(around.environ.get("DOCKER_CONFIG") or around.home / ".docker")


def _settings_file(around: Surroundings) -> Path:
    return _settings_folder(around) / "config.json"


class _Settings(msgspec.Struct):
    current_context: str | None = msgspec.field(name="currentContext", default=None)


class _Endpoint(msgspec.Struct):
    host: str = msgspec.field(name="Host", default="")


class _Context(msgspec.Struct):
    endpoints: dict[str, _Endpoint] = msgspec.field(name="Endpoints", default_factory=dict[str, _Endpoint])


def _read(path: Path, kind: type[_Read]) -> _Read:
    """Return what a file holds; of none, and of an empty one, the defaults. Raises one of _UNREADABLE."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return kind()
    return msgspec.json.decode(data, type=kind) if data.strip() else kind()
