"""`sandcell ps`, `stop`, `rm` and `prune`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from sandcell.cli.jobs import list_processes
from sandcell.cli.options import OWN_FAILURE
from sandcell.cli.output import table, write_stdout
from sandcell.cli.progress import Progress
from sandcell.client.blocking.sandbox import Sandbox
from sandcell.client.host import the_host
from sandcell.client.records import find_record
from sandcell_container.errors import SandcellError
from sandcell_kernel.tables import describe_age

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from sandcell.client.records import Found
    from sandcell.config import Config

__all__ = ["list_sandboxes", "prune_sandboxes", "remove_sandboxes", "stop_sandboxes"]


def list_sandboxes(options: argparse.Namespace, config: Config) -> int:
    """Print the sandboxes of this machine's user, oldest first; or the processes of the one that is named."""
    if options.sandbox:
        return list_processes(options, config)
    with Progress("looking for sandboxes", sys.stderr):
        found = sorted(Sandbox.list(), key=lambda each: each.created_at)
    if options.json:
        rows = [_facts(each) for each in found]
        write_stdout(json.dumps(rows) + "\n")
        return 0
    head = ("NAME", "ID", "ENGINE", "STATUS", "AGE")
    lines = [
        (each.name, each.id, each.engine, each.status, describe_age(time.time() - each.created_at))
        for each in found
    ]
    write_stdout(table([head, *lines]) + "\n")
    return 0


def stop_sandboxes(options: argparse.Namespace, _: Config) -> int:
    """End what runs in the sandboxes that the options name."""
    return _for_each(options.names, "stopping", lambda found: found.engine.stop(found.record.id))


def remove_sandboxes(options: argparse.Namespace, _: Config) -> int:
    """End the sandboxes that the options name."""
    return _for_each(options.names, "removing", lambda found: found.engine.remove(found.record.id))


def prune_sandboxes(options: argparse.Namespace, config: Config) -> int:
    """Clean up after programs that crashed, on every engine that answers, and print what became of each sandbox; then remove what
    was made for sandboxes and is of no use any more."""
    older_than = config.keep_unused if options.unused_for is None else options.unused_for
    with Progress("looking after what is left", sys.stderr):
        found = the_host().prune()
        unused = the_host().remove_unused(older_than)
    for state in ("live", "stopped", "removed"):
        ids = sorted({name for each in found for name in getattr(each, state)})
        write_stdout("".join(f"{state}\t{name}\n" for name in ids))
    write_stdout("".join(f"unused\t{name}\n" for name in sorted(unused)))
    return 0


def list_snapshots(options: argparse.Namespace, _: Config) -> int:
    """Print the snapshots of every engine that answers, or remove those that the options name."""
    if options.rm:
        for name in options.rm:
            the_host().remove_snapshot(name)
        return 0
    head = ("NAME", "ENGINE", "AGE", "MIB")
    rows = [
        (
            each.name,
            each.engine,
            describe_age(time.time() - each.created_at),
            "" if each.size is None else f"{each.size / 2**20:.0f}",
        )
        for each in the_host().snapshots()
    ]
    write_stdout(table([head, *rows]) + "\n")
    return 0


def _for_each(names: Sequence[str], doing: str, act: Callable[[Found], object]) -> int:
    """Act on sandboxes whoever made them: this is the hand of the machine's user. One that is not there does not keep
    the others from it."""
    code = 0
    for name in names:
        try:
            with Progress(f"{doing} {name}", sys.stderr):
                act(find_record(the_host().records(), name))
            write_stdout(f"{name}\n")
        except SandcellError as problem:
            print(f"sandcell: {problem}", file=sys.stderr)
            code = OWN_FAILURE
    return code


def _facts(each: Any) -> dict[str, Any]:
    return {name: getattr(each, name) for name in ("name", "id", "engine", "status", "created_at", "image")}
