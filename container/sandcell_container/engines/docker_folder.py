"""What this machine keeps of a sandbox in a container: one folder each, private to the user who made it.

    STATE/ID/              0700, locked while its container is made or changed
        record.json        0600, what it was asked to be and by which daemon; it holds the token and secrets
        boot.json          0600, what the guest is told at its next start
        guest.sock         the guest's, bound by the container
        guest.log          its last words
        memo               what it wants to be known after its end
        network            the lists of hosts that it may reach, the last one counts, see `policy`
        slirp.sock         where what opens it takes orders, see `docker_publish`
        resolv.conf        0644, that of a container with an open network
        way.sock           where its proxy waits for it while it starts, see `docker_way`; where that listens, see `docker_carrier`
        proxy.log          that one's words
        relayed            there, where its socket is not the guest's but a relay's, see `docker_relay`
        relay.log          that one's words
        carrier.lock       held by its proxy then, see `docker_carrier`
    STATE/.ended/ID        how a sandbox ended that is no more, for ten minutes

Whether a sandbox is there and runs, its container's labels and state tell; a folder that is neither locked nor a
container's is rubbish. It is bind-mounted into the container, below a folder that user code cannot enter.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sandcell_container.end import End
from sandcell_container.engine import Address, Record
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_tree import remove_tree
from sandcell_container.memo import note_start, read_end
from sandcell_container.os_process import OsProcess, boot_id
from sandcell_container.record_file import encode_record, read_plain, read_record, write_record
from sandcell_container.spec import SandboxSpec
from sandcell_container.state_folder import make_state_folder, unfit

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from sandcell_container.guest.boot import GuestBoot

__all__ = ["Folder", "Kept", "folders_in"]

_log = logging.getLogger(__name__)
_LINES_SHOWN = 50
_LOG_READ = 32 * 2**10  # bytes
_GRAVES = ".ended"
_REMEMBERED_S = 600.0  # who waits for an end asks at once


class Kept(msgspec.Struct, frozen=True):
    """What a record.json holds. `daemon` is the address of the one that has the container, `runtime` what runs it there,
    `warnings` what does not hold of the spec there, `notes` what else has to be said. `resting`: it was stopped on purpose. `owner` is the program that made it;
    it counts for the boot `boot` of the machine alone."""

    record: Record
    spec: SandboxSpec
    daemon: str
    runtime: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    resting: bool = False
    owner: OsProcess | None = None
    boot: str = ""

    @property
    def keeps_files(self) -> bool:
        """Whether its files outlive its processes: of one that is to be removed, only while who stopped it may start it."""
        if self.record.starts == 0:
            return False
        return self.record.on_release != "remove" or (self.resting and self._has_owner())

    def _has_owner(self) -> bool:
        handle = self.owner.open() if self.owner is not None and self.boot == boot_id() else None
        if handle is None:
            return False
        os.close(handle)
        return True


class Folder:
    """The folder of one sandbox. Its id is its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    def create(self) -> None:
        """Make it, with what is above it.

        Raises:
            Conflict (EXISTS): a sandbox of this id has it.
            Unavailable (ENGINE_UNAVAILABLE): it cannot be written there.
        """
        make_state_folder(self.path.parent)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError as taken:
            raise error(
                ErrorCode.EXISTS,
                f"a sandbox with the id {self.id!r} exists already",
                hint=f"connect to it, or remove it first: sandcell rm {self.id}",
            ) from taken
        except OSError as failed:
            raise unfit(self.path.parent, failed.strerror or str(failed)) from failed

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep everybody else from changing the sandbox meanwhile; waits for who does just now.

        Raises:
            NotFound (NOT_FOUND): it is no more.
        """
        with self._handle() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not self._is_at(handle):  # it was removed while this waited
                raise self.missing()
            yield

    @contextmanager
    def locked_nowait(self) -> Generator[bool]:
        """Do what `locked` does if nobody else has it just now; yields whether that is so."""
        with self._handle() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield self._is_at(handle)

    def read(self) -> Kept | None:
        """Return what was written; None where nothing readable is there."""
        try:
            kept = read_record(self.path / "record.json", Kept)
        except ValueError as problem:
            _log.warning("a record cannot be read sandbox=%s: %s", self.id, problem)
            return None
        if kept is None:
            return None
        # Its path is not kept: the state folder may have been moved.
        record = replace(kept.record, address=Address(path=self.socket))
        return msgspec.structs.replace(kept, record=record)

    def write(self, kept: Kept) -> None:
        """Write the record whole or not at all."""
        write_record(self.path / "record.json", encode_record(kept))

    def bury(self, end: End) -> None:
        """Remove it, and have `read_end` tell for a while how the sandbox ended."""
        graves = self.path.parent / _GRAVES
        graves.mkdir(mode=0o700, exist_ok=True)
        for old in graves.iterdir():
            if time.time() - old.stat().st_mtime > _REMEMBERED_S:
                old.unlink(missing_ok=True)
        (graves / self.id).write_bytes(msgspec.json.encode(end))
        self.remove()

    def read_end(self) -> End | None:
        """Return how a sandbox ended whose folder is no more, where that is still known."""
        try:
            return msgspec.json.decode(read_plain(self.path.parent / _GRAVES / self.id), type=End)
        except (OSError, msgspec.DecodeError):
            return None

    def write_boot(self, boot: GuestBoot) -> None:
        write_record(self.path / "boot.json", boot.to_json())

    def remove(self) -> None:
        remove_tree(self.path)

    @property
    def socket(self) -> str:
        return str(self.path / "guest.sock")

    @property
    def orders(self) -> str:
        return str(self.path / "slirp.sock")

    @property
    def resolver(self) -> Path:
        return self.path / "resolv.conf"

    @property
    def way(self) -> str:
        return str(self.path / "way.sock")

    @property
    def is_relayed(self) -> bool:
        return (self.path / "relayed").exists()

    def note_relayed(self) -> None:
        """Have the guest listen inside of its container from its next start on."""
        write_record(self.path / "relayed", b"")

    def note_start(self, number: int) -> None:
        """Begin the memo of a start."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        memo = os.open(self.path / "memo", flags, 0o600)
        try:
            note_start(memo, number)
        finally:
            os.close(memo)

    def last_word(self) -> End | None:
        """Return the end of which the guest of the last start has told; None where it has told none."""
        return read_end(self.path / "memo")

    def last_words(self) -> list[str]:
        """Return the last 50 lines of what the guest had to say, of all its starts."""
        try:
            handle = os.open(self.path / "guest.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return []  # it got not so far
        with open(handle, "rb") as file:
            file.seek(max(0, os.fstat(handle).st_size - _LOG_READ))
            return file.read(_LOG_READ).decode(errors="replace").splitlines()[-_LINES_SHOWN:]

    @contextmanager
    def _handle(self) -> Generator[int]:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as gone:
            raise self.missing() from gone
        try:
            yield handle
        finally:
            os.close(handle)

    def _is_at(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except FileNotFoundError:
            return False

    def missing(self) -> SandcellError:
        """Return the error of a sandbox that there is not."""
        return error(
            ErrorCode.NOT_FOUND, f"there is no sandbox {self.id[:80]!r}", hint="sandcell ps lists them"
        )


def folders_in(state: Path) -> list[Folder]:
    """Return the folders that there are."""
    try:
        return [Folder(each) for each in state.iterdir() if each.is_dir() and not each.name.startswith(".")]
    except FileNotFoundError:
        return []
