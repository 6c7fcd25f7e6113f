"""From a spec to what is started: the files of one local sandbox, its view, its guest's facts."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sandcell_container.engines import bwrap
from sandcell_container.engines.boot import Place, new_boot, spawner_bytecode, spawner_command
from sandcell_container.engines.environment import (
    PythonEnvironment,
    base_environment,
    is_below,
    make_venv,
    minimal_cover,
)
from sandcell_container.engines.launch import Launch, Program, Tunnel
from sandcell_container.engines.limits import AppliedLimits
from sandcell_container.engines.sandbox_host import Blueprint
from sandcell_container.engines.seccomp import filter_program
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.engines.tunnel import RESOLVER, find_tunnel
from sandcell_container.errors import ErrorCode, error
from sandcell_container.network import kind_of, network_environment
from sandcell_container.registry import Entry
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sandcell_container.guest.boot import GuestBoot

__all__ = ["Drawing", "Tools", "empty_view", "make_program"]

_USER = "user"
# Of what the memory may hold, for each of /tmp and /dev/shm: together they must leave room for processes.
_TMPFS_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What an engine draws every sandbox with. `environment` is the calling program's: the spawner runs on it and the
    guest imports from it. `place` is where sources are bound for a user that cannot reach them, None without need."""

    settings: EngineSettings
    environment: PythonEnvironment
    bubblewrap: bwrap.Bwrap
    place: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One sandbox as it is to be. `environment` is user code's; `limits` are as they are applied."""

    tools: Tools
    spec: SandboxSpec
    entry: Entry
    environment: PythonEnvironment
    has_files: bool
    limits: AppliedLimits
    warnings: tuple[str, ...]

    def blueprint(self) -> Blueprint:
        """Make the sandbox's files, where it has none, and return what to start.

        Later its files are those of user code, where this program's rights must not follow a symlink.
        """
        roots = _roots(self.tools.environment, self.environment)
        venv = _venv_inside(roots)
        if not self.has_files:
            _make_files(self.entry, self.environment, venv)
        view = self._view(roots)
        line = bwrap.build_line(view, place=self.tools.place)
        command = spawner_command(
            self.tools.environment.executable, bwrap.SPAWNER, "marks", self.limits.spawner
        )
        guest = self.tools.settings.guest
        program = make_program(self.tools.bubblewrap, line, command, identity=self.entry.uid)
        launch = Launch(
            boot=self._boot(venv, seccomp=view.seccomp is not None),
            module=guest.module,
            function=guest.function,
            program=replace(program, groups=self.limits.group.paths if self.limits.group else ()),
            timeout=self.spec.start_timeout,
            enter=True,
            import_roots=("/usr", *roots),
            group=self.limits.group,
            filtered=self._is_filtered,
            tunnel=self._tunnel(),
        )
        return Blueprint(
            launch=launch,
            status=True,
            memory=(line.encode(), *line.extras),
            python=self.environment.facts(),
        )

    def _view(self, roots: Sequence[str]) -> bwrap.View:
        resolver = RESOLVER if kind_of(self.spec.network) == "open" else None
        view = _view(
            self.tools,
            roots,
            workspace=str(self.entry.folder / "workspace"),
            home=str(self.entry.folder / "home"),
            hostname=self.spec.hostname,
            memory=self.spec.limits.memory,
        )
        return replace(view, resolver=resolver)

    def _tunnel(self) -> Tunnel | None:
        if kind_of(self.spec.network) != "open":
            return None
        return find_tunnel(self.spec.network, as_root=self.entry.uid is not None)

    @property
    def _is_filtered(self) -> bool:
        return kind_of(self.spec.network) == "list"

    def _boot(self, venv: str, *, seccomp: bool) -> GuestBoot:
        place = Place(
            python=f"{venv}/bin/python",
            runtime_dir=bwrap.RUNTIME_DIR,
            workdir=bwrap.WORKDIR,
            home=bwrap.HOME,
            user=_USER,
            hostname=self.spec.hostname,
        )
        base = base_environment(
            venv=venv, environment=self.environment, home=bwrap.HOME, user=_USER, temp="/tmp"
        )
        return new_boot(
            self.spec,
            self.entry.record,
            place,
            base_env={**base, **network_environment(self.spec.network)},
            isolation=_isolation(self.entry.uid, seccomp=seccomp),
            warnings=(*self.limits.warnings, *self.warnings),
            settings=self.tools.settings.guest_settings,
            trusted=self.environment,
        )


def empty_view(tools: Tools) -> bwrap.View:
    """Return the view of a sandbox without files of its own."""
    return _view(tools, _roots(tools.environment))


def make_program(
    bubblewrap: bwrap.Bwrap, line: bwrap.Line, command: Sequence[str], *, identity: int | None
) -> Program:
    """Return how bubblewrap is run by `line`, for `command`, as the user `identity`."""
    path, sources = bubblewrap.path, list(line.sources)
    if line.place is not None and bubblewrap.folder is not None:
        path = f"{line.place}/{len(sources)}/{os.path.relpath(path, bubblewrap.folder)}"
        sources.append(bubblewrap.folder)
    argv = (path, "--args", str(bwrap.OPTIONS_FD), "--", *command)
    return Program(argv=argv, identity=identity, sources=tuple(sources))


def _view(
    tools: Tools,
    roots: Sequence[str],
    *,
    workspace: str | None = None,
    home: str | None = None,
    hostname: str = "sandbox",
    memory: int | None = None,
) -> bwrap.View:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return bwrap.View(
        roots=tuple(roots),
        workspace=workspace,
        home=home,
        runtime_dir=tools.settings.guest.runtime_dir,
        spawner=spawner_bytecode(),
        hostname=hostname,
        tmpfs_size=(memory or physical // 2) // _TMPFS_SHARE,
        path=f"{os.path.dirname(tools.environment.executable)}:/usr/bin:/bin",
        seccomp=filter_program(platform.machine()),
    )


def _roots(*environments: PythonEnvironment) -> list[str]:
    folders = [root for environment in environments for root in environment.roots]
    return minimal_cover(folders, covered=("/usr",))


def _venv_inside(roots: Sequence[str]) -> str:
    """Return where user code finds its venv: another place where a host user's own `.venv` has the usual one."""
    usual = f"{bwrap.HOME}/.venv"
    return f"{bwrap.HOME}/.sandcell-venv" if any(is_below(root, usual) for root in roots) else usual


def _make_files(entry: Entry, environment: PythonEnvironment, venv: str) -> None:
    """Make the folders of the sandbox on the host's disk, all its own user's."""
    home, workspace = entry.folder / "home", entry.folder / "workspace"
    for folder in (home, workspace):
        folder.mkdir(mode=0o755)
    make_venv(home / os.path.relpath(venv, bwrap.HOME), environment, inside=venv)
    if entry.uid is not None:
        for folder in (home, workspace):
            _give_to(folder, entry.uid)


def _give_to(top: Path, uid: int) -> None:
    try:
        os.chown(top, uid, uid)
    except OSError as failed:  # in a user namespace that does not map the uid, or without CAP_CHOWN
        words = f"sandcell: become the user {uid}: {failed.strerror}"
        raise error(ErrorCode.START_FAILED, words, details={"words": words}) from failed
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)


def _isolation(uid: int | None, *, seccomp: bool) -> dict[str, Any]:
    """What is true of every sandbox that is drawn here; which namespaces are its own the guest finds out."""
    return {
        "cgroup": False,
        "uid": os.geteuid() if uid is None else uid,
        "runtime": "bwrap",
        "seccomp": seccomp,
    }
