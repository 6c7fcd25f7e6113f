"""Processes of this machine, told apart from later ones that got the same number."""

from __future__ import annotations

import math
import os
import select
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = ["OsProcess", "await_ends", "boot_id", "end_processes", "signal_processes"]


@dataclass(frozen=True, slots=True)
class OsProcess:
    """One process for good: `started` is its start in clock ticks since boot, so a reused `pid` differs."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> OsProcess:
        """Return the process that has `pid` now.

        Raises:
            ProcessLookupError: there is none.
        """
        return cls(pid, _started(pid))

    def open(self) -> int | None:
        """Return a pidfd of this very process, None when it is gone. The caller closes it."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        try:
            # Read after the open: if the number was given away before it, the start differs.
            if _started(self.pid) == self.started:
                return handle
        except ProcessLookupError:
            pass  # it ended between the two calls
        os.close(handle)
        return None


def boot_id() -> str:
    """Return what tells this boot of the machine from every other: pids and their starts mean nothing beyond it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def await_ends(processes: Iterable[OsProcess], *, timeout: float | None) -> list[OsProcess]:
    """Wait until `processes` have ended, `timeout` seconds at most, None for ever; returns those still there."""
    with _opened(processes) as handles:
        return [handles[handle] for handle in _wait(handles, timeout)]


def end_processes(processes: Iterable[OsProcess], *, timeout: float) -> list[OsProcess]:
    """Kill `processes` and wait for their ends, `timeout` seconds at most; returns those still there."""
    with _opened(processes) as handles:
        for handle in handles:
            _send(handle, signal.SIGKILL)
        return [handles[handle] for handle in _wait(handles, timeout)]


def signal_processes(processes: Iterable[OsProcess], number: int) -> None:
    """Send a signal to those of `processes` that are there."""
    with _opened(processes) as handles:
        for handle in handles:
            _send(handle, number)


@contextmanager
def _opened(processes: Iterable[OsProcess]) -> Generator[dict[int, OsProcess]]:
    handles = {handle: process for process in processes if (handle := process.open()) is not None}
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def _wait(handles: Iterable[int], timeout: float | None) -> set[int]:
    left = set(handles)
    poll = select.poll()
    for handle in left:
        poll.register(handle, select.POLLIN)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while left and (rest := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(None if timeout is None else rest * 1000):
            poll.unregister(handle)
            left.discard(handle)
    return left


def _send(handle: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass  # it ended by itself


def _started(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    # The name, in parentheses, may hold anything, blanks and parentheses too. Source: proc(5), field 22.
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
