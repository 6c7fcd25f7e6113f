"""`sandcell top`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sandcell.cli.output import table, write_stdout
from sandcell.cli.place import open_known
from sandcell.names import encode_names

if TYPE_CHECKING:
    import argparse

    from sandcell.api import OsProcess
    from sandcell.config import Config

__all__ = ["list_processes"]

_HEAD = ("PID", "USER", "CPU", "MEMORY", "AGE", "OWNER", "COMMAND")
_WIDEST = 80  # characters of a command line


def list_processes(options: argparse.Namespace, config: Config) -> int:
    """Print the processes in a sandbox, oldest first."""
    with open_known(options, config) as place:
        found = place.sandbox.top()
    if options.json:
        write_stdout(encode_names(found) + b"\n")
    else:
        write_stdout(table([_HEAD, *map(_row, found)]) + "\n")
    return 0


def _row(process: OsProcess) -> tuple[str, ...]:
    return (
        str(process.pid),
        process.user,
        f"{process.cpu:.2f} s",
        f"{process.memory / 2**20:.1f} MiB",
        f"{max(time.time() - process.started, 0):.0f} s",
        process.owner,
        _printable(process.command),
    )


def _printable(command: str) -> str:
    """Return a command line that does nothing to a terminal: user code may have put anything into it."""
    shown = "".join(each if each.isprintable() else "?" for each in command)
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 3] + "..."
