"""The engine `docker`: one container for each sandbox, through the docker SDK, which is known here alone.

Everything that lasts is in the container's labels and in the sandbox's folder on this machine: `boot.json` for the
guest, `guest.sock` from it, `guest.log` for who looks into a failure. A folder is locked while its container is being
made; one that is neither locked nor a container's is rubbish, and `list` takes it away.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import socket
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import requests.exceptions
from docker.types import LogConfig, Mount

from sandcell_container.end import End
from sandcell_container.engine import Address, Probe, Record
from sandcell_container.engines.boot import Place, new_boot
from sandcell_container.engines.docker_daemon import RUNTIME_IMAGE, check_daemon, failure_of
from sandcell_container.engines.partial import PartialEngine
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_tree import remove_tree
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from docker.models.containers import Container

    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.spec import SandboxSpec, Status

__all__ = ["DockerEngine"]

_PROBE_TIMEOUT = 5
_CALL_TIMEOUT = 60
_LOG_SHOWN = 2000  # characters of the guest's last words
_ID, _STATE = "sandcell.id", "sandcell.state"  # labels
# What the runtime image holds. Source: container/image/Dockerfile, container/image/entry.py
_MOUNT = "/run/sandcell/host"
_USER_UID = 1000
_USER_PYTHON = "/opt/user/bin/python"
_RUNTIME_DIR = "/opt/sandcell/runtime"
_READY = b"listening\n"
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
    "runtime": "docker",
}
_STATUS: dict[str, Status] = {
    "created": "creating",
    "running": "running",
    "paused": "stopped",
    "exited": "stopped",
}


class DockerEngine(PartialEngine):
    """See `Engine`. `host` is the daemon's address, by default the one that the docker command would use."""

    def __init__(self, settings: EngineSettings, *, host: str | None = None) -> None:
        self._settings = settings
        self._host = host
        self._folder = settings.state / "docker"
        self._mine = set[str]()  # those that end with this object

    @property
    def name(self) -> str:
        return "docker"

    def probe(self) -> Probe:
        try:
            with self._client(_PROBE_TIMEOUT) as client:
                version = str(client.version()["Version"])
                client.images.get(RUNTIME_IMAGE)
        except SandcellError as problem:
            return Probe(engine=self.name, usable=False, reason=problem.message, remedies=(problem.hint,))
        return Probe(engine=self.name, usable=True, version=version)

    def create(self, spec: SandboxSpec) -> Record:
        deadline = time.monotonic() + spec.start_timeout
        boot = self._boot(spec)
        folder = self._folder / spec.id
        with self._client(spec.start_timeout) as client, _made_and_locked(folder):
            try:
                _write_private(folder / "boot.json", boot.to_json())
                _start(client, _options(spec, boot, folder), folder, deadline)
                _await_answer(folder, deadline)
            except BaseException:
                _remove(client, folder)
                raise
        if spec.on_release == "remove":
            self._mine.add(spec.id)
        return _record(boot, "running", folder)

    def list(self) -> list[Record]:
        folders = [each for each in self._folder.iterdir() if each.is_dir()] if self._folder.exists() else []
        if not folders:
            return []  # no daemon is asked, so a machine without one is not slowed down
        with self._client(_CALL_TIMEOUT) as client:
            found = {each.labels[_ID]: each for each in _containers(client, _STATE, str(self._folder))}
            for folder in folders:
                if folder.name not in found:
                    _remove_abandoned(client, folder)
        return [self._read(found[each.name], each) for each in folders if each.name in found]

    def remove(self, sandbox_id: str) -> None:
        with self._client(_CALL_TIMEOUT) as client:
            _remove(client, self._folder / sandbox_id)
        self._mine.discard(sandbox_id)

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        patience = timeout or _CALL_TIMEOUT
        try:
            with self._client(patience) as client:
                for each in _containers(client, _ID, sandbox_id):
                    each.wait()
        except SandcellError:
            return None  # a wait that is over is an answer too
        return End(cause="lost", at=time.time())

    def close(self) -> None:
        for sandbox_id in tuple(self._mine):
            self.remove(sandbox_id)

    @contextmanager
    def _client(self, timeout: float) -> Generator[docker.DockerClient]:
        """Yield a client of its own, because the SDK's are for one thread each. What fails inside is ours."""
        check_daemon(self._host)
        environment = {"DOCKER_HOST": self._host} if self._host else None
        try:
            client = docker.from_env(timeout=max(1, round(timeout)), version="auto", environment=environment)
            with closing(client):
                yield client
        except (docker.errors.DockerException, requests.exceptions.RequestException) as problem:
            raise failure_of(problem) from problem

    def _boot(self, spec: SandboxSpec) -> GuestBoot:
        boot = new_boot(
            spec,
            _new_record(spec, self.name),
            Place(_USER_PYTHON, _RUNTIME_DIR, _BASE_CWD, _BASE_ENV["HOME"], _BASE_ENV["USER"], spec.hostname),
            base_env=_BASE_ENV,
            isolation=_ISOLATION,
            warnings=_warnings(spec),
            settings=self._settings.guest_settings,
        )
        return replace(boot, user_uid=_USER_UID)

    def _read(self, container: Container, folder: Path) -> Record:
        boot = GuestBoot.from_json((folder / "boot.json").read_bytes())
        return _record(boot, _STATUS.get(container.status, "failed"), folder)


# --- containers


def _options(spec: SandboxSpec, boot: GuestBoot, folder: Path) -> dict[str, Any]:
    """Return the arguments of `containers.create`.

    SETUID and SETGID are for the entry, which gives them up for good before anything of the user's runs. Output of
    the container goes nowhere, because the daemon would keep it all.
    """
    limits = spec.limits
    return {
        "image": boot.image,
        "name": f"sandcell-{spec.name}",
        "hostname": spec.hostname,
        "labels": {_ID: spec.id, _STATE: str(folder.parent), "sandcell.name": spec.name},
        "mounts": [Mount(_MOUNT, str(folder), type="bind")],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": ["SETUID", "SETGID"],
        "security_opt": ["no-new-privileges"],
        "log_config": LogConfig(type="none"),
        "auto_remove": spec.on_release == "remove",
        "mem_limit": limits.memory,
        "memswap_limit": limits.memory,
        "nano_cpus": None if limits.cpus is None else round(limits.cpus * 1e9),
        "pids_limit": limits.pids,
    }


def _warnings(spec: SandboxSpec) -> tuple[str, ...]:
    if spec.limits.disk is None:
        return ()
    text = "the engine docker cannot limit the disk"
    if spec.strict:
        raise error(ErrorCode.UNSUPPORTED, text, hint="leave disk out, or strict=False")
    return (text,)


def _start(client: docker.DockerClient, options: dict[str, Any], folder: Path, deadline: float) -> None:
    """Make and start the container; returns when its entry has bound the guest's socket."""
    container = client.containers.create(**options)
    attached: Any = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
    try:
        container.start()
        heard = _read_until(attached.fileno(), _READY, deadline)
    finally:
        attached._sock.close()  # the SDK hands out a reader, whose close alone would leave its socket open
        attached.close()
    if _READY not in heard:
        raise _start_failed(folder, heard)


def _await_answer(folder: Path, deadline: float) -> None:
    """Return when the guest has answered something: what is listening may still fail to serve."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        with connect_address(str(folder / "guest.sock")) as address:
            connection.connect(address)
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n")
        if not _read_until(connection.fileno(), b"HTTP/", deadline):
            raise _start_failed(folder, b"")


def _read_until(fd: int, wanted: bytes, deadline: float) -> bytes:
    """Return what came up to and with `wanted`, or up to the end of the stream."""
    heard = b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while wanted not in heard:
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise error(
                ErrorCode.START_TIMEOUT,
                "the container did not answer before start_timeout",
                hint="try again with a longer start_timeout",
            )
        try:
            chunk = os.read(fd, 4096)
        except ConnectionResetError:  # it ended with something unread
            break
        if not chunk:
            break
        heard += chunk
    return heard


def _start_failed(folder: Path, heard: bytes) -> SandcellError:
    log = folder / "guest.log"
    words = log.read_text(errors="replace") if log.exists() else ""
    words = words or "".join(filter(str.isprintable, heard.decode(errors="replace")))
    last = words.strip().rpartition("\n")[2]
    return error(
        ErrorCode.START_FAILED,
        f"the guest ended at its start: {last[-_LOG_SHOWN:] or 'it said nothing'}",
        hint=f"build the image {RUNTIME_IMAGE} from the same version of Sandcell",
        details={"words": words[-_LOG_SHOWN:]},
    )


def _containers(client: docker.DockerClient, label: str, value: str) -> list[Container]:
    return client.containers.list(all=True, filters={"label": f"{label}={value}"}, ignore_removed=True)


def _remove(client: docker.DockerClient, folder: Path) -> None:
    for each in _containers(client, _ID, folder.name):
        _remove_container(each)
    remove_tree(folder)


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


def _new_record(spec: SandboxSpec, engine: str) -> Record:
    return Record(
        id=spec.id,
        name=spec.name,
        engine=engine,
        status="creating",
        address=Address(),
        token=secrets.token_urlsafe(32),
        created_at=time.time(),
        on_release=spec.on_release,
        image=spec.image or RUNTIME_IMAGE,
    )


def _record(boot: GuestBoot, status: Status, folder: Path) -> Record:
    return Record(
        id=boot.sandbox_id,
        name=boot.name,
        engine=boot.engine,
        status=status,
        address=Address(path=str(folder / "guest.sock")),
        token=boot.token,
        created_at=boot.created_at,
        on_release=boot.on_release,
        image=boot.image,
    )


# --- folders


@contextmanager
def _made_and_locked(folder: Path) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(mode=0o700)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_abandoned(client: docker.DockerClient, folder: Path) -> None:
    """Remove the folder of a container that is gone, unless the container is just being made."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # somebody else was faster
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _containers(client, _ID, folder.name):  # it may have been made since it was looked for
            remove_tree(folder)
    except BlockingIOError:
        pass  # it is being made
    finally:
        os.close(handle)


def _write_private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
