"""The daemons of Docker and Podman: which one answers where, and what its and its SDK's failures mean to a caller."""

from __future__ import annotations

import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import docker
import docker.errors
import msgspec
import requests.exceptions

from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from sandcell_container.engines.docker_address import Kind

__all__ = [
    "RUNTIME_IMAGE",
    "TITLES",
    "Daemon",
    "Facts",
    "ask_daemon",
    "failure_of",
    "find_daemon",
    "open_client",
    "read_facts",
]

RUNTIME_IMAGE = "sandcell-runtime:slim"
TITLES: dict[Kind, str] = {"docker": "Docker", "podman": "Podman"}

_PROBE_TIMEOUT = 5  # seconds
_SHOWN = 2000  # characters of what the daemon said
_START_IT = {
    "docker": "start Docker, or let this user into its group",
    "podman": "start its service: podman system service --time=0, or systemctl --user start podman.socket",
}


class Facts(msgspec.Struct, frozen=True):
    """What a daemon says of its machine. Source: Engine API, GET /info; Podman answers the same."""

    memory_limit: bool = msgspec.field(name="MemoryLimit", default=False)
    swap_limit: bool = msgspec.field(name="SwapLimit", default=False)
    cpu_limit: bool = msgspec.field(name="CpuCfsQuota", default=False)
    pids_limit: bool = msgspec.field(name="PidsLimit", default=False)
    default_runtime: str = msgspec.field(name="DefaultRuntime", default="")
    runtimes: dict[str, Any] = msgspec.field(name="Runtimes", default_factory=dict[str, Any])
    system: str = msgspec.field(name="OperatingSystem", default="")

    @property
    def shares_kernel(self) -> bool:
        """Whether its containers may run on this kernel; Docker Desktop has a machine of its own for them, everywhere."""
        return self.system != "Docker Desktop"


class Daemon(NamedTuple):
    """A daemon that answered at `url`; `api` is the version of the interface that it offers."""

    kind: Kind
    url: str
    version: str
    api: str


def find_daemon(kind: Kind, addresses: Sequence[str]) -> Daemon:
    """Return the daemon of `kind` that answers at the first of `addresses`.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): none does; says of each address why not.
    """
    reasons = list[str]()
    for url in addresses:
        try:
            found = ask_daemon(kind, url)
        except SandcellError as problem:
            reasons.append(problem.message)
            continue
        if found.kind == kind:
            return found
        reasons.append(f"what answers at {url} is {TITLES[found.kind]}")
    raise _no_daemon(kind, "; ".join(reasons))


@contextmanager
def open_client(daemon: Daemon, timeout: float) -> Generator[docker.DockerClient]:
    """Yield a client of its own, because the SDK's are for one thread each. What fails inside is ours.

    `timeout` in seconds, for each answer.

    Raises:
        Unavailable, Conflict: see `failure_of`.
    """
    try:
        _check_listening(daemon.url)
    except SandcellError as problem:
        raise _no_daemon(daemon.kind, problem.message) from problem
    try:
        client = docker.DockerClient(base_url=daemon.url, version=daemon.api, timeout=max(1, round(timeout)))
        with closing(client):
            yield client
    except (docker.errors.DockerException, requests.exceptions.RequestException) as problem:
        raise failure_of(problem, daemon.kind) from problem


def failure_of(problem: Exception, kind: Kind) -> SandcellError:
    """Return what a failure of the SDK or the daemon means to a caller."""
    text, title = _explanation(problem), TITLES[kind]
    if "invalid reference format" in text:  # of the daemon, or of the SDK itself
        return error(
            ErrorCode.INVALID_ARGUMENT,
            f"that is no name of an image: {text}",
            hint="such as python:3.12-slim, in small letters",
        )
    match problem:
        case docker.errors.ImageNotFound():
            return error(
                ErrorCode.IMAGE_NOT_FOUND,
                f"{title} has no image for this: {text}",
                hint="sandcell image build makes the runtime image",
            )
        case docker.errors.APIError() if "in use" in text and "name" in text:
            return error(
                ErrorCode.EXISTS,
                "a sandbox of this name exists already",
                hint="connect to it, or remove it first: sandcell rm NAME; one that sandcell ps does not show is of another "
                "user or state folder",
                details={"words": text},
            )
        case docker.errors.APIError():
            return error(
                ErrorCode.START_FAILED,
                f"{title} refused: {text}",
                hint=f"sandcell doctor; see also the log of {title}",
            )
        case requests.exceptions.Timeout():
            return error(ErrorCode.START_TIMEOUT, f"{title} did not answer in time", hint="try again")
        case _:
            return _no_daemon(kind, text)


def ask_daemon(kind: Kind, url: str) -> Daemon:
    """Return who answers at `url`; `kind` is who is hoped for there.

    Told apart by the components that it names: Podman's own one is called so in every version.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): nobody does.
    """
    _check_listening(url)
    try:
        with closing(docker.DockerClient(base_url=url, version="auto", timeout=_PROBE_TIMEOUT)) as client:
            facts: dict[str, Any] = client.version()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as problem:
        raise failure_of(problem, kind) from problem
    components = " ".join(str(each.get("Name", "")) for each in facts.get("Components") or ())
    found: Kind = "podman" if "podman" in components.lower() else "docker"
    return Daemon(found, url, str(facts.get("Version", "")), str(facts["ApiVersion"]))


def read_facts(client: docker.DockerClient) -> Facts:
    """Ask a daemon for the facts of its machine."""
    return msgspec.convert(client.info(), Facts)


def _check_listening(url: str) -> None:
    """Return when something listens at `url`, on this machine.

    Asked here and not by the SDK, which leaves an open socket behind where nobody listens.
    """
    scheme, _, path = url.partition("://")
    if not scheme.endswith("unix"):
        raise error(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"the daemon at {url} is not on this machine",
            hint="run Sandcell where the daemon is",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
        except OSError as problem:
            raise error(ErrorCode.ENGINE_UNAVAILABLE, f"{path}: {problem.strerror or problem}") from problem


def _no_daemon(kind: Kind, why: str) -> SandcellError:
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"no {TITLES[kind]} daemon answers: {why}",
        hint=f'{_START_IT[kind]}, or use engine="local"',
    )


def _explanation(problem: Exception) -> str:
    said = problem.explanation if isinstance(problem, docker.errors.APIError) else None
    return str(said or problem)[:_SHOWN]
