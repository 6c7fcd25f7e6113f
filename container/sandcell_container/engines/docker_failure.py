"""What a failure of the Docker SDK, or of the daemon behind it, means to a caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import docker.errors
import requests.exceptions

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = ["RUNTIME_IMAGE", "failure_of"]

RUNTIME_IMAGE = "sandcell-runtime:slim"

_SHOWN = 2000  # characters of what the daemon said


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
            return error(
                ErrorCode.ENGINE_UNAVAILABLE,
                f"no Docker daemon answers: {_innermost(problem)}",
                hint='start Docker, or let this user into its group, or use engine="local"',
            )


def _innermost(problem: BaseException) -> BaseException:
    """Return what all the others were raised for: the SDK wraps a refused connection three times."""
    while inner := problem.__cause__ or problem.__context__:
        problem = inner
    return problem


def _explanation(problem: Exception) -> str:
    said = problem.explanation if isinstance(problem, docker.errors.APIError) else None
    return str(said or problem)[:_SHOWN]
