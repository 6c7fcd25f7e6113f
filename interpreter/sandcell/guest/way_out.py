"""The sandbox's way out, as its guest knows it: which hosts it may reach, and what its proxy has refused.

The guest decides nothing here. Proxy or slirp4netns are outside, where its engine changes the list.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, Self

from sandcell_container.network import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.spec import Network

__all__ = ["WayOut"]

_LONGEST = 4096


class WayOut:
    """An async context manager: inside, `on_refused` is called with the proxy's words for each host that it refused.

    `network` is what the sandbox may reach; whoever hears that it was changed replaces it.
    """

    def __init__(self, boot: GuestBoot, on_refused: Callable[[str], None]) -> None:
        self.network: Network = boot.network
        self._descriptor = boot.way_fd
        self._on_refused = on_refused

    async def __aenter__(self) -> Self:
        if self._descriptor is not None:
            os.set_blocking(self._descriptor, False)
            asyncio.get_running_loop().add_reader(self._descriptor, self._read, self._descriptor)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _read(self, descriptor: int) -> None:
        said = os.read(descriptor, _LONGEST)
        if not said:  # it has ended: there is no way out any more
            asyncio.get_running_loop().remove_reader(descriptor)
            what = "proxy" if kind_of(self.network) == "list" else "slirp4netns"
            self._on_refused(f"every host: the {what} of the sandbox has ended")
            return
        refused: dict[str, Any] = json.loads(said)
        self._on_refused(str(refused["message"]))
