"""What the work of cells is done with: the rooms of the guest that magics reach."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sandcell.activity import Activity, Deed
from sandcell.context import Contexts, Executions
from sandcell.guest.commands import Commands
from sandcell.guest.env_room import EnvRoom
from sandcell.guest.ports import Ports
from sandcell.guest.processes import Processes
from sandcell.guest.way_out import WayOut
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.files import Files
from sandcell_container.guest.meter import Meter
from sandcell_container.guest.process_table import ProcessTable
from sandcell_container.guest.session import Sessions
from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.terminal import Terminals
from sandcell_container.memo import Memo

if TYPE_CHECKING:
    from sandcell_container.journal import Journal
    from sandcell_container.memo import Kind

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """See the module. `shells` are the sessions themselves, below the room of `Guest`; `started_at` in seconds since the epoch."""

    boot: GuestBoot
    memo: Memo
    meter: Meter
    contexts: Contexts
    executions: Executions
    shells: Sessions
    commands: Commands
    processes: Processes
    files: Files
    terminals: Terminals
    table: ProcessTable
    way_out: WayOut
    spawner: Spawner
    env: EnvRoom
    ports: Ports
    activity: Activity
    started_at: float

    @property
    def rooms(self) -> dict[str, Any]:
        """Its fields by name, for who has the same rooms and more."""
        return {each.name: getattr(self, each.name) for each in fields(Desk)}

    def note_made(self, kind: Kind, name: str) -> None:
        """Remember what was made, for whoever asks for it after a restart of the sandbox."""
        self.memo.note_made(kind, name)

    def note_command(self, command_id: str, who: str, session_id: str, code: str, journal: Journal) -> None:
        """Tell of a command of a notebook."""
        deed = Deed(
            kind="command",
            id=command_id,
            who=who,
            where=session_id,
            language="bash",
            code=code,
            at=time.time(),
            journal=journal,
        )
        self.activity(deed)
