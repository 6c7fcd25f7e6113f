"""What a run takes: time, processor, memory."""

from __future__ import annotations

import os
import resource
import time

__all__ = ["Meter", "PeakMemory"]

_KIB = 1024  # what Linux counts ru_maxrss in


class PeakMemory:
    """The most memory that this process has had since `forget`. Source: proc_pid_clear_refs(5), value 5."""

    def __init__(self) -> None:
        try:
            self._control = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:  # no /proc, or one that may not be written: the peak is that of the whole life so far
            self._control = -1

    def forget(self) -> None:
        if self._control >= 0:
            os.pwrite(self._control, b"5", 0)


class Meter:
    """Measures from when it is made. The processor's time and memory are the whole process's, other threads included."""

    def __init__(self, peak: PeakMemory) -> None:
        peak.forget()
        self._cpu_user, self._cpu_system, _, self._largest_child = _measure()
        self._started = time.perf_counter()

    def read(self) -> dict[str, float]:
        """Return `wall`, `cpu_user`, `cpu_system` in seconds, children that were waited for included, and
        `peak_memory` in bytes: of this process, or of a child that was larger than any before it."""
        wall = time.perf_counter() - self._started
        cpu_user, cpu_system, own_peak, largest_child = _measure()
        peak = max(own_peak, largest_child) if largest_child > self._largest_child else own_peak
        return {
            "wall": wall,
            "cpu_user": cpu_user - self._cpu_user,
            "cpu_system": cpu_system - self._cpu_system,
            "peak_memory": peak * _KIB,
        }


def _measure() -> tuple[float, float, int, int]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        own.ru_utime + children.ru_utime,
        own.ru_stime + children.ru_stime,
        own.ru_maxrss,
        children.ru_maxrss,
    )
