"""The engines of this process: one object for the whole program, made when the first sandbox is asked for.

Why one: an engine holds what is costly and shared by all sandboxes of a program (for `local` a pre-imported
process that every guest is forked from), and sandboxes are made from any thread, loop or library that imports
`sandcell`, with nobody above them to pass it down. It is keyed by the process id: a forked child makes its own.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sandcell.client.records import Found, find_record
from sandcell.config import Config, settings_of
from sandcell.guest import MODULE, PRELOAD, runtime_dir
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.spec import GuestCommand

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.engine import Engine, Probe, Pruned, Record, Snapshot
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.spec import SandboxSpec

__all__ = ["Creation", "Host", "OpenEngine", "engine_settings", "guest_command", "the_host"]


T = TypeVar("T")

_NOT_FOR_GUESTS = {
    "state_dir",
    "token",
    "url",
    "relay",
    "public_host",
    "pull",
    "build_network",
    "build_ca_bundle",
    "build_index_url",
}

_PAUSE_S = 0.02

PULL = ("missing", "always", "never")
RELAY = ("auto", "always")
ENGINES = ("local", "process", "docker", "podman")  # the cheapest to ask first


class OpenEngine(NamedTuple):
    """An engine, and why those before it were passed over."""

    engine: Engine
    passed_over: tuple[Probe, ...]


class Host:
    """What a program shares between its sandboxes. Thread-safe; its calls block."""

    def __init__(self) -> None:
        self.config = Config.from_environ()
        self.guest = guest_command()
        self._settings = {
            name: text for name, text in settings_of(os.environ).items() if name not in _NOT_FOR_GUESTS
        }
        self._engines: dict[str, OpenEngine] = {}
        self._lock = threading.Lock()

    def engine(self, name: str) -> OpenEngine:
        """Return the engine `name`, opened at its first use.

        Raises:
            Unavailable (ENGINE_UNAVAILABLE): it does not work here; says why and what to do.
            InvalidRequest (INVALID_ARGUMENT): there is no such engine.
        """
        with self._lock:
            if name not in self._engines:
                self._engines[name] = self._open(name)
            return self._engines[name]

    def find(self, name_or_id: str) -> Found:
        """Return a sandbox of this machine; one that is just being made is waited for.

        A look every 20 ms until `config.start_timeout`: its maker may be another program, which nobody here is
        told of.

        Raises:
            Unavailable (START_TIMEOUT): it is still being made. More errors: see `find_record`.
        """
        deadline = time.monotonic() + self.config.start_timeout
        while (found := self._look_for(name_or_id)).record.status == "creating":
            if time.monotonic() > deadline:
                raise error(
                    ErrorCode.START_TIMEOUT,
                    f"the sandbox {found.record.name} is still being made",
                    hint="try again later, or look at what its maker does",
                )
            time.sleep(_PAUSE_S)
        return found

    def records(self) -> list[Found]:
        """Return the sandboxes of this machine, each with its engine."""
        return [found for name in ENGINES for found in self._found(name)]

    def prune(self) -> list[Pruned]:
        """Look after what crashes have left, on every engine that answers."""
        return self._ask_all(lambda engine: engine.prune())

    def remove_unused(self, older_than: float) -> list[str]:
        """Remove environments and images that nothing has used for so many seconds, on every engine that answers."""
        return [
            name for names in self._ask_all(lambda engine: engine.remove_unused(older_than)) for name in names
        ]

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of every engine that answers."""
        return [each for found in self._ask_all(lambda engine: engine.snapshots()) for each in found]

    def remove_snapshot(self, name: str) -> None:
        """Remove the snapshot of this name.

        Raises:
            NotFound (NOT_FOUND): no engine that answers has one.
        """
        having = [each.engine for each in self.snapshots() if each.name == name]
        if not having:
            raise error(
                ErrorCode.NOT_FOUND,
                f"there is no snapshot {name[:80]!r}",
                hint="sandcell snapshots lists them",
            )
        for engine in having:
            self.engine(engine).engine.remove_snapshot(name)

    def _ask_all(self, ask: Callable[[Engine], T]) -> list[T]:
        """Ask every engine that works here. The sandboxes of `process` are in the table of `local`."""
        found = list[T]()
        for name in ENGINES:
            if name == "process" and name not in self._engines:
                continue
            try:
                found.append(ask(self.engine(name).engine))
            except SandcellError:
                continue  # it does not work here
        return found

    def _look_for(self, name_or_id: str) -> Found:
        looked = list[Found]()
        for name in ENGINES:
            here = self._found(name)
            if any(name_or_id in {each.record.id, each.record.name} for each in here):
                return find_record(here, name_or_id)
            looked += here
        return find_record(looked, name_or_id)

    def _open(self, name: str) -> OpenEngine:
        from sandcell_container.engines.detect import open_engine

        engine, passed_over = open_engine(name, engine_settings(self.config, self.guest, self._settings))
        for opened in self._engines.values():
            if opened.engine.name == engine.name:  # "auto" and "local" may be the same
                return OpenEngine(opened.engine, tuple(passed_over))
        return OpenEngine(engine, tuple(passed_over))

    def _found(self, name: str) -> list[Found]:
        if name == "process" and name not in self._engines:
            return []  # it is opened by its name alone, with a warning
        try:
            engine = self.engine(name).engine
            return [Found(engine, record) for record in engine.list()]
        except SandcellError:
            return []  # it does not work here, so it has no sandbox that anything could be done with

    def close(self) -> None:
        """Close the engines."""
        with self._lock:
            engines, self._engines = self._engines, {}
        for each in {opened.engine.name: opened.engine for opened in engines.values()}.values():
            each.close()


_hosts: dict[int, Host] = {}
_guard = threading.Lock()
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)


def the_host() -> Host:
    """Return the host of this process; its engines are closed when the program ends."""
    pid = os.getpid()
    with _guard:
        if pid not in _hosts:
            _hosts.clear()  # a parent's host is the parent's to close
            _hosts[pid] = Host()
            atexit.register(_close, pid)
        return _hosts[pid]


def _close(pid: int) -> None:
    if os.getpid() == pid and pid in _hosts:
        _hosts.pop(pid).close()


def engine_settings(config: Config, guest: GuestCommand, guest_settings: dict[str, str]) -> EngineSettings:
    """Return what engines are told by a program with this configuration.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): the CA bundle cannot be read; there is no such `pull` or `relay`.
    """
    from sandcell_container.engines.settings import EngineSettings, ImageSettings

    _check_choice("pull", config.pull, PULL)
    _check_choice("relay", config.relay, RELAY)
    return EngineSettings(
        state=config.state_path,
        first_uid=config.first_uid,
        uid_count=config.uid_count,
        guest=guest,
        guest_settings=guest_settings,
        images=ImageSettings(
            pull=config.pull,
            network=config.build_network,
            ca_bundle=_read_bundle(config.build_ca_bundle),
            index_url=config.build_index_url,
        ),
        relay=config.relay == "always",
    )


def _read_bundle(path: str | None) -> bytes:
    if not path:
        return b""
    from sandcell_container.engines.image_context import read_bundle  # which few programs need

    return read_bundle(path)


def _check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name}={given[:40]!r} is none of {', '.join(choices)}",
            hint=f"SANDCELL_{name.upper()}",
        )


def guest_command() -> GuestCommand:
    """Return how an engine starts our guest."""
    return GuestCommand(module=MODULE, function="serve", runtime_dir=runtime_dir(), preload=PRELOAD)


class Creation:
    """One sandbox being made in a thread that nobody can stop: given up, it removes what it made."""

    def __init__(self, make: Callable[[SandboxSpec], Record], remove: Callable[[str], None]) -> None:
        self._make = make
        self._remove = remove
        self._lock = threading.Lock()
        self._given_up = False
        self._made: Record | None = None

    def run(self, spec: SandboxSpec) -> Record:
        """Make the sandbox."""
        made = self._make(spec)
        with self._lock:
            self._made = made
            given_up = self._given_up
        if given_up:
            self._remove(made.id)
        return made

    def give_up(self) -> None:
        """Have it removed, now or when it is there."""
        with self._lock:
            self._given_up = True
            made = self._made
        if made is not None:
            self._remove(made.id)
