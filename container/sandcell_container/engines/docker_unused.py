"""Images that were made for sandboxes and that nothing uses any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import docker
import docker.errors

from sandcell_container.engines.docker_image import VERSION
from sandcell_container.engines.image_recipe import DERIVED, SETTLING_S
from sandcell_container.named_lock import last_held

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["remove_unused_images"]

_NO_NAME = "<none>:<none>"
_HERE = ("", "localhost", "docker.io/library")  # what Podman puts before a name that has no place


class _Image(NamedTuple):
    """`name`: what it is removed by, the id of one that has lost its name to a newer one."""

    name: str
    id: str
    created_at: float


def remove_unused_images(client: docker.DockerClient, locks: Path, older_than: float) -> list[str]:
    """Remove what was made for `packages` and the like, and what was a runtime image before it was built again, where no container
    is of it and nobody has asked for it for so many seconds. Returns the names, ids of those that have none.

    When somebody asked is known by the lock that is held then, in `locks`; of another program's by its age alone.
    """
    api: Any = client.api
    least = max(older_than, SETTLING_S)
    used = {str(each["ImageID"]) for each in api.containers(all=True)}
    removed = list[str]()
    for image in _candidates(client):
        asked_at = max(image.created_at, last_held(locks, image.name.rpartition("/")[2].replace(":", "-")))
        if image.id in used or time.time() - asked_at < least:
            continue
        try:
            api.remove_image(image.name)
        except docker.errors.APIError:
            continue  # another was faster, or it is in use after all: by a container of just now, or below an image
        removed.append(image.name)
    return removed


def _candidates(client: docker.DockerClient) -> Iterator[_Image]:
    """Yield ours that have no name but one that we give; those with a name first, as the others may be below them."""
    api: Any = client.api
    found = api.images(filters={"label": VERSION})
    for each in sorted(found, key=lambda each: not _names_of(each)):
        names = _names_of(each)
        if all(_is_derived(name) for name in names):
            for name in names or [str(each["Id"])]:
                yield _Image(name, str(each["Id"]), float(each["Created"]))


def _names_of(image: dict[str, Any]) -> list[str]:
    return [str(name) for name in image.get("RepoTags") or () if name != _NO_NAME]


def _is_derived(name: str) -> bool:
    place, _, own = name.rpartition("/")
    return place in _HERE and own.startswith(f"{DERIVED}:")
