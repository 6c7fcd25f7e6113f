"""What every engine is told by its host program."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sandcell_container.spec import GuestCommand

__all__ = ["EngineSettings", "ImageSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """How images are come by. `pull`: what of other people's is fetched, "missing", "always" or "never". `network` is the
    network of builds, as the daemon calls it, None its default; `ca_bundle` what pip trusts in them, `index_url` where it
    looks."""

    pull: str = "missing"
    network: str | None = None
    ca_bundle: bytes = b""
    index_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """`state` is the folder where sandboxes of this machine are recorded. A root host program gives each sandbox one of
    `uid_count` uids from `first_uid` on. `guest_settings` goes to the guest as `GuestBoot.settings`.
    `relay`: the guests of containers are reached through their daemon, also where that need not be."""

    state: Path
    first_uid: int
    uid_count: int
    guest: GuestCommand
    guest_settings: dict[str, str]
    images: ImageSettings = field(default_factory=ImageSettings)
    relay: bool = False
