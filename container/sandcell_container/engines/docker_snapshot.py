"""Snapshots: images of what a sandbox's files were at a moment."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import docker
import docker.errors

from sandcell_container.engine import Snapshot
from sandcell_container.engines.docker_image import commit_files, drop_image, find_image
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.images import Image

__all__ = ["list_snapshots", "remove_snapshot", "take_snapshot"]

_LABEL = "sandcell.snapshot"


def take_snapshot(container: Container, name: str, engine: str) -> Snapshot:
    """Keep the container's files as the image `name`; it stands still meanwhile, where it runs.

    Raises:
        Conflict (EXISTS): there is an image of that name.
        Limited (NO_SPACE): there is no room.
    """
    client = container.client
    assert client is not None  # every container of ours is a client's
    try:
        find_image(client, name)
    except docker.errors.ImageNotFound:
        pass
    else:
        raise error(ErrorCode.EXISTS, f"there is an image {name!r} already", hint="choose another name")
    try:
        commit_files(container, name, {_LABEL: name})
    except docker.errors.APIError as problem:
        if "no space left" not in str(problem.explanation):
            raise
        raise error(
            ErrorCode.NO_SPACE, f"there is no room for the snapshot {name!r}", hint="make room"
        ) from problem
    return _snapshot_of(find_image(client, name), engine)


def list_snapshots(client: docker.DockerClient, engine: str) -> list[Snapshot]:
    """Return those that there are, the oldest first."""
    found = [_snapshot_of(each, engine) for each in client.images.list(filters={"label": _LABEL})]
    return sorted(found, key=lambda each: each.created_at)


def remove_snapshot(client: docker.DockerClient, name: str) -> None:
    """Forget a snapshot; what is an image, and no snapshot, is left alone. Twice is fine."""
    try:
        image = find_image(client, name)
    except docker.errors.ImageNotFound:
        return
    if image.labels.get(_LABEL) == name:
        drop_image(client, image.tags[0] if image.tags else str(image.id))


def _snapshot_of(image: Image, engine: str) -> Snapshot:
    return Snapshot(
        name=image.labels[_LABEL],
        engine=engine,
        created_at=_seconds(str(image.attrs.get("Created", ""))),
        size=image.attrs.get("Size"),
    )


def _seconds(created: str) -> float:
    try:
        return datetime.fromisoformat(created).timestamp()
    except ValueError:
        return time.time()  # a daemon that tells it in another way
