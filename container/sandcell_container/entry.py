"""One sandbox of this machine's table, as it is written down: what it is, what it is started from, what stands for it.

The file holds the token, the environment and the secrets, so it is 0600 and its folder 0700.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from sandcell_container.cgroup import ControlGroup
from sandcell_container.end import End
from sandcell_container.engine import Address, Record
from sandcell_container.memo import read_end
from sandcell_container.os_process import OsProcess, boot_id
from sandcell_container.record_file import encode_record, read_record, write_record
from sandcell_container.spec import SandboxSpec

__all__ = ["LOG", "Entry", "address_in", "end_of", "read_entry", "write_entry"]

_log = logging.getLogger(__name__)

LOG = "log"
"""What a guest says, in its entry's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One sandbox of the table. `uid` is its own user where a root host program made it. `processes` are those that
    stand for it on this machine, the guest second, known once it runs; `owner` is the program that made it. Both count
    for the boot `boot` alone. `group` is its control group, which goes with its processes. `resting`: it was stopped on purpose, so its files stay. `python` is what its engine knows
    of the Python that it stands on."""

    record: Record
    spec: SandboxSpec
    folder: Path
    uid: int | None = None
    owner: OsProcess | None = None
    processes: tuple[OsProcess, ...] = ()
    boot: str = ""
    group: ControlGroup | None = None
    resting: bool = False
    python: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def keeps_files(self) -> bool:
        """Whether its files outlive its processes: never those of one that did not come up once. What is to be removed
        and was stopped once on purpose is removed by its maker, or when that is gone: whoever starts it may leave."""
        if self.record.starts == 0:
            return False
        was_stopped = self.resting or self.record.starts > 1
        return self.record.on_release != "remove" or (was_stopped and self.has_owner)

    @property
    def has_owner(self) -> bool:
        """Whether the program that made it still runs."""
        if self.owner is None or self.boot != boot_id():
            return False
        handle = self.owner.open()
        if handle is None:
            return False
        os.close(handle)
        return True

    @property
    def is_mine(self) -> bool:
        """Whether this very program made it."""
        return self.owner == OsProcess.of(os.getpid()) and self.boot == boot_id()

    @property
    def guest(self) -> tuple[OsProcess, ...]:
        """Its guest's process, none where none is known."""
        return self.processes[1:2]


class _Kept(msgspec.Struct):
    """What a record.json holds; each process is its pid and its start."""

    record: Record
    spec: SandboxSpec
    uid: int | None
    owner: tuple[int, int] | None
    processes: tuple[tuple[int, int], ...]
    boot: str
    group: ControlGroup | None
    resting: bool
    python: dict[str, Any]


def read_entry(folder: Path) -> Entry | None:
    """Read an entry; None where there is none, or nothing that can be one: of its sandbox the lock alone tells then."""
    try:
        kept = read_record(folder / "record.json", _Kept)
    except ValueError as problem:
        _log.warning("a record cannot be read folder=%s: %s", folder, problem)
        return None
    if kept is None:
        return None
    entry = Entry(
        # Its path is not kept: the state folder may have been moved.
        record=replace(kept.record, address=address_in(folder)),
        spec=kept.spec,
        folder=folder,
        uid=kept.uid,
        owner=None if kept.owner is None else OsProcess(*kept.owner),
        processes=tuple(OsProcess(*process) for process in kept.processes),
        boot=kept.boot,
        group=kept.group,
        resting=kept.resting,
        python=kept.python,
    )
    if kept.record.status == "stopped" and kept.record.end is None:
        return replace(entry, record=replace(entry.record, end=end_of(entry)))
    return entry


def end_of(entry: Entry) -> End:
    """Return how the last start of a sandbox that does not run came to its end."""
    if entry.resting:
        return End(cause="killed", who="user", at=time.time())
    return read_end(entry.folder / "memo") or End(cause="lost", at=time.time())


def write_entry(entry: Entry) -> None:
    """Write an entry whole or not at all."""
    fields = {
        "record": asdict(entry.record),
        "spec": asdict(entry.spec),
        "uid": entry.uid,
        "owner": _fields(entry.owner) if entry.owner else None,
        "processes": [_fields(process) for process in entry.processes],
        "boot": entry.boot,
        "group": asdict(entry.group) if entry.group else None,
        "resting": entry.resting,
        "python": entry.python,
    }
    write_record(entry.folder / "record.json", encode_record(fields))


def address_in(folder: Path) -> Address:
    """Return where the guest of the sandbox in `folder` listens."""
    return Address(path=str(folder / "guest.sock"))


def _fields(process: OsProcess) -> list[int]:
    return [process.pid, process.started]
