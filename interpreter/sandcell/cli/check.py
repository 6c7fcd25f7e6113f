"""`sandcell doctor --check ENGINE`: the checks that are shipped for engines, run on one of this machine."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sandcell.cli.output import write_stdout
from sandcell.cli.progress import Progress
from sandcell.client.blocking.commands import run_command
from sandcell.client.blocking.transport import Transport
from sandcell.client.host import guest_command
from sandcell.job_bodies import ExecRequest
from sandcell_container.conformance import CHECKS, Ran, Subject, run_checks
from sandcell_container.engines.detect import EngineSettings, open_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell.config import Config
    from sandcell_container.conformance import Check, Outcome
    from sandcell_container.engine import Record

__all__ = ["GuestRunner", "check_engine", "describe_outcome"]

_PATIENCE_S = 60.0
_MARKS = {"held": "ok", "failed": "FAILED", "unsupported": "not had"}


class GuestRunner:
    """Runs programs through the guest of a sandbox, as every client does."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def run(self, *argv: str) -> Ran:
        way = Transport(
            self._record.address, self._record.token, connect_timeout=_PATIENCE_S, reply_timeout=_PATIENCE_S
        )
        try:
            request = ExecRequest(command=argv, timeout=_PATIENCE_S)
            done = run_command(way, request, None, max_output=2**20, callbacks={}, check=False)
        finally:
            way.close()
        code = done.exit_code if done.exit_code is not None else -(done.signal or 0)
        return Ran(done.stdout + done.stderr, code)


def check_engine(name: str, config: Config) -> int:
    """Run the checks on the engine `name` and print what came of each; returns 1 where one failed.

    Sandboxes of the checks are recorded in a folder of their own. The engine process isolates nothing, and is checked for
    its function alone.
    """
    checks = [each for each in CHECKS if each.tag == "function" or name != "process"]
    with tempfile.TemporaryDirectory(prefix="sandcell-check-") as state:
        settings = EngineSettings(
            state=Path(state),
            first_uid=config.first_uid,
            uid_count=config.uid_count,
            guest=guest_command(),
            guest_settings={},
        )
        engine, _ = open_engine(name, settings)
        with closing(engine), closing(Subject(engine, GuestRunner)) as subject:
            return _run_all(subject, checks)


def _run_all(subject: Subject, checks: Sequence[Check]) -> int:
    failures = 0
    for check in checks:
        with Progress(check.what, sys.stderr):
            (outcome,) = run_checks(subject, [check])
        write_stdout(describe_outcome(outcome))
        failures += outcome.state == "failed"
    return 1 if failures else 0


def describe_outcome(outcome: Outcome) -> str:
    """Return one line for what became of a check, and another one for why."""
    line = f"{_MARKS[outcome.state]:8} {outcome.check.tag:9} {outcome.check.what}\n"
    return line + (f"{'':18} {outcome.why}\n" if outcome.why else "")
