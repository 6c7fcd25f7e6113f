"""What is put into an image for one sandbox: pure, from packages to the lines of a build."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from sandcell_container.errors import ErrorCode, error

__all__ = ["DERIVED", "PRESETS", "SETTLING_S", "ImageOrder", "Recipe", "recipe_of"]

DERIVED = "sandcell-derived"
"""What images are called that are made for sandboxes; their tags say of what."""

SETTLING_S = 600.0
"""What is made stays for so long at least: a sandbox that is being made stands on it before anybody can see that it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Packages for the user's Python environment, and Debian packages, each as its tool takes it."""

    packages: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.packages and not self.apt

    def tag(self, base: str) -> str:
        """Return the name of the image that this makes of the image with the id `base`: the same for the same content."""
        content = json.dumps([base, sorted(self.packages), sorted(self.apt)])
        return f"{DERIVED}:{hashlib.sha256(content.encode()).hexdigest()[:32]}"

    def dockerfile(self, base: str) -> str:
        """Return the build from `base`. With a `ca.crt` that is not empty pip trusts what is in it.

        Values stand in the exec form, which no shell reads. What pip needs only to install is in another stage.
        """
        pip = ["/opt/user/bin/pip", "install", "--no-cache-dir", "--quiet", "--", *self.packages]
        lines = [f"FROM {base} AS base", "USER root"]
        if self.apt:
            apt = ["apt-get", "install", "-y", "--no-install-recommends", "--", *self.apt]
            lines += [
                "ARG DEBIAN_FRONTEND=noninteractive",
                'RUN ["apt-get", "update"]',
                _run(apt),
                "RUN rm -rf /var/lib/apt/lists/*",
            ]
        if self.packages:
            lines += [
                "FROM base AS build",
                "ARG PIP_INDEX_URL",
                "COPY ca.crt /usr/src/ca.crt",
                "RUN [ ! -s /usr/src/ca.crt ] || printf '[global]\\ncert = /usr/src/ca.crt\\n' >/etc/pip.conf",
                _run(pip),
                "FROM base",
                "COPY --from=build --chown=1000:1000 /opt/user /opt/user",
            ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """An image to be made: the runtime image of this version, `target` "slim" or "full", from the image `base` (Debian or of
    its family), with what `recipe` adds, as `tag`."""

    target: str
    tag: str
    base: str | None = None
    recipe: Recipe = field(default_factory=Recipe)


PRESETS = {
    "none": Recipe(),
    "python": Recipe(),
    "node": Recipe(apt=("nodejs", "npm")),
    "build": Recipe(apt=("build-essential",)),
    "data": Recipe(packages=("numpy", "pandas", "matplotlib", "plotly")),
    "full": Recipe(
        packages=("numpy", "pandas", "matplotlib", "plotly", "deno"), apt=("nodejs", "npm", "build-essential")
    ),
}


def recipe_of(packages: tuple[str, ...], apt: tuple[str, ...], preset: str | None) -> Recipe:
    """Return all that is asked for, each once.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): there is no such preset.
    """
    if preset is not None and preset not in PRESETS:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"there is no preset {preset[:40]!r}",
            hint=f"one of {', '.join(PRESETS)}",
            details={"field": "preset"},
        )
    base = PRESETS[preset or "none"]
    return Recipe(
        packages=tuple(dict.fromkeys((*base.packages, *packages))),
        apt=tuple(dict.fromkeys((*base.apt, *apt))),
    )


def _run(argv: list[str]) -> str:
    return f"RUN {json.dumps(argv)}"
