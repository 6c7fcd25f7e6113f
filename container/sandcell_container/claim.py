"""A sandbox of this machine's table that is about to run, and whoever is starting it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandcell_container.cgroup import end_group
from sandcell_container.entry import write_entry
from sandcell_container.file_tree import remove_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.cgroup import ControlGroup
    from sandcell_container.entry import Entry
    from sandcell_container.os_process import OsProcess

__all__ = ["Claim"]


class Claim:
    """An entry about to run: a new one, its name, id and uid taken, or one that was stopped. Leave it by `publish` or
    `abandon`, then `close`."""

    def __init__(self, entry: Entry, lock: int) -> None:
        self.entry = entry
        self.lock = lock
        self._is_first = entry.record.starts == 0

    def plan(self, group: ControlGroup | None) -> None:
        """Record the control group that it is about to have, so that it goes whatever happens."""
        planned = replace(self.entry, group=group)
        write_entry(planned)
        self.entry = planned

    def publish(self, processes: Sequence[OsProcess], *, python: dict[str, Any] | None = None) -> Entry:
        """Record that the sandbox runs, as `processes`; and what there is to know of the Python it stands on."""
        old = self.entry.record
        record = replace(old, status="running", starts=old.starts + 1, started_at=time.time(), end=None)
        running = replace(
            self.entry,
            record=record,
            processes=tuple(processes),
            resting=False,
            python=self.entry.python if python is None else python,
        )
        write_entry(running)
        self.entry = running
        return running

    def abandon(self) -> None:
        """Take a new entry and its files back, or leave one that had run stopped; nothing of it may run any more.

        A new one whose control group cannot be removed yet, because what was in it is just ending, stays for the next
        look at the table: nothing else knows of the group.
        """
        has_no_group = end_group(self.entry.group)
        if self._is_first:
            if has_no_group:
                remove_tree(self.entry.folder)
        else:
            write_entry(replace(self.entry, record=replace(self.entry.record, status="stopped")))

    def close(self) -> None:
        """Give up this program's hold of the lock; the sandbox has its own."""
        os.close(self.lock)
