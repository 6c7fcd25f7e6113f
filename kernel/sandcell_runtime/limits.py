"""A limit on the memory of this process, as the user code in it is to have it."""

from __future__ import annotations

import resource

__all__ = ["limit_memory"]


def limit_memory(wanted: int) -> None:
    """Let this process, and each that it starts, have `wanted` bytes of memory of its own. Not to be taken back.

    RLIMIT_DATA counts what is reserved, such as 8 MiB for the stack of each thread, and not what is used. What this
    process has reserved without using it comes on top, so that an interpreter's own threads are nobody's loss.
    """
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    reserved, used = (int(fields[name].split()[0]) * 1024 for name in ("VmData", "RssAnon"))
    limit = wanted + max(reserved - used, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
