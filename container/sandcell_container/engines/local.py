"""The engine `local`: Linux namespaces made by bubblewrap, no daemon.

One bubblewrap for each sandbox, the spawner as its PID 1; the guest stands outside the PID namespace, where user code
can neither see nor signal it, and inside all the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING

from sandcell_container.engine import Probe
from sandcell_container.engines import bwrap, tunnel
from sandcell_container.engines.drawing import Drawing, Tools, empty_view, make_program
from sandcell_container.engines.environment import check_readable
from sandcell_container.engines.hosted import HostedEngine
from sandcell_container.engines.launch import PLACE
from sandcell_container.engines.limits import apply_limits
from sandcell_container.engines.zygote_process import import_path, memory_file
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.engine import Record
    from sandcell_container.engines.environment import PythonEnvironment
    from sandcell_container.engines.launch import Program
    from sandcell_container.engines.sandbox_host import Blueprint
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.os_process import OsProcess
    from sandcell_container.registry import Entry
    from sandcell_container.spec import Network, SandboxSpec

__all__ = ["LocalEngine"]

_PROBE_TIMEOUT = 20.0  # seconds
_PROBE = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.launcher import main; main()"
)


class LocalEngine(HostedEngine):
    """Makes sandboxes on this machine. Implements `Engine`; needs Linux and bubblewrap 0.8, as root or as anyone."""

    def __init__(self, settings: EngineSettings) -> None:
        # To the kernel, user code of a sandbox that root made would be root on the host's files: each gets a uid.
        uids = range(settings.first_uid, settings.first_uid + settings.uid_count)
        self._uids = uids if os.geteuid() == 0 else range(0)
        super().__init__(settings, uids=self._uids)

    @property
    def name(self) -> str:
        return "local"

    def probe(self) -> Probe:
        """Try the line of a real sandbox with `true` in it. Source: `Engine.probe`."""
        try:
            words = self._try()
        except SandcellError as failed:
            return Probe(engine=self.name, usable=False, reason=failed.message, remedies=(failed.hint,))
        version = f"bubblewrap {self._tools.bubblewrap.version}"
        if words is None:
            return Probe(engine=self.name, usable=True, version=version, remedies=self._lacks())
        cause = bwrap.explain(words) or bwrap.Cause(words.strip()[-300:] or "bubblewrap ended silently", ())
        return Probe(
            engine=self.name, usable=False, reason=cause.reason, remedies=cause.remedies, version=version
        )

    def _lacks(self) -> tuple[str, ...]:
        """Return what to do for what not every sandbox needs, each one line."""
        try:
            tunnel.find_tunnel("open", as_root=bool(self._uids))
        except SandcellError as missing:
            return (f'for network="open": {missing.hint.partition(";")[0]}',)
        return ()

    def create(self, spec: SandboxSpec) -> Record:
        try:
            return super().create(spec)
        except SandcellError as failed:
            raise _translated(failed) from failed.__cause__

    def start(self, sandbox_id: str) -> Record:
        try:
            return super().start(sandbox_id)
        except SandcellError as failed:
            raise _translated(failed) from failed.__cause__

    def _check_network(self, network: Network) -> None:
        if kind_of(network) == "open":
            tunnel.find_tunnel(network, as_root=bool(self._uids))

    def _draw(self, entry: Entry) -> Blueprint:
        limits = apply_limits(entry.spec.limits, strict=entry.spec.strict, group=entry.group)
        environment, has_files = self._furnish(entry)
        return Drawing(
            tools=self._tools,
            spec=entry.spec,
            entry=entry,
            environment=environment,
            has_files=has_files,
            limits=limits,
            warnings=self._check_readable(environment),
        ).blueprint()

    def _init_of(self, entry: Entry) -> OsProcess | None:
        return entry.processes[-1]

    def _workdir_of(self, entry: Entry) -> str:
        return bwrap.WORKDIR

    @cached_property
    def _tools(self) -> Tools:
        return Tools(
            settings=self._settings,
            environment=self._calling,
            bubblewrap=bwrap.find_bwrap(),
            place=PLACE if self._uids else None,
        )

    def _check_readable(self, environment: PythonEnvironment) -> tuple[str, ...]:
        """Return warnings. Where this program's own user is the sandbox's there is nothing to check."""
        return check_readable(environment, self._settings.guest.runtime_dir) if self._uids else ()

    def _try(self) -> str | None:
        """Run `true` in a sandbox without files; returns None when it ran, else what was said instead."""
        tools = self._tools
        self._check_readable(tools.environment)
        line = bwrap.build_line(empty_view(tools), place=tools.place)
        identity = self._uids.start if self._uids else None
        program = make_program(tools.bubblewrap, line, ("/usr/bin/true",), identity=identity)
        with ExitStack() as held:
            null = os.open(os.devnull, os.O_RDWR)
            files = [memory_file(text) for text in (line.encode(), *line.extras)]
            for descriptor in (null, *files):
                held.callback(os.close, descriptor)
            return _run_probe(program, [null, null, *files])


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
    words = "\n".join(str(failed.details.get(name, "")) for name in ("words", "reason"))
    cause = tunnel.explain(words) or bwrap.explain(words)
    if failed.code is not ErrorCode.START_FAILED or cause is None:
        return failed
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"the engine local cannot make a sandbox: {cause.reason}",
        hint="; ".join(cause.remedies),
        details=failed.details,
    )
