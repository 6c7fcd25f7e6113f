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
_MUCH = 20_000_000
_FLOOD = ("head", "-c", str(GIB), "/dev/zero")
_CHUNK = 2**18


@contextmanager
def open_command_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows, with a sandbox of `engine` behind them."""
    with Sandbox.create(engine=engine) as sandbox:
        yield [
            exec_row(sandbox),
            output_row(sandbox, "whole", max_output="32MiB"),
            output_row(sandbox, "cut, whole in a file", max_output="1MiB"),
            process_row(sandbox),
            session_row(sandbox),
        ]


def exec_row(sandbox: Sandbox) -> Row:
    return Row(
        name='exec("true") / subprocess.run bash -c true',
        ours=timed(lambda: sandbox.exec("true")),
        theirs=timed(lambda: subprocess.run(["bash", "-c", "true"], check=True, capture_output=True)),
        bound=2.0,
        rounds=200,
    )


def output_row(sandbox: Sandbox, kept: str, *, max_output: str) -> Row:
    """What comes of a command as its result, and the same read from its pipe and written to a file."""
    flood = ("head", "-c", str(_MUCH), "/dev/zero")

    def ours() -> None:
        done = sandbox.exec(flood, max_output=max_output)
        cut = done.truncated.get("stdout")
        if (cut.total_bytes if cut else len(done.stdout_bytes)) != _MUCH:
            raise AssertionError("not all of it has come")

    return Row(
        name=f"20 MB of stdout, {kept} / a pipe into a file",
        ours=timed(ours),
        theirs=timed(lambda: _pipe_into_file(flood)),
        bound=3.0,
        rounds=30,
        warm_up=2,
    )


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
        theirs=timed(lambda: _pipe_into_file(_FLOOD)),
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


def _pipe_into_file(flood: tuple[str, ...]) -> None:
    with (
        tempfile.TemporaryFile(buffering=0) as file,
        subprocess.Popen(flood, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), _CHUNK):
            file.write(data)
