"""`sandcell doctor`: which engines work here, why others do not, and what to do."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from sandcell.cli.check import check_engine
from sandcell.cli.output import write_stdout
from sandcell.cli.progress import Progress
from sandcell.client.host import engine_settings, guest_command
from sandcell_container.engines.detect import probe_engines

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config
    from sandcell_container.engine import Probe

__all__ = ["examine", "report"]


def examine(options: argparse.Namespace, config: Config) -> int:
    """Try each engine and print what came of it; returns 1 when none that isolates works. With `check`, check that engine."""
    if options.check:
        return check_engine(options.check, config)
    with Progress("trying the engines", sys.stderr):
        probes = probe_engines(engine_settings(config, guest_command(), {}))
    write_stdout(
        f"sandcell {version('sandcell')}, Python {platform.python_version()}, {platform.platform()}\n"
    )
    write_stdout(report(probes))
    return 0 if _chosen(probes) else 1


def report(probes: list[Probe]) -> str:
    """Return what is known of the engines as text: one line each, and below it why not and what to do."""
    lines = list[str]()
    for each in probes:
        note = f"works {each.version}".rstrip() if each.usable else "does not work here: " + each.reason
        lines.append(f"{each.engine:8} {note}")
        lines += [f"{'':8} - {remedy}" for remedy in each.remedies if not each.usable]
    chosen = _chosen(probes)
    lines.append("process  no isolation at all: by name only, for development")
    lines.append(f'engine "auto" takes {chosen}' if chosen else 'engine "auto" finds none that works')
    return "\n".join(lines) + "\n"


def _chosen(probes: list[Probe]) -> str:
    return next((each.engine for each in probes if each.usable), "")
