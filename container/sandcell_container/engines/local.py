"""The engine `local`: Linux namespaces made by bubblewrap, no daemon.

One bubblewrap for each sandbox, the spawner as its PID 1; the guest stands outside the PID namespace, where user code
can neither see nor signal it, and inside all the others.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING

from sandcell_container.engine import Probe
from sandcell_container.engines import bwrap
from sandcell_container.engines.boot import Place, new_boot, spawner_command, spawner_path
from sandcell_container.engines.environment import (
    base_environment,
    calling_environment,
    check_readable,
    is_below,
    make_venv,
    minimal_cover,
    query_environment,
)
from sandcell_container.engines.launch import PLACE, Launch, Program
from sandcell_container.engines.limits import apply_limits
from sandcell_container.engines.sandbox_host import Blueprint, SandboxHost
from sandcell_container.engines.seccomp import filter_program
from sandcell_container.engines.zygote_process import import_path, memory_file
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from sandcell_container.engine import Record
    from sandcell_container.engines.environment import PythonEnvironment
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.registry import Entry
    from sandcell_container.spec import SandboxSpec

__all__ = ["LocalEngine"]

_USER = "user"
_PROBE_TIMEOUT = 20.0  # seconds
_PROBE = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.launcher import main; main()"
)
# Of what the memory may hold, for each of /tmp and /dev/shm: together they must leave room for processes.
_TMPFS_SHARE = 4


class LocalEngine:
    """Makes sandboxes on this machine. Implements `Engine`; needs Linux and bubblewrap 0.8, as root or as anyone."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        # To the kernel, user code of a sandbox that root made would be root on the host's files: each gets a uid.
        uids = range(settings.first_uid, settings.first_uid + settings.uid_count)
        self._uids = uids if os.geteuid() == 0 else range(0)
        self._place = PLACE if self._uids else None
        self._host = SandboxHost(self.name, settings, uids=self._uids)

    @property
    def name(self) -> str:
        return "local"

    def probe(self) -> Probe:
        """Try the line of a real sandbox with `true` in it. Source: `Engine.probe`."""
        try:
            words = self._try()
        except SandcellError as failed:
            return Probe(engine=self.name, usable=False, reason=failed.message, remedies=(failed.hint,))
        version = f"bubblewrap {self._bwrap.version}"
        if words is None:
            return Probe(engine=self.name, usable=True, version=version)
        cause = bwrap.explain(words) or bwrap.Cause(words.strip()[-300:] or "bubblewrap ended silently", ())
        return Probe(
            engine=self.name, usable=False, reason=cause.reason, remedies=cause.remedies, version=version
        )

    def create(self, spec: SandboxSpec) -> Record:
        """Make the sandbox of `spec`. Errors: see `Engine.create`."""
        limits = apply_limits(spec.limits, strict=spec.strict)
        environment = query_environment(spec.python) if spec.python else self._environment
        closed = self._check_readable(environment)
        warnings = (*limits.warnings, *closed)
        try:
            return self._host.create(
                spec, lambda entry: self._draw(spec, entry, environment, limits.spawner, warnings)
            )
        except SandcellError as failed:
            raise _translated(failed) from failed.__cause__

    def list(self) -> list[Record]:
        """Return the sandboxes of this engine. Source: `Engine.list`."""
        return self._host.list()

    def remove(self, sandbox_id: str) -> None:
        """End the sandbox and remove its files. Source: `Engine.remove`; errors: `Registry.remove`."""
        self._host.remove(sandbox_id)

    def close(self) -> None:
        """End the sandboxes that end with this program. Source: `Engine.close`."""
        self._host.close()

    @cached_property
    def _environment(self) -> PythonEnvironment:
        return calling_environment()

    @cached_property
    def _bwrap(self) -> bwrap.Bwrap:
        return bwrap.find_bwrap()

    def _check_readable(self, environment: PythonEnvironment) -> tuple[str, ...]:
        """Return warnings. Where this program's own user is the sandbox's there is nothing to check."""
        return check_readable(environment, self._settings.guest.runtime_dir) if self._uids else ()

    def _draw(
        self,
        spec: SandboxSpec,
        entry: Entry,
        environment: PythonEnvironment,
        limits: dict[str, int],
        warnings: tuple[str, ...],
    ) -> Blueprint:
        roots = _roots(self._environment, environment)
        venv = _venv_inside(roots)
        _make_files(entry, environment, venv)
        view = self._view(
            roots,
            workspace=str(entry.folder / "workspace"),
            home=str(entry.folder / "home"),
            hostname=spec.hostname,
            memory=spec.limits.memory,
        )
        place = Place(
            f"{venv}/bin/python", bwrap.RUNTIME_DIR, bwrap.WORKDIR, bwrap.HOME, _USER, spec.hostname
        )
        boot = new_boot(
            spec,
            entry.record,
            place,
            base_env=base_environment(
                venv=venv, environment=environment, home=place.home, user=_USER, temp="/tmp"
            ),
            isolation=_isolation(entry.uid, seccomp=view.seccomp is not None),
            warnings=warnings,
            settings=self._settings.guest_settings,
        )
        line = bwrap.build_line(view, place=self._place)
        command = spawner_command(self._environment.executable, bwrap.SPAWNER, "marks", limits)
        launch = Launch(
            boot=boot,
            module=self._settings.guest.module,
            function=self._settings.guest.function,
            program=_program(self._bwrap, line, command, identity=entry.uid),
            timeout=spec.start_timeout,
            enter=True,
            import_roots=("/usr", *roots),
        )
        return Blueprint(launch=launch, status=True, memory=(line.encode(), *line.extras))

    def _view(
        self,
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
            runtime_dir=self._settings.guest.runtime_dir,
            spawner=spawner_path().read_bytes(),
            hostname=hostname,
            tmpfs_size=(memory or physical // 2) // _TMPFS_SHARE,
            path=f"{os.path.dirname(self._environment.executable)}:/usr/bin:/bin",
            seccomp=filter_program(platform.machine()),
        )

    def _try(self) -> str | None:
        """Run `true` in a sandbox without files; returns None when it ran, else what was said instead."""
        bubblewrap = self._bwrap
        self._check_readable(self._environment)
        line = bwrap.build_line(self._view(_roots(self._environment)), place=self._place)
        identity = self._uids.start if self._uids else None
        program = _program(bubblewrap, line, ("/usr/bin/true",), identity=identity)
        with ExitStack() as held:
            null = os.open(os.devnull, os.O_RDWR)
            files = [memory_file(text) for text in (line.encode(), *line.extras)]
            for descriptor in (null, *files):
                held.callback(os.close, descriptor)
            return _run_probe(program, [null, null, *files])


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
    os.chown(top, uid, uid)
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)


def _program(
    bubblewrap: bwrap.Bwrap, line: bwrap.Line, command: Sequence[str], *, identity: int | None
) -> Program:
    path, sources = bubblewrap.path, list(line.sources)
    if line.place is not None and bubblewrap.folder is not None:
        path = f"{line.place}/{len(sources)}/{os.path.relpath(path, bubblewrap.folder)}"
        sources.append(bubblewrap.folder)
    argv = (path, "--args", str(bwrap.OPTIONS_FD), "--", *command)
    return Program(argv=argv, identity=identity, sources=tuple(sources))


def _isolation(uid: int | None, *, seccomp: bool) -> dict[str, Any]:
    """What is true of every sandbox that this engine starts; which namespaces are its own the guest finds out."""
    return {
        "cgroup": False,
        "uid": os.geteuid() if uid is None else uid,
        "runtime": "bwrap",
        "seccomp": seccomp,
    }


def _run_probe(program: Program, descriptors: Sequence[int]) -> str | None:
    options = [json.dumps(part) for part in (import_path(), asdict(program), descriptors)]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _PROBE, *options],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=sorted(set(descriptors)),
            timeout=_PROBE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not end within {_PROBE_TIMEOUT:g} s"
    return None if done.returncode == 0 else done.stderr.decode(errors="replace")


def _translated(failed: SandcellError) -> SandcellError:
    """Turn the failed start of one sandbox into what it says of the machine, where it says something of it."""
    cause = bwrap.explain(str(failed.details.get("words", "")))
    if failed.code is not ErrorCode.START_FAILED or cause is None:
        return failed
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"the engine local cannot make a sandbox: {cause.reason}",
        hint="; ".join(cause.remedies),
        details=failed.details,
    )
