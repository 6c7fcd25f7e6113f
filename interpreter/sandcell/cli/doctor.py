"""`sandcell doctor`: which engines work here, why others do not, and what to do."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING

from sandcell.cli.check import check_engine
from sandcell.cli.output import write_stdout
from sandcell.cli.progress import Progress
from sandcell.client.host import engine_settings, guest_command
from sandcell.version import VERSION
from sandcell_container.engines.detect import probe_engines
from sandcell_container.engines.podman_doctor import (
    CONFIGURATION,
    configuration_of,
    examine_podman,
    look_at_machine,
    service_line,
)
from sandcell_container.state_folder import make_folders

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config
    from sandcell_container.engine import Probe
    from sandcell_container.engines.podman_doctor import Trouble

__all__ = ["examine", "report"]


def examine(options: argparse.Namespace, config: Config) -> int:
    """Try each engine and print what came of it; returns 1 when none that isolates works. With `check`, check that engine."""
    if options.check:
        return check_engine(options.check, config)
    with Progress("trying the engines", sys.stderr):
        probes = probe_engines(engine_settings(config, guest_command(), {}))
    write_stdout(f"sandcell {VERSION}, Python {platform.python_version()}, {platform.platform()}\n")
    write_stdout(report(probes))
    troubles = examine_podman(look_at_machine())
    write_stdout("".join(f"podman   {each.what}\n{'':8} - {each.remedy}\n" for each in troubles))
    if options.fix:
        write_stdout(_fix(troubles, config))
    return 0 if _chosen(probes) else 1


def _fix(troubles: list[Trouble], config: Config) -> str:
    """Write the configuration that helps, beside the records of sandboxes, and return what was done."""
    text = configuration_of(troubles)
    if not text:
        return "there is nothing that a configuration would help with\n"
    path = config.state_path / CONFIGURATION
    make_folders(path.parent)
    path.write_text(text)
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    line = service_line(path, is_root=os.geteuid() == 0, runtime_dir=runtime_dir)
    return f"wrote {path}; start the service with it:\n  {line}\n"


def report(probes: list[Probe]) -> str:
    """Return what is known of the engines as text: one line each, and below it why not and what to do, or what it lacks."""
    lines = list[str]()
    for each in probes:
        note = f"works {each.version}".rstrip() if each.usable else "does not work here: " + each.reason
        lines.append(f"{each.engine:8} {note}")
        lines += [f"{'':8} - {remedy}" for remedy in each.remedies]
    chosen = _chosen(probes)
    lines.append("process  no isolation at all: by name only, for development")
    lines.append(f'engine "auto" takes {chosen}' if chosen else 'engine "auto" finds none that works')
    return "\n".join(lines) + "\n"


def _chosen(probes: list[Probe]) -> str:
    return next((each.engine for each in probes if each.usable), "")
