"""What is promised of files: large ones, in terms of `cp` on the same file system, and the first page of a long list."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Row, timed

from sandcell import Sandbox
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_file_rows"]

_SIZE = 2 * 2**30
_ROUNDS = 5
_PIECE = 2**20


@contextmanager
def open_file_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows; the copies are beside the sandbox's own files, so that both are of the same file system."""
    state = the_host().config.state_path
    state.mkdir(parents=True, exist_ok=True)
    with Sandbox.create(engine=engine) as sandbox, tempfile.TemporaryDirectory(dir=state) as folder:
        place = Path(folder)
        piece = os.urandom(_PIECE)
        with (place / "source").open("wb") as file:
            for _ in range(_SIZE // _PIECE):
                file.write(piece)
        sandbox.files.upload(place / "source", "source")
        yield [up_row(sandbox, place), down_row(sandbox, place), page_row(sandbox)]


def up_row(sandbox: Sandbox, place: Path) -> Row:
    def up() -> float:
        taken = timed(lambda: sandbox.files.upload(place / "source", "up"))()
        sandbox.files.remove("up")
        return taken

    return Row(
        name="2 GiB up / cp", ours=up, theirs=lambda: _copy(place), bound=2.0, rounds=_ROUNDS, warm_up=1
    )


def down_row(sandbox: Sandbox, place: Path) -> Row:
    def down() -> float:
        taken = timed(lambda: sandbox.files.download("source", place / "down"))()
        (place / "down").unlink()
        return taken

    return Row(
        name="2 GiB down / cp", ours=down, theirs=lambda: _copy(place), bound=2.0, rounds=_ROUNDS, warm_up=1
    )


def page_row(sandbox: Sandbox) -> Row:
    """The first page of 100,000 files, less nothing: what it takes."""
    sandbox.exec("mkdir /tmp/many && cd /tmp/many && seq 100000 | xargs touch", timeout=120, check=True)
    return Row(
        name="the first page of 100,000 files",
        ours=timed(lambda: sandbox.files.list_page("/tmp/many")),
        theirs=lambda: 0.0,
        bound=1000.0,
        unit="ms",
        rounds=_ROUNDS,
        warm_up=1,
        difference=True,
    )


def _copy(place: Path) -> float:
    start = time.perf_counter()
    subprocess.run(["cp", place / "source", place / "copy"], check=True)
    taken = time.perf_counter() - start
    (place / "copy").unlink()
    return taken
