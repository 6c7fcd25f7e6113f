"""The promises: what of ours is timed, and against what."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.harness import Row, timed
from jupyter_client.manager import start_new_kernel

from sandcell import Sandbox
from sandcell.events import Stdout

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_rows"]


@contextmanager
def open_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows, with a sandbox of `engine` and a plain kernel behind them."""
    manager, kernel = start_new_kernel(kernel_name="python3", extra_arguments=["--log-level=ERROR"])
    try:
        with Sandbox.create(engine=engine) as sandbox:
            yield [
                run_code_row(sandbox, kernel),
                output_row(sandbox, kernel),
                tool_row(sandbox),
                busy_row(sandbox),
                exec_row(sandbox),
                import_row(),
            ]
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)


def run_code_row(sandbox: Sandbox, kernel: Any) -> Row:
    def plain() -> None:
        kernel.execute_interactive("1+1", output_hook=_ignore)

    return Row(
        name='run_code("1+1") / a plain kernel',
        ours=timed(lambda: sandbox.run_code("1+1")),
        theirs=timed(plain),
        bound=0.8,
        rounds=200,
    )


def output_row(sandbox: Sandbox, kernel: Any) -> Row:
    """Ten megabytes, on ours as far as the result that keeps its head and its tail."""
    code = "print('x' * 10_000_000)"
    return Row(
        name="10 MB of output / a plain kernel",
        ours=timed(lambda: sandbox.run_code(code)),
        theirs=timed(lambda: kernel.execute_interactive(code, output_hook=_ignore)),
        bound=1.25,
        rounds=20,
    )


def tool_row(sandbox: Sandbox) -> Row:
    """One call of many that a run makes, in terms of a small run."""

    def call(number: int) -> int:
        return number

    code = f"for n in range({_CALLS}): tools.call(n)"

    def ours() -> float:
        begin = time.perf_counter()
        sandbox.run_code(code, tools=[call])
        return (time.perf_counter() - begin) / _CALLS

    small = timed(lambda: sandbox.run_code("1+1"))
    return Row(name='a call of a host tool / run_code("1+1")', ours=ours, theirs=small, bound=1.0, rounds=30)


def busy_row(sandbox: Sandbox) -> Row:
    """A small run beside a context that burns all cores, in terms of the same run on an idle machine.

    A round takes the median of some runs, because the burning has to be started for each round.
    """
    burner = sandbox.create_context(id="burner")
    burner.run_code("import os, threading, multiprocessing")

    def small() -> float:
        return statistics.median(timed(lambda: sandbox.run_code("1+1"))() for _ in range(_RUNS))

    def busy() -> float:
        live = burner.start_code(_BURN)
        next(event for event in live.follow() if isinstance(event, Stdout))
        try:
            return small()
        finally:
            live.interrupt()
            live.wait()

    return Row(
        name="a small run while all cores burn / idle",
        ours=busy,
        theirs=small,
        bound=5.0,
        rounds=30,
        warm_up=2,
    )


_CALLS = 50
_RUNS = 5
_BURN = """
burning = [multiprocessing.Process(target=exec, args=("while True: pass",)) for _ in range(os.cpu_count())]
for each in burning: each.start()
print("burning", flush=True)
try:
    for each in burning: each.join()
finally:
    for each in burning: each.kill()
"""


def _ignore(_message: object) -> None:
    """What came out is of no interest here, and printing it would be part of the time."""


def exec_row(sandbox: Sandbox) -> Row:
    return Row(
        name='exec("true") / subprocess.run',
        ours=timed(lambda: sandbox.exec("true")),
        theirs=timed(lambda: subprocess.run(["true"], check=True, capture_output=True)),
        bound=3.0,
        rounds=200,
    )


def import_row() -> Row:
    """What a program pays for having the SDK, in a fresh interpreter, less what the interpreter itself takes.

    `import sandcell` alone would flatter: it loads the client when it is first asked for.
    """
    return Row(
        name="from sandcell import Sandbox - a bare start",
        ours=lambda: _start("from sandcell import Sandbox"),
        theirs=lambda: _start("pass"),
        bound=80.0,
        unit="ms",
        rounds=20,
        warm_up=2,
        difference=True,
    )


def _start(code: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - begin
