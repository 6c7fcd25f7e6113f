"""`sandcell ps` and `sandcell rm`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from sandcell.cli.jobs import list_processes
from sandcell.cli.options import OWN_FAILURE
from sandcell.cli.output import age, table, write_stdout
from sandcell.cli.progress import Progress
from sandcell.client.blocking.sandbox import Sandbox
from sandcell.client.host import the_host
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config

__all__ = ["list_sandboxes", "remove_sandboxes"]


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
        (each.name, each.id, each.engine, each.status, age(time.time() - each.created_at)) for each in found
    ]
    write_stdout(table([head, *lines]) + "\n")
    return 0


def remove_sandboxes(options: argparse.Namespace, _: Config) -> int:
    """End the sandboxes that the options name; one that is not there does not keep the others alive."""
    code = 0
    for name in options.names:
        try:
            with Progress(f"removing {name}", sys.stderr):
                _remove(name)
            write_stdout(f"{name}\n")
        except SandcellError as problem:
            print(f"sandcell: {problem}", file=sys.stderr)
            code = OWN_FAILURE
    return code


def _remove(name: str) -> None:
    """End a sandbox whoever made it, and whatever its state: this is the hand of the machine's user."""
    found = [each for each in the_host().records() if name in {each.record.id, each.record.name}]
    if not found:
        raise error(
            ErrorCode.NOT_FOUND,
            f"no sandbox of this machine is called {name[:80]!r}",
            hint="sandcell ps lists them",
        )
    for each in found:
        each.engine.remove(each.record.id)


def _facts(each: Any) -> dict[str, Any]:
    return {name: getattr(each, name) for name in ("name", "id", "engine", "status", "created_at", "image")}
