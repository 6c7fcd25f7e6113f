"""The list of hosts that a running sandbox may reach, where its engine can change it and its proxy reads it: a file.

Each change adds a line, and the last whole line counts, so that a reader never sees half of a list. Nobody but the
engine's user can write it; the proxy has it open for reading.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from sandcell_container.network import Allowed, items_of, kind_of, parse_allowed

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell_container.spec import Network

__all__ = ["Policy", "add_policy", "open_policy"]

_NAME = "network"
_NOTHING = Allowed(())


def open_policy(folder: Path, network: Network) -> int:
    """Begin the file of a sandbox that starts; returns a descriptor to read it by, which the caller closes."""
    path = folder / _NAME
    path.unlink(missing_ok=True)  # a proxy of before that is just ending keeps its own
    add_policy(folder, network)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def add_policy(folder: Path, network: Network) -> None:
    """Have the proxy go by `network` from its next connection on. What is no list allows nothing."""
    line = json.dumps(items_of(network) if kind_of(network) == "list" else []).encode() + b"\n"
    handle = os.open(folder / _NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(line)


class Policy:
    """The proxy's side of it. `descriptor` stays the caller's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = 0
        self._allowed = _NOTHING

    def read(self) -> Allowed:
        """Return the list that counts now; nothing is allowed before there is one."""
        size = os.fstat(self._descriptor).st_size
        if size > self._end:
            text = os.pread(self._descriptor, size - self._end, self._end)
            whole = text.rpartition(b"\n")[0]
            if whole:
                self._allowed = parse_allowed(json.loads(whole.rpartition(b"\n")[2]))
                self._end += len(whole) + 1
        return self._allowed
