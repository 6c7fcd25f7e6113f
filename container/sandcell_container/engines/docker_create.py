"""Making a container: what a daemon refuses of what is not essential is left out, and told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import docker
import docker.errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker.models.containers import Container

__all__ = ["Created", "create_container"]

Options = dict[str, Any]


class Created(NamedTuple):
    """A container that does not run yet, and what of its options does not hold."""

    container: Container
    warnings: tuple[str, ...]


class _Luxury(NamedTuple):
    """An option that not every daemon or file system has. `mark` is what a refusal of it says."""

    mark: str
    warning: str
    without: Callable[[Options], Options]


def _without_files_limit(host: Options) -> Options:
    tmpfs = {
        place: ",".join(part for part in text.split(",") if not part.startswith("nr_inodes="))
        for place, text in host.get("tmpfs", {}).items()
    }
    return host | {"tmpfs": tmpfs}


def _without_disk_limit(host: Options) -> Options:
    return {name: value for name, value in host.items() if name != "storage_opt"}


_LUXURIES = (
    _Luxury(
        "storage-opt", "disk is not limited: the daemon's file system has no quotas", _without_disk_limit
    ),
    _Luxury("nr_inodes", "the number of files is not limited", _without_files_limit),
)


def create_container(client: docker.DockerClient, image: str, options: Options, host: Options) -> Created:
    """Make a container of `image`, an id; `options` and `host` as `docker_options` gives them.

    What is asked for is tried, and what the daemon says decides: each refusal names what it refuses, so the loop ends.

    Raises:
        docker.errors.APIError: it cannot be made.
    """
    api: Any = client.api  # what it returns is not typed
    told = list[str]()
    left = list(_LUXURIES)
    while True:
        try:
            config = api.create_host_config(**host)
            made: dict[str, Any] = api.create_container(image, host_config=config, **options)
        except docker.errors.APIError as problem:
            luxury = next((each for each in left if each.mark in str(problem.explanation)), None)
            if luxury is None:
                raise
            left.remove(luxury)
            host = luxury.without(host)
            told.append(luxury.warning)
            continue
        told += made.get("Warnings") or ()
        return Created(client.containers.get(made["Id"]), tuple(told))
