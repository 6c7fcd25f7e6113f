"""Images of a daemon: which one a name means, and those that are made of a container's files."""

from __future__ import annotations

import io
import json
import re
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING

import docker
import docker.errors
from docker.utils import parse_repository_tag

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.models.containers import Container
    from docker.models.images import Image

__all__ = [
    "VERSION",
    "check_reference",
    "commit_files",
    "drop_image",
    "find_image",
    "kept_name",
    "line_for_plain",
    "obtain_image",
    "os_release",
    "version_warning",
]

_OURS = "sandcell-"
VERSION = "sandcell.version"  # label. Source: container/image/Dockerfile
# Words between slashes, none of them dots alone. Source: distribution/reference, which has more to say.
_REFERENCE = re.compile(r"[A-Za-z0-9][\w.:@+-]*(/[A-Za-z0-9][\w.:@+-]*)*", re.ASCII)
_MOST_OF_RELEASE = 64 * 2**10  # bytes


def find_image(client: docker.DockerClient, name: str) -> Image:
    """Return the image that `name` means, as a person would say it.

    Podman reads a short name as one of Docker Hub's and calls its own localhost/NAME.

    Raises:
        docker.errors.ImageNotFound: there is none.
        InvalidRequest (INVALID_ARGUMENT): no image can be called so.
    """
    check_reference(name)
    try:
        return client.images.get(name)
    except docker.errors.ImageNotFound:
        try:
            return client.images.get(f"localhost/{name}")
        except docker.errors.APIError:  # as refusing such a name
            pass
        raise


def check_reference(name: str) -> None:
    """Refuse what is no name or id of an image: the SDK would make another route of the daemon's of it.

    Raises:
        InvalidRequest (INVALID_ARGUMENT).
    """
    if not _REFERENCE.fullmatch(name):
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name[:80]!r} is no name of an image",
            hint="such as python:3.12-slim, in small letters",
            details={"field": "image"},
        )


def obtain_image(client: docker.DockerClient, name: str, pull: str) -> Image:
    """Return the image that `name` means, fetched where the policy `pull` says so: "missing", "always" or "never".

    Images with our own names are made here and never fetched: on a public registry they would be somebody else's.

    Raises:
        docker.errors.ImageNotFound: there is none, and it could not or may not be fetched.
    """
    if pull == "never" or name.startswith(_OURS):
        return find_image(client, name)
    check_reference(name)
    if pull == "missing":
        try:
            return find_image(client, name)
        except docker.errors.ImageNotFound:
            pass
    repository, tag = parse_repository_tag(name)
    try:
        return client.images.pull(repository, tag=tag or "latest")
    except docker.errors.APIError as problem:
        text = f"{name}: it is not here and cannot be pulled: {problem.explanation}"
        raise docker.errors.ImageNotFound(text, problem.response, text) from problem


def version_warning(image: Image, name: str, own: str, plain: str) -> str | None:
    """Return what is to be said of an image of another minor version of Sandcell; None where there is nothing.

    Source: CONTRACT section 4. `plain` is the line that puts Sandcell into an image without it.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it has no Sandcell in it.
        Unavailable (VERSION_MISMATCH): it has one of another major version.
    """
    found = image.labels.get(VERSION)
    if not found:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"the image {name!r} has no Sandcell in it",
            hint=plain,
            details={"field": "image"},
        )
    if found == own:
        return None
    text = f"the image {name!r} has Sandcell {found}, this program is {own}"
    if found.partition(".")[0] != own.partition(".")[0]:
        raise error(
            ErrorCode.VERSION_MISMATCH,
            text,
            hint=f"build it again: sandcell image build, or: pip install sandcell=={found}",
            details={"image": found, "program": own},
        )
    return f"{text}: sandcell image build makes one of the same"


def line_for_plain(name: str, os_release: str) -> str:
    """Return what puts Sandcell into the image `name`, or why that cannot be, from its /etc/os-release."""
    fields = {name: value for name, _, value in (line.partition("=") for line in os_release.splitlines())}
    family = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    if not family or "debian" in family:
        tag = f"sandcell-{name.rpartition('/')[2].replace(':', '-')}"
        return f"sandcell image build --base {name} --tag {tag}, then create({tag!r})"
    return (
        f"it is {family[0]}, and Sandcell needs Debian or its family: sandcell image build --base debian:bookworm-slim "
        "--apt PACKAGE --tag NAME, then create(NAME)"
    )


def os_release(client: docker.DockerClient, image: Image) -> str:
    """Return the /etc/os-release of an image, read without running anything of it; empty where there is none."""
    container = client.containers.create(str(image.id), command=["true"], network_mode="none")
    try:
        for path in ("/usr/lib/os-release", "/etc/os-release"):
            with suppress(docker.errors.NotFound):
                return _read_member(container, path)
        return ""
    finally:
        container.remove(force=True)


def _read_member(container: Container, path: str) -> str:
    chunks, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        for member in tar:
            if member.isfile() and (file := tar.extractfile(member)) is not None:
                return file.read(_MOST_OF_RELEASE).decode(errors="replace")
    return ""


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
