"""What every engine is told by its host program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandcell_container.spec import GuestCommand

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """`state` is the folder where sandboxes of this machine are recorded. A root host program gives each sandbox one of
    `uid_count` uids from `first_uid` on. `guest_settings` goes to the guest as `GuestBoot.settings`."""

    state: Path
    first_uid: int
    uid_count: int
    guest: GuestCommand
    guest_settings: dict[str, str]
