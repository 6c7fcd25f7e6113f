"""The promises about new contexts: how soon they give their first result, and what each costs in memory."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from bench.harness import Row
from jupyter_client.manager import KernelManager

from sandcell import Sandbox

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Self

__all__ = ["PlainKernel", "open_context_rows"]

SCIENCE = "import numpy, pandas, matplotlib.pyplot"
PSS = "next(int(line.split()[1]) for line in open('/proc/self/smaps_rollup') if line.startswith('Pss:'))"
COMPANY = 4  # contexts that are alive when the memory of each is read
PAUSE_S = 0.5  # until the next child is ready, and what a round has left behind has ended
TIMEOUT_S = 60.0


@contextmanager
def open_context_rows(engine: str) -> Generator[list[Row]]:
    """Yield the rows, with a sandbox of `engine` behind them that has run something."""
    with Sandbox.create(engine=engine) as sandbox:
        sandbox.run_code("1+1")
        time.sleep(4 * PAUSE_S)  # its fork server imports what many cells begin with
        yield [
            # The child that is kept ready was born without a limit, so one with a limit is forked anew.
            _row("new context, cold fork", sandbox, "1+1", bound=0.3, memory="8GiB"),
            _row("new context, kept ready", sandbox, "1+1", bound=0.1),
            _row("new context, first cell imports science", sandbox, SCIENCE, bound=0.12, rounds=12),
            _memory_row(sandbox),
        ]


def _row(
    name: str, sandbox: Sandbox, code: str, *, bound: float, rounds: int = 20, memory: str | None = None
) -> Row:
    def ours() -> float:
        begin = time.perf_counter()
        context = sandbox.create_context(cwd=".", memory=memory)
        context.run_code(code)
        seconds = time.perf_counter() - begin
        context.delete()
        time.sleep(PAUSE_S)
        return seconds

    def theirs() -> float:
        begin = time.perf_counter()
        with PlainKernel() as kernel:
            kernel.run(code)
            seconds = time.perf_counter() - begin
        time.sleep(PAUSE_S)
        return seconds

    return Row(
        name=f"{name} / a plain kernel", ours=ours, theirs=theirs, bound=bound, rounds=rounds, warm_up=1
    )


def _memory_row(sandbox: Sandbox) -> Row:
    def ours() -> float:
        contexts = [sandbox.create_context(cwd=".") for _ in range(COMPANY)]
        for context in contexts:
            context.run_code(SCIENCE)
        sizes = [float(context.run_code(PSS).value) for context in contexts]
        for context in contexts:
            context.delete()
        time.sleep(PAUSE_S)
        return _megabytes(sizes)

    def theirs() -> float:
        with ExitStack() as held:
            kernels = [held.enter_context(PlainKernel()) for _ in range(COMPANY)]
            for kernel in kernels:
                kernel.run(SCIENCE)
            sizes = [float(kernel.run(PSS)) for kernel in kernels]
        return _megabytes(sizes)

    name = f"PSS of each of {COMPANY} contexts with science"
    return Row(name=name, ours=ours, theirs=theirs, bound=0.4, rounds=5, warm_up=0, quantity="MB")


def _megabytes(kilobytes: list[float]) -> float:
    return sum(kilobytes) / len(kilobytes) / 1000


class PlainKernel:
    """A kernel as jupyter_client starts it, spoken to as soon as that can be. A context manager."""

    def __init__(self, kernel_name: str = "python3") -> None:
        self._manager: Any = KernelManager(kernel_name=kernel_name)
        quiet = ["--log-level=ERROR"] if kernel_name == "python3" else []  # options of ipykernel
        self._manager.start_kernel(extra_arguments=quiet)
        self._client: Any = self._manager.client()
        self._client.start_channels(hb=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def run(self, code: str) -> str:
        """Return the text of the code's last value, which comes with the reply: a first result has no welcome."""
        request = self._client.execute(code, user_expressions={"value": "_"})
        while (reply := self._client.get_shell_msg(timeout=TIMEOUT_S))["parent_header"]["msg_id"] != request:
            continue
        value = reply["content"]["user_expressions"]["value"]
        return str(value.get("data", {}).get("text/plain", ""))
