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
from importlib.metadata import version
from typing import TYPE_CHECKING

from sandcell.config import Config
from sandcell.context import Contexts
from sandcell.guest.app import make_server
from sandcell.guest.commands import Commands
from sandcell.guest.fronts import Fronts, Rooms
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


async def _serve(boot: GuestBoot, config: Config, listener: socket.socket, spawner_end: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    leases = Leases(
        epoch=boot.epoch,
        boot_deadline=config.start_timeout,
        grace=boot.grace,
        idle_timeout=boot.idle_timeout,
        keep=boot.on_release == "keep",
    )
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, leases.stop, signal.Signals(number).name)
    async with Spawner(spawner_end) as spawner, asyncio.TaskGroup() as group:
        gone = group.create_task(_stop_when_gone(spawner, leases))
        async with (
            Contexts(spawner, boot, config) as contexts,
            Sessions(spawner, boot, config) as sessions,
        ):
            rooms = Rooms(contexts=contexts, executions=contexts.executions, sessions=sessions)
            async with Fronts(rooms, epoch=boot.epoch, version=version("sandcell"), config=config) as fronts:
                guest = Guest(
                    boot=boot,
                    config=config,
                    leases=leases,
                    contexts=contexts,
                    executions=contexts.executions,
                    commands=Commands(spawner, boot, config),
                    files=Files(spawner, boot),
                    fronts=fronts,
                    group=group,
                    started_at=time.time(),
                )
                reason = await _listen(guest, listener)
        gone.cancel()
    return reason


async def _listen(guest: Guest, listener: socket.socket) -> str:
    """Answer on `listener` until the end has come and everyone has been told; returns why."""
    server = make_server(guest)
    listener.settimeout(0.0)
    server.add_socket(listener)
    log.info("serving sandbox=%s", guest.boot.sandbox_id)
    try:
        return await guest.leases.over()
    finally:
        server.stop()
        await server.close_all_connections()
        guest.leases.close()


async def _stop_when_gone(spawner: Spawner, leases: Leases) -> None:
    await spawner.gone()
    leases.stop("its spawner has ended")
