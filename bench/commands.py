"""The promises about commands and what they write."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.harness import Row, timed

from sandcell import Sandbox
from sandcell.events import Stdout

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_command_rows"]

GIB = 2**30
_FLOOD = ("head", "-c", str(GIB), "/dev/zero")
_CHUNK = 2**18


@contextmanager
def open_command_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows, with a sandbox of `engine` behind them."""
    with Sandbox.create(engine=engine) as sandbox:
        yield [process_row(sandbox), session_row(sandbox)]


def process_row(sandbox: Sandbox) -> Row:
    """A gibibyte of a process, followed by a client as text; and read from its pipe and written to a file."""

    def ours() -> None:
        job = sandbox.start_process(_FLOOD, on_full="block")
        arrived = sum(len(event.text) for event in job.follow() if isinstance(event, Stdout))
        job.remove()
        if arrived != GIB:
            raise AssertionError(f"{arrived} bytes of {GIB} have arrived")

    return Row(
        name="1 GiB through a process / a pipe into a file",
        ours=timed(ours),
        theirs=timed(_pipe_into_file),
        bound=2.0,
        rounds=5,
        warm_up=1,
    )


def session_row(sandbox: Sandbox) -> Row:
    """A session has a shell already, and needs no process for a command of its own."""
    session = sandbox.create_session()
    return Row(
        name='session.exec("true") / exec("true")',
        ours=timed(lambda: session.exec("true")),
        theirs=timed(lambda: sandbox.exec("true")),
        bound=1.5,
        rounds=200,
    )


def _pipe_into_file() -> None:
    with (
        tempfile.TemporaryFile(buffering=0) as file,
        subprocess.Popen(_FLOOD, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), _CHUNK):
            file.write(data)
