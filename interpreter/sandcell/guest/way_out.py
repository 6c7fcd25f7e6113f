"""The sandbox's way out, as its guest knows it: which hosts it may reach, and what was refused.

The guest decides nothing here. Proxy or slirp4netns are outside, where its engine changes the list.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from typing import TYPE_CHECKING, Any, Self

from sandcell_container.network import kind_of
from sandcell_container.packet_log import LONGEST, Destination, read_destinations

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.spec import Network

__all__ = ["WayOut"]

_LONGEST = 4096
_MOST_TOLD = 200  # different addresses: user code may try as many as it likes


class WayOut:
    """An async context manager: inside, `on_refused` is called with the words for each host that was refused, once.

    `network` is what the sandbox may reach; whoever hears that it was changed replaces it.
    """

    def __init__(self, boot: GuestBoot, on_refused: Callable[[str], None]) -> None:
        self.network: Network = boot.network
        self._readers = {
            descriptor: read
            for descriptor, read in ((boot.way_fd, self._read), (boot.refusals_fd, self._read_packets))
            if descriptor is not None
        }
        self._on_refused = on_refused
        self._told = set[Destination]()

    async def __aenter__(self) -> Self:
        for descriptor, read in self._readers.items():
            os.set_blocking(descriptor, False)
            asyncio.get_running_loop().add_reader(descriptor, read, descriptor)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for descriptor in self._readers:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _read(self, descriptor: int) -> None:
        """Take a word of the proxy, or its end."""
        said = os.read(descriptor, _LONGEST)
        if not said:  # it has ended: there is no way out any more
            asyncio.get_running_loop().remove_reader(descriptor)
            what = "proxy" if kind_of(self.network) == "list" else "slirp4netns"
            self._on_refused(f"every host: the {what} of the sandbox has ended")
            return
        refused: dict[str, Any] = json.loads(said)
        self._on_refused(str(refused["message"]))

    def _read_packets(self, descriptor: int) -> None:
        """Take what the packet filter of an open network has refused."""
        try:
            told = os.read(descriptor, LONGEST)
        except OSError as failed:
            if failed.errno != errno.ENOBUFS:  # some were lost: as many as user code likes can come at once
                raise
            return
        for found in read_destinations(told):
            if found not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(found)
                self._on_refused(_words(found))


def _words(refused: Destination) -> str:
    item = f"{refused.address}:{refused.port}" if refused.port else str(refused.address)
    return (
        f"the sandbox may not reach {item}, which is not public, or this machine's own"
        f' (allow it from outside: update(network=["open", "{item}"]))'
    )
