"""The promises about containers, with `--engine docker`: against the docker command and a plain kernel in the same image."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.harness import Row, timed

from sandcell import Sandbox
from sandcell_container.engines.docker_daemon import RUNTIME_IMAGE

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_container_rows"]

_KERNEL = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
client.execute_interactive("1 + 1")
print("replied", flush=True)
manager.shutdown_kernel(now=True)
"""


@contextmanager
def open_container_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows; none for an engine without containers."""
    if engine != "docker":
        yield []
        return
    with Sandbox.create(engine=engine) as sandbox:
        yield [_create_row(), _exec_row(sandbox)]


def _create_row() -> Row:
    return Row(
        name="create to first result / docker run of a plain kernel to its first reply",
        ours=_create,
        theirs=_run_kernel,
        bound=1.2,
        rounds=10,
        warm_up=1,
    )


def _create() -> float:
    begun = time.perf_counter()
    with Sandbox.create(engine="docker") as sandbox:
        sandbox.run_code("1 + 1", check=True)
        return time.perf_counter() - begun


def _run_kernel() -> float:
    line = ["docker", "run", "--rm", "--network", "none", "--user", "1000", "--env", "HOME=/home/user"]
    line += ["--entrypoint", "/opt/user/bin/python", RUNTIME_IMAGE, "-c", _KERNEL]
    begun = time.perf_counter()
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        if not any("replied" in line for line in running.stdout):
            raise AssertionError("the plain kernel did not reply")
        return time.perf_counter() - begun


def _exec_row(sandbox: Sandbox) -> Row:
    line = ["docker", "exec", f"sandcell-{sandbox.name}", "true"]
    return Row(
        name='exec("true") in docker / docker exec true',
        ours=timed(lambda: sandbox.exec("true")),
        theirs=timed(lambda: subprocess.run(line, check=True)),
        bound=0.1,
        rounds=40,
    )
