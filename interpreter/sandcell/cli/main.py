"""Chooses the verb, and turns what was raised into one line and an exit code.

A verb is imported when it is called: `sandcell --help` loads no client, no server, no Jupyter.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from sandcell.cli.options import OWN_FAILURE, parse
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from sandcell.config import Config

__all__ = ["main", "run"]

_log = logging.getLogger(__name__)

_VERBS = {
    "run": "sandcell.cli.code:run_source",
    "exec": "sandcell.cli.command:run_command",
    "ps": "sandcell.cli.sandboxes:list_sandboxes",
    "rm": "sandcell.cli.sandboxes:remove_sandboxes",
    "kernel": "sandcell.cli.kernel:install_kernel",
    "doctor": "sandcell.cli.doctor:examine",
}
_INTERRUPTED = 130
_NO_READER = 141  # as a program that SIGPIPE ended


def run() -> None:
    """Be the console script."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Do what `argv` says and return the exit code."""
    options = parse(argv)
    try:
        return _verb(options.verb)(options, _configure())
    except SandcellError as problem:
        _log.debug("details: %s", problem.details, exc_info=problem)
        print(f"sandcell: {problem}", file=sys.stderr)
        return OWN_FAILURE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER


def _verb(name: str) -> Callable[[argparse.Namespace, Config], int]:
    module, _, function = _VERBS[name].partition(":")
    found: Callable[[argparse.Namespace, Config], int] = getattr(importlib.import_module(module), function)
    return found


def _configure() -> Config:
    from sandcell.config import Config

    config = Config.from_environ()
    logging.basicConfig(level=config.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    return config
