"""Images of a daemon: which one a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import docker
import docker.errors

if TYPE_CHECKING:
    from docker.models.images import Image

__all__ = ["find_image"]


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
        except (docker.errors.ImageNotFound, docker.errors.APIError):
            pass  # it is the name as given that is not there
        raise
