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
from sandcell_container.engines import bwrap
from sandcell_container.engines.drawing import Drawing, Tools, empty_view, make_program
from sandcell_container.engines.environment import calling_environment, check_readable, query_environment
from sandcell_container.engines.launch import PLACE
from sandcell_container.engines.limits import apply_limits
from sandcell_container.engines.partial import PartialEngine
from sandcell_container.engines.sandbox_host import SandboxHost
from sandcell_container.engines.zygote_process import import_path, memory_file
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.end import End
    from sandcell_container.engine import Record
    from sandcell_container.engines.environment import PythonEnvironment
    from sandcell_container.engines.launch import Program
    from sandcell_container.engines.sandbox_host import Blueprint
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.registry import Entry
    from sandcell_container.spec import SandboxSpec

__all__ = ["LocalEngine"]

_PROBE_TIMEOUT = 20.0  # seconds
_PROBE = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.launcher import main; main()"
)


class LocalEngine(PartialEngine):
    """Makes sandboxes on this machine. Implements `Engine`; needs Linux and bubblewrap 0.8, as root or as anyone."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        # To the kernel, user code of a sandbox that root made would be root on the host's files: each gets a uid.
        uids = range(settings.first_uid, settings.first_uid + settings.uid_count)
        self._uids = uids if os.geteuid() == 0 else range(0)
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
        version = f"bubblewrap {self._tools.bubblewrap.version}"
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
        warnings = (*limits.warnings, *self._check_readable(environment))
        tools = self._tools

        def draw(entry: Entry) -> Blueprint:
            return Drawing(
                tools=tools,
                spec=spec,
                entry=entry,
                environment=environment,
                limits=limits.spawner,
                warnings=warnings,
            ).blueprint()

        try:
            return self._host.create(spec, draw)
        except SandcellError as failed:
            raise _translated(failed) from failed.__cause__

    def list(self) -> list[Record]:
        """Return the sandboxes of this engine. Source: `Engine.list`."""
        return self._host.list()

    def remove(self, sandbox_id: str) -> None:
        """End the sandbox and remove its files. Source: `Engine.remove`; errors: `Registry.remove`."""
        self._host.remove(sandbox_id)

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        return self._host.await_end(sandbox_id, timeout=timeout)

    def close(self) -> None:
        """End the sandboxes that end with this program. Source: `Engine.close`."""
        self._host.close()

    @cached_property
    def _environment(self) -> PythonEnvironment:
        return calling_environment()

    @cached_property
    def _tools(self) -> Tools:
        return Tools(
            settings=self._settings,
            environment=self._environment,
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
    cause = bwrap.explain(str(failed.details.get("words", "")))
    if failed.code is not ErrorCode.START_FAILED or cause is None:
        return failed
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"the engine local cannot make a sandbox: {cause.reason}",
        hint="; ".join(cause.remedies),
        details=failed.details,
    )
