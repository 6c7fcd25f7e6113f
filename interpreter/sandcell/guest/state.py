"""What the guest is made of, passed to every handler."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from sandcell.config import Config
from sandcell.context import Contexts, Executions
from sandcell.guest.births import Births
from sandcell.guest.commands import Commands
from sandcell.guest.env_room import EnvRoom
from sandcell.guest.followers import Followers
from sandcell.guest.fronts import Fronts
from sandcell.guest.leases import Leases
from sandcell.guest.ports import Ports
from sandcell.guest.processes import Processes
from sandcell.guest.session_room import SessionRoom
from sandcell.guest.way_out import WayOut
from sandcell.tool_room import ToolRoom
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.files import Files
from sandcell_container.guest.masks import Masks
from sandcell_container.guest.meter import Meter
from sandcell_container.guest.process_table import ProcessTable
from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.terminal import Terminals
from sandcell_container.guest.watch import Watches
from sandcell_container.memo import Memo

__all__ = ["Guest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """The objects of one sandbox. `group` owns what outlives a request; `started_at` in seconds since the epoch."""

    boot: GuestBoot
    env: EnvRoom
    masks: Masks | None
    memo: Memo
    meter: Meter
    config: Config
    leases: Leases
    contexts: Contexts
    executions: Executions
    tools: ToolRoom
    commands: Commands
    sessions: SessionRoom
    processes: Processes
    files: Files
    watches: Watches
    fronts: Fronts
    ports: Ports
    terminals: Terminals
    table: ProcessTable
    way_out: WayOut
    spawner: Spawner
    followers: Followers
    group: asyncio.TaskGroup
    started_at: float
    births: Births = field(default_factory=Births)
    _requests: itertools.count[int] = field(default_factory=itertools.count)

    def next_request_id(self) -> str:
        """Return an id for a request that brought none: unique in this guest's log."""
        return f"{self.boot.sandbox_id}-{next(self._requests)}"
