"""The engines `docker` and `podman`: one container for each sandbox, through the docker SDK.

Podman is spoken to by its Docker-compatible socket; where it differs, what it answers decides, not its version.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.errors
import msgspec

from sandcell_container.end import End
from sandcell_container.engine import Address, Deadlines, Probe, Pruned, Record, Updated
from sandcell_container.engines.docker_address import (
    Kind,
    Surroundings,
    addresses_of,
    all_addresses,
    faults_of,
)
from sandcell_container.engines.docker_build import Workshop, build_image, image_for
from sandcell_container.engines.docker_carrier import keep_carrier
from sandcell_container.engines.docker_copy import copy_in, copy_out
from sandcell_container.engines.docker_daemon import (
    RUNTIME_IMAGE,
    Daemon,
    Facts,
    ask_daemon,
    find_daemon,
    open_client,
    read_facts,
)
from sandcell_container.engines.docker_end import read_end
from sandcell_container.engines.docker_folder import Folder, Kept, folders_in
from sandcell_container.engines.docker_image import find_image
from sandcell_container.engines.docker_life import Life, remove_all
from sandcell_container.engines.docker_options import check_openings, check_spec
from sandcell_container.engines.docker_publish import choose_ports, words_for
from sandcell_container.engines.docker_snapshot import list_snapshots, remove_snapshot, take_snapshot
from sandcell_container.engines.docker_start import open_relay
from sandcell_container.engines.docker_stats import read_stats
from sandcell_container.engines.docker_table import Found, look
from sandcell_container.engines.docker_unused import remove_unused_images
from sandcell_container.engines.docker_update import Change, change_of, update_running
from sandcell_container.engines.docker_way import check_open
from sandcell_container.engines.partial import PartialEngine
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.network import kind_of
from sandcell_container.openings import find_source
from sandcell_container.os_process import OsProcess, boot_id
from sandcell_container.policy import add_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from sandcell_container.engine import Snapshot
    from sandcell_container.engines.image_recipe import ImageOrder
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.spec import SandboxSpec
    from sandcell_container.usage import Stats

__all__ = ["DockerEngine"]

_DEADLINES = Deadlines()
_WAIT = 600.0  # seconds that one request waits for an end at most
_LIVE = (Change.NOTHING, Change.HOSTS, Change.LIMITS)  # what takes no restart
_USER = "user"  # who ends a sandbox by a call


class DockerEngine(PartialEngine):
    """See `Engine`. `environ` decides where daemons are looked for, as it does for the docker and podman commands."""

    def __init__(
        self, settings: EngineSettings, kind: Kind = "docker", *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._kind: Kind = kind
        self._around = Surroundings(
            environ=os.environ if environ is None else environ, home=Path.home(), uid=os.getuid()
        )
        self._state = settings.state / kind
        self._workshop = Workshop(settings.images, settings.state / "builds")
        self._facts = dict[str, Facts]()  # of each daemon, by its address
        self._mine = set[str]()  # those that end with this object

    @property
    def name(self) -> str:
        return self._kind

    def answers(self) -> bool:
        """Return whether a daemon answers, whatever images it has."""
        try:
            return bool(self._daemon)
        except SandcellError:
            return False

    def probe(self) -> Probe:
        """Tell whether a daemon answers and has the runtime image. Source: `Engine.probe`."""
        try:
            daemon = self._daemon
            with open_client(daemon, _DEADLINES.probe) as client:
                find_image(client, RUNTIME_IMAGE)
        except SandcellError as problem:
            remedies = (problem.hint, *self._faults())
            return Probe(engine=self.name, usable=False, reason=problem.message, remedies=remedies)
        return Probe(engine=self.name, usable=True, version=daemon.version, remedies=self._faults())

    def create(self, spec: SandboxSpec) -> Record:
        """Make the sandbox of `spec`. Errors: see `Engine.create`."""
        try:
            return self._create(spec)
        except SandcellError as problem:
            if problem.code is not ErrorCode.EXISTS or not self.prune().removed:
                raise
        return self._create(spec)  # what had the name was dead

    def start(self, sandbox_id: str) -> Record:
        """Start a stopped sandbox again. Source: `Engine.start`."""
        with self._changing(sandbox_id) as (life, kept):
            return _start(life, kept)

    def stop(self, sandbox_id: str) -> None:
        """End all that runs in it. Source: `Engine.stop`."""
        with self._changing(sandbox_id) as (life, kept):
            _stop(life, kept)

    def restart(self, sandbox_id: str) -> Record:
        """Stop and start it. Source: `Engine.restart`."""
        with self._changing(sandbox_id) as (life, kept):
            return _start(life, _stop(life, kept))

    def is_paused(self, sandbox_id: str) -> bool:
        """Tell whether its container is paused. Source: `Engine.is_paused`."""
        with self._open(sandbox_id) as (life, _):
            return life.container().status == "paused"

    def remove(self, sandbox_id: str) -> None:
        """End it and remove all of it. Source: `Engine.remove`."""
        try:
            with self._changing(sandbox_id) as (life, _):
                remove_all(life.client, sandbox_id, life.containers())
                life.folder.bury(_killed())
        except SandcellError as problem:
            if problem.code is not ErrorCode.NOT_FOUND:
                raise
        self._mine.discard(sandbox_id)

    def list(self) -> list[Record]:
        """Return the sandboxes of this engine. Source: `Engine.list`."""
        return sorted(self._look().records, key=lambda each: each.created_at)

    def prune(self) -> Pruned:
        """Clean up what is dead. Source: `Engine.prune`."""
        found = self._look(all_daemons=True)
        live = tuple(each.id for each in found.records if each.status != "stopped")
        stopped = tuple(each.id for each in found.records if each.status == "stopped")
        return Pruned(live=live, stopped=stopped, removed=tuple(found.removed))

    def remove_unused(self, older_than: float) -> Sequence[str]:
        """Remove images that nothing uses. Source: `Engine.remove_unused`."""
        with open_client(self._daemon, _DEADLINES.call) as client:
            return remove_unused_images(client, self._workshop.locks, older_than)

    def update(self, sandbox_id: str, change: Callable[[SandboxSpec], SandboxSpec]) -> Updated:
        """Make it another one with the same files. Source: `Engine.update`."""
        with self._changing(sandbox_id) as (life, kept):
            spec = self._checked(change(kept.spec), life.facts)
            return _update(life, kept, spec)

    def stats(self, sandbox_id: str) -> Stats:
        """Return what it uses. Source: `Engine.stats`."""
        with self._open(sandbox_id) as (life, kept):
            return read_stats(life.container(), kept.spec.limits)

    def snapshot(self, sandbox_id: str, name: str) -> Snapshot:
        """Keep its files as an image. Source: `Engine.snapshot`."""
        with self._changing(sandbox_id) as (life, _):
            return take_snapshot(life.container(), name, self.name)

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the images that are snapshots. Source: `Engine.snapshots`."""
        with open_client(self._daemon, _DEADLINES.call) as client:
            return list_snapshots(client, self.name)

    def remove_snapshot(self, name: str) -> None:
        """Remove the image, where it is a snapshot. Source: `Engine.remove_snapshot`."""
        with open_client(self._daemon, _DEADLINES.call) as client:
            remove_snapshot(client, name)

    def copy_in(self, sandbox_id: str, path: str, archive: Iterable[bytes]) -> None:
        """Unpack a tar stream in a folder. Source: `Engine.copy_in`; errors: `docker_copy.copy_in`."""
        with self._open(sandbox_id) as (life, _):
            copy_in(life.container(), path, archive)

    def copy_out(self, sandbox_id: str, path: str) -> Iterator[bytes]:
        """Yield a file or folder as a tar stream. Source: `Engine.copy_out`; errors: `docker_copy.copy_in`."""
        with self._open(sandbox_id) as (life, _):
            yield from copy_out(life.container(), path)

    def build_image(self, order: ImageOrder, *, on_line: Callable[[str], object]) -> None:
        """Build an image; `on_line` is called with each line of the build. Errors: see `docker_build.build_image`."""
        build_image(self._daemon, order, self._workshop, on_line=on_line)

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        """Wait until it has ended. Source: `Engine.await_end`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            rest = _WAIT if deadline is None else min(max(deadline - time.monotonic(), 0), _WAIT)
            end = self._await_end(sandbox_id, rest)
            if end is not None or (deadline is not None and time.monotonic() >= deadline):
                return end

    def last_words(self, sandbox_id: str) -> str:
        """Return what its guest said last. Source: `Engine.last_words`."""
        return "\n".join(Folder(self._state / sandbox_id).last_words())

    def close(self) -> None:
        """Remove the sandboxes that end with this program. Source: `Engine.close`."""
        for sandbox_id in tuple(self._mine):
            self.remove(sandbox_id)

    # --- how

    def _create(self, spec: SandboxSpec) -> Record:
        check_openings(spec)
        ports = choose_ports(spec.publish)
        words = words_for([each for each in ports if each not in spec.publish])
        spec = replace(spec, publish=ports)
        daemon, folder = self._daemon, Folder(self._state / spec.id)
        with open_client(daemon, spec.start_timeout) as client, ExitStack() as held:
            life = self._life(client, daemon, folder)
            spec = self._checked(spec, life.facts)
            image, told = image_for(daemon, client, spec, self._workshop)
            deadline = time.monotonic() + spec.start_timeout  # what is built for it takes its own time
            folder.create()
            if self._settings.relay or not life.facts.shares_kernel:
                folder.note_relayed()
            held.enter_context(folder.locked())
            with ExitStack() as undo:
                undo.callback(self._undo, life)
                kept = _kept(spec, daemon, folder, (*told, *words))
                folder.write(kept)
                record = life.run(life.make(kept, image), deadline)
                undo.pop_all()
        if spec.on_release == "remove":
            self._mine.add(spec.id)
        return record

    def _undo(self, life: Life) -> None:
        remove_all(life.client, life.folder.id, life.containers())
        life.folder.remove()

    def _checked(self, spec: SandboxSpec, facts: Facts) -> SandboxSpec:
        """Return `spec` with the real paths of what it mounts. Nothing of ours or of an engine's may be mounted."""
        check_spec(spec, facts, self.name)
        if kind_of(spec.network) == "open":
            check_open(spec.network, self.name)
        sockets = (each.partition("://")[2] for each in all_addresses(self._around))
        closed = (
            "/proc",
            str(self._settings.state),
            *sockets,
        )  # the first has the roots of all processes in it
        return replace(spec, mounts=tuple(find_source(each, closed=closed) for each in spec.mounts))

    def _faults(self) -> tuple[str, ...]:
        return faults_of(self._around) if self._kind == "docker" else ()

    @cached_property
    def _daemon(self) -> Daemon:
        """The daemon that makes new sandboxes. One that was found stays the one, whatever becomes of it."""
        return find_daemon(self._kind, addresses_of(self._kind, self._around))

    def _life(self, client: docker.DockerClient, daemon: Daemon, folder: Folder) -> Life:
        if daemon.url not in self._facts:
            self._facts[daemon.url] = read_facts(client)
        return Life(
            kind=self._kind,
            client=client,
            facts=self._facts[daemon.url],
            folder=folder,
            guest_settings=self._settings.guest_settings,
        )

    @contextmanager
    def _open(self, sandbox_id: str) -> Generator[tuple[Life, Kept]]:
        """Yield a sandbox as it is.

        Raises:
            NotFound (NOT_FOUND): there is none.
            Unavailable (ENGINE_UNAVAILABLE): its daemon does not answer.
        """
        folder = Folder(self._state / sandbox_id)
        kept = folder.read() if folder.path.parent == self._state and not sandbox_id.startswith(".") else None
        if kept is None:
            raise folder.missing()
        daemon = ask_daemon(self._kind, kept.daemon)
        with open_client(daemon, _DEADLINES.call) as client:
            yield self._life(client, daemon, folder), kept

    @contextmanager
    def _changing(self, sandbox_id: str) -> Generator[tuple[Life, Kept]]:
        """Yield a sandbox that nobody else changes meanwhile. Errors: those of `_open`."""
        with self._open(sandbox_id) as (life, _), life.folder.locked():
            kept = life.folder.read()  # who had the lock may have changed it
            if kept is None:
                raise life.folder.missing()
            yield life, kept

    def _look(self, *, all_daemons: bool = False) -> Found:
        """Look at all sandboxes, one daemon after the other; without any no daemon is asked, and none waited for."""
        by_daemon: dict[str, list[Folder]] = {self._daemon.url: []} if all_daemons else {}
        for folder in folders_in(self._state):
            kept = folder.read()
            by_daemon.setdefault(kept.daemon if kept else self._daemon.url, []).append(folder)
        found = Found()
        for url, folders in by_daemon.items():
            with open_client(ask_daemon(self._kind, url), _DEADLINES.call) as client:
                here = look(self._kind, client, self._state, folders)
            found.records += here.records
            found.removed += here.removed
        return found

    def _await_end(self, sandbox_id: str, timeout: float) -> End | None:
        lost = End(cause="lost", at=time.time())
        try:
            with self._open(sandbox_id) as (life, kept):
                container = life.container()
                if not life.await_exit(container, timeout):
                    return None
                with suppress(docker.errors.NotFound):  # it is removed, or just being so
                    return kept.record.end or read_end(container, self._kind, life.folder)
                with life.folder.locked():  # who removes it has this until its end is written
                    return lost
        except SandcellError as problem:
            if problem.code not in (ErrorCode.NOT_FOUND, ErrorCode.SANDBOX_GONE):
                raise
        return Folder(self._state / sandbox_id).read_end() or lost


def _kept(spec: SandboxSpec, daemon: Daemon, folder: Folder, told: tuple[str, ...]) -> Kept:
    record = Record(
        id=spec.id,
        name=spec.name,
        engine=daemon.kind,
        status="creating",
        address=Address(path=folder.socket),
        token=secrets.token_urlsafe(32),
        created_at=time.time(),
        on_release=spec.on_release,
        image=spec.image or RUNTIME_IMAGE,
    )
    owner = OsProcess.of(os.getpid())
    return Kept(record=record, spec=spec, daemon=daemon.url, notes=told, owner=owner, boot=boot_id())


def _start(life: Life, kept: Kept) -> Record:
    container = life.container()
    if container.status == "paused":
        container.unpause()
    if container.status in ("running", "paused"):
        open_relay(container, life.folder)
        if life.folder.is_relayed and kept.spec.network != "none":
            keep_carrier(container, life.folder, kept.spec.network)
        return replace(kept.record, status="running", end=None)
    if not kept.keeps_files:  # it is dead, only nobody has looked yet
        life.bury(container)
        raise life.folder.missing()
    return life.run_again(kept, time.monotonic() + kept.spec.start_timeout)


def _stop(life: Life, kept: Kept) -> Kept:
    """Stop it and return what is kept of it then. What it says first is that its files are to stay."""
    if life.container().status not in ("running", "paused"):
        return kept
    end = _killed()
    record = replace(kept.record, status="stopped", end=end)
    resting = msgspec.structs.replace(kept, record=record, resting=True)
    life.folder.write(resting)
    life.stop()
    return resting


def _update(life: Life, kept: Kept, spec: SandboxSpec) -> Updated:
    change = change_of(kept.spec, spec, engine=life.kind)
    record = replace(kept.record, on_release=spec.on_release)
    changed = msgspec.structs.replace(kept, spec=spec, record=record)
    is_running = life.container().status == "running"
    if change is Change.LIMITS and (not is_running or not update_running(life.container(), spec.limits)):
        change = Change.ANEW
    if change in _LIVE or (change is Change.START and not is_running):
        life.folder.write(changed)
        if change is Change.HOSTS:
            add_policy(life.folder.path, spec.network)
        return Updated(warnings=changed.warnings)
    deadline = time.monotonic() + spec.start_timeout if is_running else None
    try:
        life.stop()
        if change is Change.ANEW:
            life.rebuild(changed, deadline)
        elif deadline is not None:
            life.run(changed, deadline)
    except BaseException:
        if is_running:
            life.run(kept, time.monotonic() + kept.spec.start_timeout)
        raise
    warnings = life.folder.read()
    return Updated(restarted=is_running, warnings=warnings.warnings if warnings else ())


def _killed() -> End:
    return End(cause="killed", who=_USER, at=time.time())
