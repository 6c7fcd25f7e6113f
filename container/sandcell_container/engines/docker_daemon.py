"""The Docker daemon: whether it is there, and what its and its SDK's failures mean to a caller."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import docker.errors
import requests.exceptions
from docker.constants import DEFAULT_UNIX_SOCKET
from docker.utils import kwargs_from_env

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = ["RUNTIME_IMAGE", "check_daemon", "failure_of"]

RUNTIME_IMAGE = "sandcell-runtime:slim"

_SHOWN = 2000  # characters of what the daemon said


def check_daemon(host: str | None) -> None:
    """Return when something listens at `host`, by default where the docker command would look, on this machine.

    Asked here and not by the SDK, which leaves an open socket behind where nobody listens.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): nobody does; or it is on another machine, where the guest's socket would be.
    """
    address = str(host or kwargs_from_env().get("base_url") or DEFAULT_UNIX_SOCKET)
    scheme, _, path = address.partition("://")
    if not scheme.endswith("unix"):
        raise error(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"the Docker daemon at {address} is not on this machine",
            hint="run Sandcell where the daemon is",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
        except OSError as problem:
            raise _no_daemon(f"{path}: {problem.strerror}") from problem


def failure_of(problem: Exception) -> SandcellError:
    """Return what a failure of the SDK or the daemon means to a caller."""
    text = _explanation(problem)
    match problem:
        case docker.errors.ImageNotFound():
            return error(
                ErrorCode.IMAGE_NOT_FOUND,
                f"Docker has no image for this: {text}",
                hint=f"build {RUNTIME_IMAGE} from a source tree, as container/image/Dockerfile says at its head",
            )
        case docker.errors.APIError() if problem.status_code == 409:
            return error(
                ErrorCode.EXISTS,
                f"a sandbox of this name exists already: {text}",
                hint="connect to it, or remove it first: sandcell rm NAME",
            )
        case docker.errors.APIError():
            return error(
                ErrorCode.START_FAILED, f"Docker refused: {text}", hint="see the log of the Docker daemon"
            )
        case requests.exceptions.Timeout():
            return error(ErrorCode.START_TIMEOUT, "Docker did not answer in time", hint="try again")
        case _:
            return _no_daemon(text)


def _no_daemon(why: str) -> SandcellError:
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"no Docker daemon answers: {why}",
        hint='start Docker, or let this user into its group, or use engine="local"',
    )


def _explanation(problem: Exception) -> str:
    said = problem.explanation if isinstance(problem, docker.errors.APIError) else None
    return str(said or problem)[:_SHOWN]
