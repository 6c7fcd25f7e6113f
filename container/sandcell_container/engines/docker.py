"""The engines `docker` and `podman`: one container for each sandbox, through the docker SDK.

Podman is spoken to by its Docker-compatible socket; where it differs, what it answers decides, not its version.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import docker.errors

from sandcell_container.end import End
from sandcell_container.engine import Address, Probe, Record
from sandcell_container.engines.boot import Place, new_boot
from sandcell_container.engines.docker_address import Kind, Surroundings, addresses_of
from sandcell_container.engines.docker_daemon import (
    RUNTIME_IMAGE,
    Daemon,
    ask_daemon,
    find_daemon,
    open_client,
)
from sandcell_container.engines.docker_folder import Folder, Kept, folders_in
from sandcell_container.engines.docker_image import find_image
from sandcell_container.engines.docker_options import ID, STATE, container_options
from sandcell_container.engines.docker_start import start_container
from sandcell_container.engines.partial import PartialEngine
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docker.models.containers import Container

    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.spec import SandboxSpec, Status

__all__ = ["DockerEngine"]

_PROBE_TIMEOUT = 5
_CALL_TIMEOUT = 60
# What the runtime image holds. Source: container/image/Dockerfile, container/image/entry.py
_USER_UID = 1000
_USER_PYTHON = "/opt/user/bin/python"
_RUNTIME_DIR = "/opt/sandcell/runtime"
_BASE_CWD = "/workspace"
# Exactly these on every engine. Source: CONTRACT section 5.
_BASE_ENV = {
    "PATH": "/opt/user/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/user",
    "USER": "user",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "TMPDIR": "/tmp",
    "SHELL": "/bin/bash",
}
_ISOLATION: dict[str, Any] = {
    "pid": True,
    "net": True,
    "mount": True,
    "ipc": True,
    "uts": True,
    "user": False,
    "cgroup": True,
    "uid": _USER_UID,
}
_STATUS: dict[str, Status] = {
    "created": "creating",
    "initialized": "creating",  # podman
    "running": "running",
    "paused": "stopped",
    "exited": "stopped",
    "stopped": "stopped",  # podman
}


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
        self._mine = set[str]()  # those that end with this object

    @property
    def name(self) -> str:
        return self._kind

    def probe(self) -> Probe:
        try:
            daemon = self._daemon
            with open_client(daemon, _PROBE_TIMEOUT) as client:
                find_image(client, RUNTIME_IMAGE)
        except SandcellError as problem:
            return Probe(engine=self.name, usable=False, reason=problem.message, remedies=(problem.hint,))
        return Probe(engine=self.name, usable=True, version=daemon.version)

    def create(self, spec: SandboxSpec) -> Record:
        deadline = time.monotonic() + spec.start_timeout
        warnings, daemon = _warnings(spec, self.name), self._daemon
        folder = Folder(self._state / spec.id)
        record = _new_record(spec, self.name, folder)
        with open_client(daemon, spec.start_timeout) as client, ExitStack() as held:
            image = find_image(client, record.image or RUNTIME_IMAGE)
            folder.create()
            held.enter_context(folder.locked())
            with ExitStack() as undo:
                undo.callback(_remove, client, folder)
                folder.write(Kept(record=record, spec=spec, daemon=daemon.url))
                folder.write_boot(self._boot(spec, record, warnings))
                container = client.containers.create(**container_options(spec, str(image.id), folder.path))
                start_container(container, folder, deadline)
                undo.pop_all()
        if spec.on_release == "remove":
            self._mine.add(spec.id)
        return replace(record, status="running")

    def list(self) -> list[Record]:
        found = list[Record]()
        by_daemon = dict[str, list[Folder]]()
        for folder in folders_in(self._state):
            kept = folder.read()
            by_daemon.setdefault(kept.daemon if kept else self._daemon.url, []).append(folder)
        for url, folders in by_daemon.items():  # without any, no daemon is asked, and nothing waited for
            found += self._list_at(ask_daemon(self._kind, url), folders)
        return sorted(found, key=lambda each: each.created_at)

    def remove(self, sandbox_id: str) -> None:
        folder = Folder(self._state / sandbox_id)
        with open_client(self._daemon_of(folder), _CALL_TIMEOUT) as client:
            _remove(client, folder)
        self._mine.discard(sandbox_id)

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        patience = timeout or _CALL_TIMEOUT
        try:
            with open_client(self._daemon_of(Folder(self._state / sandbox_id)), patience) as client:
                for each in _containers(client, ID, sandbox_id):
                    each.wait()
        except SandcellError:
            return None  # a wait that is over is an answer too
        return End(cause="lost", at=time.time())

    def close(self) -> None:
        for sandbox_id in tuple(self._mine):
            self.remove(sandbox_id)

    @cached_property
    def _daemon(self) -> Daemon:
        """The daemon that makes new sandboxes. One that was found stays the one, whatever becomes of it."""
        return find_daemon(self._kind, addresses_of(self._kind, self._around))

    def _daemon_of(self, folder: Folder) -> Daemon:
        kept = folder.read() if folder.path.exists() else None
        return self._daemon if kept is None else ask_daemon(self._kind, kept.daemon)

    def _list_at(self, daemon: Daemon, folders: Sequence[Folder]) -> Sequence[Record]:
        with open_client(daemon, _CALL_TIMEOUT) as client:
            found = {each.labels[ID]: each for each in _containers(client, STATE, str(self._state))}
            for folder in folders:
                if folder.id not in found:
                    _remove_abandoned(client, folder)
            kept = [(found[each.id], each.read()) for each in folders if each.id in found]
        return [
            replace(each.record, status=_STATUS.get(container.status, "failed"))
            for container, each in kept
            if each is not None
        ]

    def _boot(self, spec: SandboxSpec, record: Record, warnings: tuple[str, ...]) -> GuestBoot:
        boot = new_boot(
            spec,
            record,
            Place(_USER_PYTHON, _RUNTIME_DIR, _BASE_CWD, _BASE_ENV["HOME"], _BASE_ENV["USER"], spec.hostname),
            base_env=_BASE_ENV,
            isolation=_ISOLATION | {"runtime": self.name},
            warnings=warnings,
            settings=self._settings.guest_settings,
        )
        return replace(boot, user_uid=_USER_UID)


def _warnings(spec: SandboxSpec, engine: str) -> tuple[str, ...]:
    if spec.limits.disk is None:
        return ()
    text = f"the engine {engine} cannot limit the disk"
    if spec.strict:
        raise error(ErrorCode.UNSUPPORTED, text, hint="leave disk out, or strict=False")
    return (text,)


def _new_record(spec: SandboxSpec, engine: str, folder: Folder) -> Record:
    return Record(
        id=spec.id,
        name=spec.name,
        engine=engine,
        status="creating",
        address=Address(path=folder.socket),
        token=secrets.token_urlsafe(32),
        created_at=time.time(),
        on_release=spec.on_release,
        image=spec.image or RUNTIME_IMAGE,
    )


def _containers(client: docker.DockerClient, label: str, value: str) -> list[Container]:
    return client.containers.list(all=True, filters={"label": f"{label}={value}"}, ignore_removed=True)


def _remove(client: docker.DockerClient, folder: Folder) -> None:
    for each in _containers(client, ID, folder.id):
        _remove_container(each)
    folder.remove()


def _remove_container(container: Container) -> None:
    try:
        container.remove(force=True)
    except docker.errors.NotFound:
        pass  # it removed itself meanwhile
    except docker.errors.APIError as problem:
        if problem.status_code != 409:  # 409: it is just removing itself
            raise
        _wait_removed(container)


def _wait_removed(container: Container) -> None:
    try:
        container.wait(condition="removed")
    except docker.errors.NotFound:
        pass


def _remove_abandoned(client: docker.DockerClient, folder: Folder) -> None:
    """Remove the folder of a container that is gone, unless the container is just being made."""
    with ExitStack() as held:
        try:
            is_ours = held.enter_context(folder.locked_nowait())
        except SandcellError:
            return  # somebody else was faster
        if is_ours and not _containers(
            client, ID, folder.id
        ):  # it may have been made since it was looked for
            folder.remove()
