"""What is known of a sandbox, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandcell_kernel.tables import describe_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["isolation_in_words", "limits_in_words"]

_OWN = {
    "pid": "processes",
    "net": "network",
    "mount": "files",
    "user": "users",
    "ipc": "shared memory",
    "uts": "host name",
    "cgroup": "control group",
}


def isolation_in_words(facts: Mapping[str, Any]) -> str:
    """Return what of a sandbox is its own, by the facts of `info()`; what is neither true nor false there is not known."""
    own = [words for name, words in _OWN.items() if facts.get(name) is True]
    shared = [words for name, words in _OWN.items() if facts.get(name) is False]
    said = [
        f"its own {', '.join(own)}" if own else "",
        f"those of the machine: {', '.join(shared)}" if shared else "",
        "system calls are filtered" if facts.get("seccomp") else "",
        f"user {facts['uid']} of the machine" if "uid" in facts else "",
        f"by {facts['runtime']}" if facts.get("runtime") not in {None, "none"} else "",
    ]
    return "; ".join(filter(None, said))


def limits_in_words(limits: Mapping[str, Any]) -> str:
    """Return the limits that there are, "" where there is none. Those of `info()`: cores, bytes and a number of processes."""
    said = [
        f"{limits['cpus']:g} cpus" if limits.get("cpus") is not None else "",
        f"{describe_bytes(limits['memory'])} of memory" if limits.get("memory") is not None else "",
        f"{describe_bytes(limits['disk'])} of disk" if limits.get("disk") is not None else "",
        f"{limits['pids']} processes" if limits.get("pids") is not None else "",
    ]
    return ", ".join(filter(None, said))
