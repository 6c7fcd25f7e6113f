"""The sandboxes of this machine: one folder each, with a record, a lock that its guest holds while it lives, and files.

    STATE/table.lock          held for moments, while the table is read or changed
    STATE/ID/                 0700
        record.json           0600, it holds the token, the environment and the secrets
        lock                  flock'd by the sandbox for as long as it runs
        guest.sock  log  workspace/  home/
    STATE/.gone-ID-RANDOM/    a sandbox that is no more, its files not yet removed
    STATE-ended/ID            how one ended of which nothing else is left

A sandbox whose lock is free does not run, whatever its record says: the next call that reads the table notes that it is
stopped, or buries it, see `Entry.keeps_files`. One whose record cannot be read is not listed, and left alone until its
lock is free.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell_container.cgroup import end_group
from sandcell_container.claim import Claim
from sandcell_container.end import End
from sandcell_container.ends import Ends, read_words
from sandcell_container.engine import Deadlines, Pruned, Record
from sandcell_container.entry import LOG, Entry, address_in, end_of, read_entry, write_entry
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_tree import remove_tree
from sandcell_container.folder_lock import is_held, take_lock
from sandcell_container.ids import check_id
from sandcell_container.os_process import OsProcess, await_ends, boot_id, end_processes, signal_processes
from sandcell_container.policy import add_policy
from sandcell_container.state_folder import make_state_folder, unfit
from sandcell_container.uids import free_uid, owner_of
from sandcell_container.unix_address import is_listening

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from sandcell_container.spec import SandboxSpec

__all__ = ["Claim", "Entry", "Registry"]

_log = logging.getLogger(__name__)
_DEADLINES = Deadlines()
_GRAVE = ".gone-"
_PAUSE_S = 0.02
_LAST_WORD_S, _LOOK_S = 0.2, 0.005


class Registry:
    """The table in the folder `state`, shared by all programs of one user. Thread-safe: it holds nothing itself."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._ends = Ends(state.with_name(f"{state.name}-ended"))

    def claim(self, spec: SandboxSpec, *, engine: str, uids: range = range(0)) -> Claim:
        """Take the id and name of `spec`, and one of `uids` if there are any, for a sandbox that `engine` is about to make.

        Raises:
            Conflict (EXISTS): another sandbox has the name or the id, a stopped one too.
            InvalidRequest (INVALID_NAME): one of the two cannot be such.
            Unavailable (ENGINE_UNAVAILABLE): the state folder cannot be written, or no uid is left.
        """
        check_id(spec.id, what="id of a sandbox")
        check_id(spec.name, what="name of a sandbox")
        self.reap()
        with self._locked():
            entries = self._read_all()
            _check_free(spec, entries)
            taken = {entry.uid for entry in entries} | {owner_of(each / "home") for each in self._folders()}
            uid = free_uid(uids, taken) if uids else None
            folder = self._state / spec.id
            folder.mkdir(mode=0o700)
            entry = Entry(
                record=_new_record(spec, engine, folder),
                spec=spec,
                folder=folder,
                uid=uid,
                owner=OsProcess.of(os.getpid()),
                boot=boot_id(),
            )
            write_entry(entry)
            return Claim(entry, take_lock(folder))

    def claim_again(self, sandbox_id: str, *, deadline: float) -> Claim | Entry:
        """Take a stopped sandbox to start it again, or return it where it runs.

        One that somebody else is starting or stopping is waited for until `deadline` (`time.monotonic()`): the end of
        its processes is an event; for a start there is a look every 20 ms, because the lock of a file gives none.

        Raises:
            NotFound (NOT_FOUND): there is none.
            Unavailable (START_TIMEOUT): somebody else is still at it.
        """
        while True:
            self.reap()
            with self._locked():
                entry = self._entry(sandbox_id)
                if not is_held(entry.folder):
                    return _retake(entry)
            if entry.record.status == "running":
                if not entry.resting and is_listening(entry.record.address.path):
                    return entry
                await_ends(entry.processes, timeout=deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise error(
                    ErrorCode.START_TIMEOUT,
                    f"the sandbox {entry.record.name!r} is still being started or stopped by somebody else",
                    hint="try again later, or look at what that program does",
                )
            time.sleep(_PAUSE_S)

    def rest(self, sandbox_id: str) -> None:
        """End all that runs in a sandbox, its guest politely, and keep its files. One that does not run is fine.

        Raises:
            NotFound (NOT_FOUND): there is none.
            Conflict (BUSY): it is just being made or started.
            WaitTimeout (WAIT_TIMEOUT): its processes did not end.
        """
        self.reap()
        with self._locked():
            entry = self._entry(sandbox_id)
            if not is_held(entry.folder):
                return
            if entry.record.status == "creating":
                raise _busy(entry.folder, has_record=True)
            write_entry(replace(entry, resting=True))
        signal_processes(entry.guest, signal.SIGTERM)
        await_ends(entry.processes, timeout=_DEADLINES.say_goodbye)
        _end_all(entry)
        self.reap()

    def entry(self, sandbox_id: str) -> Entry:
        """Return the sandbox `sandbox_id`.

        Raises:
            NotFound (NOT_FOUND): there is none.
        """
        self.reap()
        with self._locked():
            return self._entry(sandbox_id)

    def respecify(self, sandbox_id: str, change: Callable[[SandboxSpec], SandboxSpec]) -> tuple[Entry, Entry]:
        """Write down a sandbox's changed spec; returns the entry before and after. Its id and name stay.

        Raises:
            NotFound (NOT_FOUND): there is none.
            Conflict (BUSY): it is just being made or started.
        """
        self.reap()
        with self._locked():
            before = self._entry(sandbox_id)
            if before.record.status == "creating":
                raise _busy(before.folder, has_record=True)
            spec = replace(change(before.spec), id=before.spec.id, name=before.spec.name)
            after = replace(before, spec=spec, record=replace(before.record, on_release=spec.on_release))
            write_entry(after)
            if spec.network != before.spec.network:
                add_policy(after.folder, spec.network)
        return before, after

    def entries(self) -> list[Entry]:
        """Return the sandboxes there are, the oldest first, after burying the dead."""
        self.reap()
        with self._locked():
            return sorted(self._read_all(), key=lambda entry: entry.record.created_at)

    def reap(self, *, leaving: OsProcess | None = None) -> Pruned:
        """End what is left of sandboxes that do not run, and bury them or note that they are stopped. `leaving` is a
        program that counts as gone already."""
        found = dict[str, list[str]](live=[], stopped=[], removed=[])
        ended = list[Entry]()
        with self._locked():
            for folder in self._folders():
                state = "live" if is_held(folder) else self._settle(folder, leaving, ended)
                found[state].append(folder.name)
            graves = [path for path in self._state.iterdir() if path.name.startswith(_GRAVE)]
        for entry in ended:
            _end(entry)
            end_group(entry.group)
        for grave in graves:
            buried = read_entry(grave)
            if buried is not None and (_end(buried) or _has_group(buried)):
                continue
            if buried is not None and buried.record.starts:
                self._ends.keep(buried.record.id, _last_word(buried), read_words(grave / LOG))
            remove_tree(grave)
        return Pruned(**{state: tuple(ids) for state, ids in found.items()})

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        """Wait until the processes of the sandbox have ended. Source: `Engine.await_end`."""
        with self._locked():
            entry = read_entry(self._state / sandbox_id) if _is_plain(sandbox_id) else None
        if entry is None:
            return self._ends.find(sandbox_id) or End(cause="lost", at=time.time())
        if entry.boot == boot_id() and await_ends(entry.processes, timeout=timeout):
            return None
        end = _last_word(entry)
        return (self._ends.find(sandbox_id) or end) if end.cause == "lost" else end

    def last_words(self, sandbox_id: str) -> str:
        """Return what the guest of a sandbox said last. Source: `Engine.last_words`."""
        if not _is_plain(sandbox_id):
            return ""
        return read_words(self._state / sandbox_id / LOG) or self._ends.words(sandbox_id)

    def remove(self, sandbox_id: str) -> None:
        """End the sandbox and remove all of it; one that does not exist is fine.

        Raises:
            Conflict (BUSY): it is just being made or started, or lives and has no readable record.
            WaitTimeout (WAIT_TIMEOUT): its processes did not end within 10 s; nothing was removed.
        """
        with self._locked():
            folder = self._state / sandbox_id
            if not _is_plain(sandbox_id) or not folder.is_dir():
                return
            entry = read_entry(folder)
            if (entry is None or entry.record.status == "creating") and is_held(folder):
                raise _busy(folder, has_record=entry is not None)
        if entry is None:
            self.reap()
            return
        _end_all(entry)
        with self._locked():
            grave = self._bury(entry.folder)
        if grave is not None and not _has_group(entry):
            self._ends.keep(sandbox_id, End(cause="killed", who="user", at=time.time()))
            remove_tree(grave)

    def _settle(self, folder: Path, leaving: OsProcess | None, ended: list[Entry]) -> str:
        """Write down what has become of a sandbox that does not run; `ended` gets it where that is news."""
        entry = read_entry(folder)
        if (
            entry is None
            or not entry.keeps_files
            or (entry.owner == leaving and entry.spec.on_release == "remove")
        ):
            self._bury(folder)
            return "removed"
        if entry.record.status != "stopped":
            ended.append(entry)
            end = end_of(entry) if entry.resting else None  # else it may not all be written down yet
            write_entry(replace(entry, record=replace(entry.record, status="stopped", end=end)))
        return "stopped"

    def _bury(self, folder: Path) -> Path | None:
        """Move an entry out of the table at once; returns where it lies, None where another was faster."""
        grave = self._state / f"{_GRAVE}{folder.name}-{secrets.token_hex(4)}"
        try:
            folder.rename(grave)
        except FileNotFoundError:
            return None
        return grave

    def _entry(self, sandbox_id: str) -> Entry:
        entry = read_entry(self._state / sandbox_id) if _is_plain(sandbox_id) else None
        if entry is None:
            raise error(
                ErrorCode.NOT_FOUND,
                f"no sandbox of this machine has the id {sandbox_id[:80]!r}",
                hint="sandcell ps lists them",
            )
        return entry

    def _read_all(self) -> list[Entry]:
        return [entry for folder in self._folders() if (entry := read_entry(folder)) is not None]

    def _folders(self) -> list[Path]:
        return [path for path in self._state.iterdir() if path.is_dir() and _is_plain(path.name)]

    @contextmanager
    def _locked(self) -> Generator[None]:
        make_state_folder(self._state)
        try:
            lock = os.open(self._state / "table.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as failed:
            raise unfit(self._state, failed.strerror or str(failed)) from failed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _retake(entry: Entry) -> Claim:
    """Claim a sandbox that does not run. Its owner is known for one boot alone."""
    same_boot = entry.boot == boot_id()
    taken = replace(
        entry,
        record=replace(entry.record, status="creating"),
        owner=entry.owner if same_boot else None,
        processes=(),
        boot=boot_id(),
    )
    write_entry(taken)
    return Claim(taken, take_lock(entry.folder))


def _is_plain(name: str) -> bool:
    """Whether `name` can be an entry's folder: graves and the lock are not, nor is any way out of the state folder."""
    return not name.startswith(".") and "/" not in name and name not in ("", "table.lock")


def _busy(folder: Path, *, has_record: bool) -> SandcellError:
    if has_record:
        return error(ErrorCode.BUSY, f"the sandbox {folder.name} is just being made or started")
    return error(
        ErrorCode.BUSY,
        f"the sandbox {folder.name} lives, and its record cannot be read: {folder / 'record.json'}",
        hint="it is removed when it has ended: with the program that made it, or by kill",
    )


def _new_record(spec: SandboxSpec, engine: str, folder: Path) -> Record:
    return Record(
        id=spec.id,
        name=spec.name,
        engine=engine,
        status="creating",
        address=address_in(folder),
        token=secrets.token_urlsafe(32),
        created_at=time.time(),
        on_release=spec.on_release,
        image=spec.image,
    )


def _check_free(spec: SandboxSpec, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if entry.record.name == spec.name or entry.record.id == spec.id:
            raise error(
                ErrorCode.EXISTS,
                f"a sandbox named {entry.record.name!r} exists already ({entry.record.status})",
                hint=f"connect to it, or remove it first: sandcell rm {entry.record.name}",
                details={"id": entry.record.id, "name": entry.record.name, "status": entry.record.status},
            )


def _last_word(entry: Entry) -> End:
    """Return how a sandbox ended whose processes are gone. Who has started them writes it down when they are reaped, within
    a millisecond or two: that is waited for, with a look every 5 ms, as nothing tells of a line in a file."""
    deadline = time.monotonic() + _LAST_WORD_S
    while (end := end_of(read_entry(entry.folder) or entry)).cause == "lost" and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return end


def _end(entry: Entry) -> list[OsProcess]:
    """Kill what is left of a sandbox and wait for it: files may go only when nobody writes them. Returns what stays."""
    if entry.boot != boot_id():
        return []  # its processes ended with the machine, their numbers are others' by now
    left = end_processes(entry.processes, timeout=_DEADLINES.end)
    if left:
        _log.warning("processes of a dead sandbox do not end sandbox=%s", entry.record.id)
    return left


def _has_group(entry: Entry) -> bool:
    """Whether the control group of a sandbox that has ended cannot be removed yet; its grave stays for the next look."""
    return not end_group(entry.group)


def _end_all(entry: Entry) -> None:
    if left := _end(entry):
        raise error(
            ErrorCode.WAIT_TIMEOUT,
            f"processes {[each.pid for each in left]} of the sandbox {entry.record.name!r} do not end",
        )
