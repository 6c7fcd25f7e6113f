"""Building images by a daemon: the runtime image, and what one sandbox needs beside it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import docker
import docker.errors

from sandcell_container.engine import Deadlines
from sandcell_container.engines.docker_daemon import RUNTIME_IMAGE, open_client
from sandcell_container.engines.docker_image import (
    VERSION,
    find_image,
    line_for_plain,
    obtain_image,
    os_release,
    version_warning,
)
from sandcell_container.engines.image_context import image_files, own_version, pack_context
from sandcell_container.engines.image_recipe import recipe_of
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.named_lock import named_lock

if TYPE_CHECKING:
    import io
    from collections.abc import Callable
    from pathlib import Path

    from sandcell_container.engines.docker_daemon import Daemon
    from sandcell_container.engines.image_recipe import ImageOrder, Recipe
    from sandcell_container.engines.settings import ImageSettings
    from sandcell_container.spec import SandboxSpec

__all__ = ["Workshop", "build_image", "image_for"]

_TIMEOUT = Deadlines().build  # that a step may be silent
_LINES_SHOWN = 50


class Workshop(NamedTuple):
    """How images are made. `locks` is a folder where programs that want the same wait for each other."""

    settings: ImageSettings
    locks: Path


def image_for(
    daemon: Daemon, client: docker.DockerClient, spec: SandboxSpec, workshop: Workshop
) -> tuple[str, tuple[str, ...]]:
    """Return the id of what the container of `spec` is made from, and what has to be said of it.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it has no Sandcell in it; the hint is the line that puts one in.
        Unavailable (IMAGE_NOT_FOUND, VERSION_MISMATCH; START_FAILED: what is asked for could not be put into it).
    """
    name = spec.image or RUNTIME_IMAGE
    image = obtain_image(client, name, workshop.settings.pull)
    is_plain = VERSION not in image.labels
    plain = line_for_plain(name, os_release(client, image)) if is_plain else ""
    warning = version_warning(image, name, own_version(), plain)
    recipe = recipe_of(spec.packages, spec.apt, spec.preset)
    made = str(image.id)
    if not recipe.is_empty:
        with open_client(daemon, _TIMEOUT) as builder:
            made = _derive(builder, made, recipe, workshop)
    return made, () if warning is None else (warning,)


def build_image(
    daemon: Daemon, order: ImageOrder, workshop: Workshop, *, on_line: Callable[[str], object]
) -> None:
    """Make the image of `order`. `on_line` is called with each line of the build.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE, START_FAILED: the build failed; `details["words"]` has its last 50 lines).
    """
    arguments = {"VERSION": own_version()} | ({"BASE": order.base} if order.base else {})
    with open_client(daemon, _TIMEOUT) as client:
        context = pack_context(image_files(ca_bundle=workshop.settings.ca_bundle))
        build = _Build(client, workshop.settings, on_line)
        build.run(context, order.tag, arguments, target=order.target)
        if not order.recipe.is_empty:
            made = _derive(client, str(find_image(client, order.tag).id), order.recipe, workshop, on_line)
            repository, _, name = order.tag.partition(":")
            client.images.get(made).tag(repository, name or "latest")


def _derive(
    client: docker.DockerClient,
    base: str,
    recipe: Recipe,
    workshop: Workshop,
    on_line: Callable[[str], object] = lambda _: None,
) -> str:
    """Return the id of what `recipe` makes of the image with the id `base`, built where there is none yet.

    Several programs that want the same at once build it once.
    """
    tag, settings = recipe.tag(base), workshop.settings
    with named_lock(workshop.locks, tag.replace(":", "-")):
        try:
            return str(find_image(client, tag).id)
        except docker.errors.ImageNotFound:
            files = {"Dockerfile": recipe.dockerfile(base).encode(), "ca.crt": settings.ca_bundle}
            _Build(client, settings, on_line).run(pack_context(files), tag, {})
            return str(find_image(client, tag).id)


class _Build(NamedTuple):
    client: docker.DockerClient
    settings: ImageSettings
    on_line: Callable[[str], object]

    def run(
        self, context: io.BytesIO, tag: str, arguments: dict[str, str], *, target: str | None = None
    ) -> None:
        """Build `context` as `tag`; the daemon tells of it in a stream."""
        if self.settings.index_url:
            arguments = arguments | {"PIP_INDEX_URL": self.settings.index_url}
        api: Any = self.client.api
        events = api.build(
            fileobj=context,
            custom_context=True,
            tag=tag,
            target=target,
            buildargs=arguments,
            network_mode=self.settings.network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        last, problem = deque[str](maxlen=_LINES_SHOWN), ""
        for event in events:  # to its end, after an error too: only then is the connection given back
            for line in filter(str.strip, str(event.get("stream") or "").splitlines()):
                last.append(line)
                self.on_line(line)
            problem = problem or str(event.get("error") or "")
        if problem:
            raise _failed(tag, problem, last)


def _failed(tag: str, problem: str, last: deque[str]) -> SandcellError:
    return error(
        ErrorCode.START_FAILED,
        f"the image {tag} could not be built: {problem.strip()}"[:500],
        hint="details['words'] has the last lines of the build",
        details={"words": "\n".join(last)},
    )
