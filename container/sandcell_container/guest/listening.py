"""Which TCP ports of the loopback somebody listens on, as the kernel tells: nothing is connected to.

Source: proc_net_tcp in the kernel's Documentation/networking.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["listening_ports"]

# `/proc/self` leads nowhere for a process that is not in the PID namespace of its `/proc`, as the guest of the engine
# `local`; the first process there has the same network.
_PROCESSES = ("self", "1")
_LISTENING = "0A"
_LINE = re.compile(
    r"\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:0000 ([0-9A-F]{2}) ", re.MULTILINE
)
_MAPPED = "0000000000000000FFFF0000"  # before an IPv4 address, in the kernel's order of bytes
_ANY_OR_LOOPBACK = re.compile(r"0{8}|0100007F|0{32}|0{24}01000000")


def listening_ports(proc: Path = Path("/proc")) -> frozenset[int]:
    """Return the ports on which a connection to 127.0.0.1 or ::1 would be taken; none where the kernel does not say."""
    tables = next(filter(None, (_read(proc / process / "net") for process in _PROCESSES)), list[str]())
    return frozenset(
        int(port, 16)
        for table in tables
        for address, port, state in _LINE.findall(table)
        if state == _LISTENING and _ANY_OR_LOOPBACK.fullmatch(address.removeprefix(_MAPPED))
    )


def _read(folder: Path) -> list[str]:
    found = list[str]()
    for name in ("tcp", "tcp6"):
        try:
            found.append((folder / name).read_text())
        except OSError:
            continue  # no such process here, or no IPv6
    return found
