"""The guest's life: from what an engine hands over to the end of the sandbox.

An engine calls `serve` in a process of its own that has entered the sandbox already; one that starts a program
instead runs `python -m sandcell.guest` with the same three things as descriptors.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from typing import TYPE_CHECKING

from sandcell.config import Config
from sandcell.context import Contexts
from sandcell.guest.app import make_server
from sandcell.guest.commands import Commands
from sandcell.guest.leases import Leases
from sandcell.guest.state import Guest
from sandcell_container.guest.files import Files
from sandcell_container.guest.session import Sessions
from sandcell_container.guest.spawn import Spawner

if TYPE_CHECKING:
    import socket

    from sandcell_container.guest.boot import GuestBoot

__all__ = ["serve"]

log = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FLUSH_S = 0.5  # what followers get to read the last news


def serve(boot: GuestBoot, listener: socket.socket, spawner: socket.socket) -> None:
    """Serve the sandbox until its end. Blocks.

    The end is: the last lease lapsed for longer than the grace, none came in time, nothing ran for as long as
    `idle_timeout`, SIGTERM, or the spawner's end of `spawner` was closed. Then all that runs in the sandbox is
    ended, and `listener` and `spawner` are closed.
    """
    config = Config.from_settings(boot.settings)
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    gc.freeze()  # what was imported before the fork is never garbage, and looking at it copies its pages
    with listener, spawner:
        reason = asyncio.run(_serve(boot, config, listener, spawner))
    log.info("ended sandbox=%s reason=%s", boot.sandbox_id, reason)
