"""Images of a daemon: which one a name means, and those that are made of a container's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import docker
import docker.errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.models.containers import Container
    from docker.models.images import Image

__all__ = ["commit_files", "drop_image", "find_image", "kept_name"]


def find_image(client: docker.DockerClient, name: str) -> Image:
    """Return the image that `name` means, as a person would say it.

    Podman reads a short name as one of Docker Hub's and calls its own localhost/NAME.

    Raises:
        docker.errors.ImageNotFound: there is none.
    """
    try:
        return client.images.get(name)
    except docker.errors.ImageNotFound:
        try:
            return client.images.get(f"localhost/{name}")
        except docker.errors.APIError:  # as refusing such a name
            pass
        raise


def kept_name(sandbox_id: str) -> str:
    """Return the name of the image that holds the files of a sandbox whose container was made anew."""
    return f"sandcell-kept:{sandbox_id}"


def commit_files(container: Container, name: str, labels: Mapping[str, str]) -> str:
    """Make the image `name` of a container's files and return its id; those of mounts and tmpfs are not in it."""
    repository, _, tag = name.partition(":")
    changes = [f"LABEL {json.dumps(key)}={json.dumps(value)}" for key, value in labels.items()]
    made = container.commit(repository=repository, tag=tag or "latest", changes="\n".join(changes))
    return str(made.id)


def drop_image(client: docker.DockerClient, name: str) -> None:
    """Take the name from an image, and remove what has no name any more. One that is not there is fine."""
    try:
        client.images.remove(name, force=True)
    except docker.errors.NotFound:
        pass
