"""The sandboxes of this machine: one folder each, with a record, a lock that its guest holds while it lives, and files.

    STATE/table.lock          held for moments, while the table is read or changed
    STATE/ID/                 0700
        record.json           0600, it holds the token
        lock                  flock'd by the sandbox for as long as it lives
        guest.sock  log  workspace/  home/
    STATE/.gone-ID-RANDOM/    a sandbox that is no more, its files not yet removed

A sandbox whose lock is free is dead, whatever its record says; the next call that reads the table buries it. One whose
record cannot be read is not listed, and left alone until its lock is free.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pwd
import secrets
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sandcell_container.end import End
from sandcell_container.engine import Address, Record
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_tree import remove_tree
from sandcell_container.ids import check_id
from sandcell_container.os_process import OsProcess, await_ends, boot_id, end_processes

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

__all__ = ["Claim", "Entry", "Registry"]

_log = logging.getLogger(__name__)
_END_TIMEOUT = 10.0  # seconds; everything is killed, so only a stuck kernel needs them
_GRAVE = ".gone-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One sandbox of the table. `uid` is its own user where a root host program made it. `processes` are those that
    stand for it on this machine, known once it runs; they count for the boot `boot` alone."""

    record: Record
    folder: Path
    uid: int | None = None
    processes: tuple[OsProcess, ...] = ()
    boot: str = ""

    @property
    def keeps_files(self) -> bool:
        """Whether its files outlive its processes."""
        return self.record.on_release != "remove" and self.record.status != "creating"


class _Kept(msgspec.Struct):
    """What a record.json holds; each process is its pid and its start."""

    record: Record
    uid: int | None
    processes: tuple[tuple[int, int], ...]
    boot: str


class Claim:
    """An entry being made, its name, id and uid taken. Leave it by `publish` or `abandon`, then `close`."""

    def __init__(self, entry: Entry, lock: int) -> None:
        self.entry = entry
        self.lock = lock

    def publish(self, processes: Sequence[OsProcess]) -> Entry:
        """Record that the sandbox runs, as `processes`."""
        record = replace(self.entry.record, status="running")
        self.entry = replace(self.entry, record=record, processes=tuple(processes), boot=boot_id())
        _write(self.entry)
        return self.entry

    def abandon(self) -> None:
        """Take the entry and its files back; nothing of it may run any more."""
        remove_tree(self.entry.folder)

    def close(self) -> None:
        """Give up this program's hold of the lock; the sandbox has its own."""
        os.close(self.lock)


class Registry:
    """The table in the folder `state`, shared by all programs of one user. Thread-safe: it holds nothing itself."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def claim(self, record: Record, *, uids: range = range(0)) -> Claim:
        """Take the id and name of `record`, and one of `uids` if there are any, for a sandbox about to be made.

        Raises:
            Conflict (EXISTS): another sandbox has the name or the id, a stopped one too.
            InvalidRequest (INVALID_NAME): one of the two cannot be such.
            Unavailable (ENGINE_UNAVAILABLE): the state folder cannot be written, or no uid is left.
        """
        check_id(record.id, what="id of a sandbox")
        check_id(record.name, what="name of a sandbox")
        self.reap()
        with self._locked():
            entries = self._read_all()
            _check_free(record, entries)
            taken = {entry.uid for entry in entries} | {_owner(folder / "home") for folder in self._folders()}
            uid = _free_uid(uids, taken) if uids else None
            folder = self._state / record.id
            folder.mkdir(mode=0o700)
            entry = Entry(record=replace(record, address=_address(folder)), folder=folder, uid=uid)
            _write(entry)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        return Claim(entry, lock)

    def entries(self) -> list[Entry]:
        """Return the sandboxes there are, the oldest first, after burying the dead."""
        self.reap()
        with self._locked():
            return sorted(self._read_all(), key=lambda entry: entry.record.created_at)

    def reap(self) -> None:
        """End what is left of dead sandboxes; remove their files, or mark them stopped where files are kept."""
        stopped = list[Entry]()
        with self._locked():
            for folder in self._folders():
                if _is_held(folder):
                    continue
                entry = _read(folder)
                if entry is None or not entry.keeps_files:
                    self._bury(folder)
                elif entry.record.status != "stopped":
                    stopped.append(entry)
                    _write(replace(entry, record=replace(entry.record, status="stopped")))
            graves = [path for path in self._state.iterdir() if path.name.startswith(_GRAVE)]
        for entry in stopped:
            _end(entry)
        for grave in graves:
            buried = _read(grave)
            if buried is None or not _end(buried):
                remove_tree(grave)

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        """Wait until the processes of the sandbox have ended. Source: `Engine.await_end`."""
        with self._locked():
            entry = _read(self._state / sandbox_id) if _is_plain(sandbox_id) else None
        if entry is not None and entry.boot == boot_id() and await_ends(entry.processes, timeout=timeout):
            return None
        return End(cause="lost", at=time.time())

    def remove(self, sandbox_id: str) -> None:
        """End the sandbox and remove all of it; one that does not exist is fine.

        Raises:
            Conflict (BUSY): it is just being made, or lives and has no readable record.
            WaitTimeout (WAIT_TIMEOUT): its processes did not end within 10 s; nothing was removed.
        """
        with self._locked():
            folder = self._state / sandbox_id
            if not _is_plain(sandbox_id) or not folder.is_dir():
                return
            entry = _read(folder)
            if (entry is None or entry.record.status == "creating") and _is_held(folder):
                raise _busy(folder, has_record=entry is not None)
        if entry is None:
            self.reap()
            return
        if left := _end(entry):
            raise error(
                ErrorCode.WAIT_TIMEOUT,
                f"processes {[each.pid for each in left]} of the sandbox {entry.record.name!r} do not end",
            )
        with self._locked():
            grave = self._bury(entry.folder)
        if grave is not None:
            remove_tree(grave)

    def _bury(self, folder: Path) -> Path | None:
        """Move an entry out of the table at once; returns where it lies, None where another was faster."""
        grave = self._state / f"{_GRAVE}{folder.name}-{secrets.token_hex(4)}"
        try:
            folder.rename(grave)
        except FileNotFoundError:
            return None
        return grave

    def _read_all(self) -> list[Entry]:
        return [entry for folder in self._folders() if (entry := _read(folder)) is not None]

    def _folders(self) -> list[Path]:
        return [path for path in self._state.iterdir() if path.is_dir() and _is_plain(path.name)]

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._state / "table.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as failed:
            raise error(
                ErrorCode.ENGINE_UNAVAILABLE,
                f"sandboxes cannot be recorded in {self._state}: {failed.strerror}",
                hint="name another folder by SANDCELL_STATE_DIR",
            ) from failed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _is_plain(name: str) -> bool:
    """Whether `name` can be an entry's folder: graves and the lock are not, nor is any way out of the state folder."""
    return not name.startswith(".") and "/" not in name and name not in ("", "table.lock")


def _address(folder: Path) -> Address:
    return Address(path=str(folder / "guest.sock"))


def _busy(folder: Path, *, has_record: bool) -> SandcellError:
    if has_record:
        return error(ErrorCode.BUSY, f"the sandbox {folder.name} is just being made")
    return error(
        ErrorCode.BUSY,
        f"the sandbox {folder.name} lives, and its record cannot be read: {folder / 'record.json'}",
        hint="it is removed when it has ended: with the program that made it, or by kill",
    )


def _check_free(record: Record, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if entry.record.name == record.name or entry.record.id == record.id:
            raise error(
                ErrorCode.EXISTS,
                f"a sandbox named {entry.record.name!r} exists already ({entry.record.status})",
                hint=f"connect to it, or remove it first: sandcell rm {entry.record.name}",
                details={"id": entry.record.id, "name": entry.record.name, "status": entry.record.status},
            )


def _free_uid(uids: range, taken: set[int | None]) -> int:
    """Return a uid that no sandbox of this table has and no account, from a random place on: other tables of this machine
    draw from the same range, and do not know of each other."""
    start = secrets.randbelow(len(uids))
    for at in range(len(uids)):
        uid = uids[(start + at) % len(uids)]
        if uid not in taken and not _has_account(uid):
            return uid
    raise error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"all {len(uids)} uids from {uids.start} on are taken by sandboxes",
        hint="remove some: sandcell ps, sandcell rm; or widen the range: SANDCELL_UID_COUNT",
    )


def _owner(path: Path) -> int | None:
    """Return whose `path` is: of a sandbox without a readable record this alone tells the uid."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _is_held(folder: Path) -> bool:
    """Whether somebody holds the lock of an entry. Called under the table's lock, so no other reader is mistaken for that."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _end(entry: Entry) -> list[OsProcess]:
    """Kill what is left of a sandbox and wait for it: files may go only when nobody writes them. Returns what stays."""
    if entry.boot != boot_id():
        return []  # its processes ended with the machine, their numbers are others' by now
    left = end_processes(entry.processes, timeout=_END_TIMEOUT)
    if left:
        _log.warning("processes of a dead sandbox do not end sandbox=%s", entry.record.id)
    return left


def _read(folder: Path) -> Entry | None:
    """Read an entry; None where there is none, or nothing that can be one: of its sandbox the lock alone tells then."""
    try:
        text = (folder / "record.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        kept = msgspec.json.decode(text, type=_Kept)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        _log.warning("a record cannot be read folder=%s: %s", folder, problem)
        return None
    # Its path is not kept: the state folder may have been moved.
    return Entry(
        record=replace(kept.record, address=_address(folder)),
        folder=folder,
        uid=kept.uid,
        processes=tuple(OsProcess(*process) for process in kept.processes),
        boot=kept.boot,
    )


def _write(entry: Entry) -> None:
    """Write an entry whole or not at all."""
    fields = {
        "record": asdict(entry.record),
        "uid": entry.uid,
        "processes": [[process.pid, process.started] for process in entry.processes],
        "boot": entry.boot,
    }
    draft = entry.folder / ".record.json"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(fields, file)
    draft.rename(entry.folder / "record.json")
