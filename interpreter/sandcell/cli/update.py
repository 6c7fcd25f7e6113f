"""`sandcell update`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sandcell.api import SandboxInfo
from sandcell.cli.output import write_stdout
from sandcell.cli.progress import Progress
from sandcell.client.blocking.transport import Transport
from sandcell.client.changes import Change
from sandcell.client.host import the_host
from sandcell.client.protocol import Request, path_of
from sandcell.client.records import find_record
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config
    from sandcell_container.engine import Record

__all__ = ["update_sandbox"]

_FIELDS = ("network", "memory", "disk", "cpus", "pids", "idle_timeout")


def update_sandbox(options: argparse.Namespace, config: Config) -> int:
    """Change the sandbox that is named, whoever made it: this is the hand of the machine's user. Prints what became of it."""
    given: dict[str, Any] = {name: value for name in _FIELDS if (value := getattr(options, name)) is not None}
    if not given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _FIELDS)
        raise error(ErrorCode.INVALID_ARGUMENT, "nothing is to be changed", hint=f"give one of {names}")
    with Progress(f"changing {options.name}", sys.stderr):
        found = find_record(the_host().records(), options.name)
        record = found.record
        change = Change(given)
        done = found.engine.update(record.id, change)
        if record.status == "running" and not done.restarted:
            _tell(record, change, config)
    for warning in done.warnings:
        print(f"sandcell: {warning}", file=sys.stderr)
    write_stdout(f"{record.name}\t{'restarted' if done.restarted else 'updated'}\n")
    return 0


def _tell(record: Record, change: Change, config: Config) -> None:
    """Have the guest know what was changed while it runs."""
    transport = Transport(
        record.address,
        record.token,
        connect_timeout=config.connect_timeout,
        reply_timeout=config.reply_timeout,
    )
    try:
        transport.call(
            Request(method="PATCH", path=path_of("info"), body=change.body, wakes=False), SandboxInfo
        )
    finally:
        transport.close()
