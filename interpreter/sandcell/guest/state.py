"""What the guest is made of, passed to every handler."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from sandcell.config import Config
from sandcell.guest.births import Births
from sandcell.guest.desk import Desk
from sandcell.guest.followers import Followers
from sandcell.guest.fronts import Fronts
from sandcell.guest.leases import Leases
from sandcell.guest.session_room import SessionRoom
from sandcell.tool_room import ToolRoom
from sandcell_container.guest.masks import Masks
from sandcell_container.guest.watch import Watches

__all__ = ["Guest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest(Desk):
    """The objects of one sandbox: those of its desk, and those that clients alone reach. `group` owns what outlives a request."""

    masks: Masks | None
    config: Config
    leases: Leases
    tools: ToolRoom
    sessions: SessionRoom
    watches: Watches
    fronts: Fronts
    followers: Followers
    group: asyncio.TaskGroup
    births: Births = field(default_factory=Births)
    _requests: itertools.count[int] = field(default_factory=itertools.count)

    def next_request_id(self) -> str:
        """Return an id for a request that brought none: unique in this guest's log."""
        return f"{self.boot.sandbox_id}-{next(self._requests)}"
