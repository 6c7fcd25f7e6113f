"""The guest's life: from what an engine hands over to the end of the sandbox.

An engine calls `serve` in a process of its own that has entered the sandbox already; one that starts a program
instead runs `python -m sandcell.guest` with the same three things as descriptors.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import resource
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sandcell.activity import Activity, Deed
from sandcell.config import Config
from sandcell.context import Contexts, Executions
from sandcell.fork_server import ServerPlan
from sandcell.fork_starter import ForkStarter
from sandcell.guest.app import make_server
from sandcell.guest.cell_work import CellWork
from sandcell.guest.commands import Commands
from sandcell.guest.connections import Connections
from sandcell.guest.desk import Desk
from sandcell.guest.env_room import EnvRoom
from sandcell.guest.file_work import FileWork
from sandcell.guest.followers import Followers
from sandcell.guest.former import RESTARTED
from sandcell.guest.fronts import Fronts, Rooms
from sandcell.guest.leases import LOST_SPAWNER, Leases, end_for
from sandcell.guest.line_work import LineWork
from sandcell.guest.ports import Ports
from sandcell.guest.processes import Processes
from sandcell.guest.quick_exec import QuickExec
from sandcell.guest.session_room import SessionRoom
from sandcell.guest.state import Guest
from sandcell.guest.way_out import WayOut
from sandcell.kernelspecs import KernelSpecs, folders_of
from sandcell.overflow import ResultFiles
from sandcell.shell_kernel import ShellMaker
from sandcell.speakers import ForeignKernels, Speakers
from sandcell.starter import KernelStarter, PlainStarter
from sandcell.tool_room import ToolRoom
from sandcell.version import VERSION
from sandcell_container.descriptors import raise_limit
from sandcell_container.guest import spawner as spawner_program
from sandcell_container.guest.files import Files
from sandcell_container.guest.masks import MaskingFormatter, Masks, masks_of
from sandcell_container.guest.meter import Meter
from sandcell_container.guest.process_table import ProcessTable
from sandcell_container.guest.session import Sessions
from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.terminal import Terminals
from sandcell_container.guest.user_env import UserEnv
from sandcell_container.guest.user_worker import UserWorker
from sandcell_container.guest.watch import Watches
from sandcell_container.memo import Memo

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from sandcell_container.guest.boot import GuestBoot

__all__ = ["serve"]

log = logging.getLogger(__name__)

# What a sandbox may have, for a fork server and a kernel that wait there: they are not to use up what user code was given.
_ROOM_TO_FORK = {"memory": 512 * 2**20, "pids": 100}
_ROOM_TO_PRELOAD = {"memory": 2**30}
_SHARE_OF_FILES = 4  # one descriptor in so many is for a connection: most requests need some more
# Of the loop, from bytes that were read to a handler that refuses them: a request that was taken and not answered leaves
# its client without knowing what became of it.
_TURNS_TO_REFUSE = 10
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(boot: GuestBoot, listener: socket.socket, spawner: socket.socket) -> None:
    """Serve the sandbox until its end. Blocks.

    The end is: the last lease lapsed for longer than the grace, none came in time, nothing ran for as long as
    `idle_timeout`, SIGTERM, or the spawner's end of `spawner` was closed. Then all that runs in the sandbox is
    ended, and `listener` and `spawner` are closed.
    """
    config = Config.from_settings(boot.settings)
    logging.basicConfig(level=config.log_level, format=_LOG_FORMAT)
    masks = masks_of(boot.secrets)
    if masks is not None:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(MaskingFormatter(_LOG_FORMAT, masks))
    raise_limit()  # each process that runs has pipes here
    gc.freeze()  # what was imported before the fork is never garbage, and looking at it copies its pages
    given = Given(boot, config, Memo(boot.memo_fd), Meter(boot), masks)
    with listener, spawner:
        reason = asyncio.run(_serve(given, Ends(listener, spawner)))
    log.info("ended sandbox=%s reason=%s", boot.sandbox_id, reason)


class Given(NamedTuple):
    """What the rooms of the guest are told and may tell."""

    boot: GuestBoot
    config: Config
    memo: Memo
    meter: Meter
    masks: Masks | None


class Ends(NamedTuple):
    """The guest's sockets: where it listens, and its end of the pair that it shares with the spawner."""

    listener: socket.socket
    spawner: socket.socket


async def _serve(given: Given, ends: Ends) -> str:
    async with AsyncExitStack() as held:
        spawner = Spawner(
            ends.spawner, deadline_s=given.config.spawn_timeout, oom_kills=given.meter.oom_kills
        )
        await held.enter_async_context(spawner)
        group = await held.enter_async_context(asyncio.TaskGroup())
        guest = await _furnish(held, given, spawner, group)
        watching = group.create_task(_stop_when_gone(spawner, guest.leases))
        held.callback(watching.cancel)
        for number in _STOP_SIGNALS:
            name = signal.Signals(number).name
            asyncio.get_running_loop().add_signal_handler(number, guest.leases.stop, name)
        reason = await _listen(guest, ends.listener)
        given.memo.note_end(end_for(reason))
        return reason


async def _furnish(held: AsyncExitStack, given: Given, spawner: Spawner, group: asyncio.TaskGroup) -> Guest:
    """Make the rooms of the guest; `held` gives them back, the last one first."""
    desk, leases, tools = await _open_desk(held, given, spawner)
    boot, config = desk.boot, given.config
    watches = Watches(desk.files, boot.epoch, memory=config.journal_memory, linger=config.watch_linger)
    return Guest(
        **desk.rooms,
        masks=given.masks,
        config=config,
        leases=leases,
        tools=tools,
        sessions=SessionRoom(desk.shells, desk.processes, desk.files, boot, config, on_begin=desk.activity),
        watches=await held.enter_async_context(watches),
        fronts=await held.enter_async_context(_make_fronts(desk, given)),
        followers=await held.enter_async_context(Followers()),
        group=group,
    )


async def _open_desk(held: AsyncExitStack, given: Given, spawner: Spawner) -> tuple[Desk, Leases, ToolRoom]:
    """Make what cells reach as well as clients."""
    env, given = _with_env(given)
    boot, config, memo, meter, _ = given
    worker = await held.enter_async_context(UserWorker(spawner, boot.python))
    files = await held.enter_async_context(Files(worker, boot.workdir))
    shells = await held.enter_async_context(Sessions(spawner, boot, config, files))
    activity = Activity()
    tools = await held.enter_async_context(ToolRoom(config, grace=boot.grace))
    rooms = _CodeRooms(files=files, sessions=shells, tools=tools, activity=activity)
    contexts, executions = await _open_code(held, given, spawner, rooms)
    terminals, processes = _open_jobs(held, given, spawner, worker, activity)
    leases = _make_leases(boot, config, (executions, shells, processes, terminals))
    held.callback(leases.close)
    desk = Desk(
        env=EnvRoom(env, contexts, shells),
        way_out=await held.enter_async_context(WayOut(boot, leases.note_refused)),
        ports=await held.enter_async_context(Ports(memo, most=config.max_port_connections)),
        boot=boot,
        memo=memo,
        meter=meter,
        contexts=contexts,
        executions=executions,
        shells=shells,
        commands=Commands(spawner, boot, config, files, on_begin=activity),
        processes=processes,
        files=files,
        terminals=terminals,
        table=ProcessTable(spawner, worker),
        spawner=spawner,
        activity=activity,
        started_at=time.time(),
    )
    return desk, leases, tools


def _with_env(given: Given) -> tuple[UserEnv, Given]:
    """Return the environment of user code, and `given` with it: whoever starts something sees what was changed."""
    env = UserEnv(given.boot.base_env, given.memo)
    return env, given._replace(boot=replace(given.boot, base_env=env))


def _open_jobs(
    held: AsyncExitStack, given: Given, spawner: Spawner, worker: UserWorker, activity: Activity
) -> tuple[Terminals, Processes]:
    """Make what outlives requests."""
    boot, config = given.boot, given.config
    opener = None if boot.user_uid is None else worker
    terminals = Terminals(spawner, opener, boot.epoch, config, masks=given.masks)
    held.callback(terminals.close)
    processes = Processes(spawner, boot, config, on_begin=activity)
    held.callback(processes.close)
    return terminals, processes


class _CodeRooms(NamedTuple):
    """What the rooms are made with that run code."""

    files: Files
    sessions: Sessions
    tools: ToolRoom
    activity: Activity


async def _open_code(
    held: AsyncExitStack, given: Given, spawner: Spawner, rooms: _CodeRooms
) -> tuple[Contexts, Executions]:
    """Make what runs code."""
    boot, config, memo, _, masks = given
    starter = await _make_starter(held, given, spawner)
    contexts = Contexts(
        starter,
        config=config,
        env=boot.base_env,
        workdir=boot.workdir,
        memory=boot.limits.get("memory"),
        why_fresh=lambda name: RESTARTED if memo.is_lost("context", name) else None,
        speakers=_make_speakers(boot, spawner, rooms.files, rooms.sessions),
        masks=masks,
    )
    contexts = await held.enter_async_context(contexts)

    def note_run(deed: Deed) -> None:
        memo.note_made("run", deed.id)
        rooms.activity(deed)

    executions = Executions(
        contexts,
        config=config,
        epoch=boot.epoch,
        workdir=boot.workdir,
        default_timeout=boot.default_timeout,
        tools=rooms.tools,
        result_files=ResultFiles(f"{boot.scratch_dir}/results", rooms.files),
        on_begin=note_run,
        masks=masks,
    )
    held.callback(executions.close)
    return contexts, executions


def _make_fronts(desk: Desk, given: Given) -> Fronts:
    rooms = Rooms(
        contexts=desk.contexts,
        executions=desk.executions,
        worker=CellWork(desk, LineWork(desk, FileWork(desk.files))),
        has_network=desk.boot.network != "none",
        masks=given.masks,
        note_made=desk.memo.note_made,
        is_lost=desk.memo.is_lost,
    )
    return Fronts(rooms, epoch=desk.boot.epoch, version=VERSION, config=given.config)


async def _make_starter(held: AsyncExitStack, given: Given, spawner: Spawner) -> KernelStarter:
    boot, config, memo = given.boot, given.config, given.memo
    plain = PlainStarter(
        spawner, python=boot.python, runtime_dir=boot.runtime_dir, timeout=config.kernel_start_timeout
    )
    if not config.fork_linger or not _has_room(boot, _ROOM_TO_FORK):
        return plain
    plan = ServerPlan.of(boot, spawner_program.__file__)
    preload = config.preloaded if _has_room(boot, _ROOM_TO_PRELOAD) else ()
    starter = await held.enter_async_context(
        ForkStarter(spawner, plan, plain, preload=preload, linger=config.fork_linger)
    )
    # What ran code before its stop was most likely started for more of it.
    if config.fork_start == "ahead" or memo.has_lost("context"):
        starter.start_soon()
    return starter


def _make_speakers(boot: GuestBoot, spawner: Spawner, files: Files, sessions: Sessions) -> Speakers:
    specs = KernelSpecs(files, folders_of(boot.base_env))
    return Speakers(
        foreign=ForeignKernels(spawner, files, specs),
        shells=ShellMaker(sessions, workdir=boot.workdir),
    )


def _has_room(boot: GuestBoot, needed: dict[str, int]) -> bool:
    return all((boot.limits.get(name) or math.inf) >= amount for name, amount in needed.items())


class _Room(Protocol):
    """Something in which user code runs."""

    def last_active(self) -> float:
        """Return when some of it last ran, in seconds since the epoch: now, where some does."""
        ...


def _make_leases(boot: GuestBoot, config: Config, rooms: Sequence[_Room]) -> Leases:
    def quiet_for() -> float:
        return time.time() - max(room.last_active() for room in rooms)

    return Leases(
        epoch=boot.epoch,
        boot_deadline=config.start_timeout,
        grace=boot.grace,
        idle_timeout=boot.idle_timeout,
        keep=boot.on_release == "keep",
        again=boot.starts > 1,
        warning=config.cull_warning,
        quiet_for=quiet_for,
    )


async def _listen(guest: Guest, listener: socket.socket) -> str:
    """Answer on `listener` until the end has come and everyone has been told; returns why."""
    server = make_server(guest)
    config = guest.config
    most = min(config.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_FILES)
    try:
        with Connections(
            listener, server, most=most, patience=config.request_timeout, shortcut=QuickExec(guest)
        ):
            log.info("serving sandbox=%s", guest.boot.sandbox_id)
            reason = await guest.leases.over()
            for _ in range(_TURNS_TO_REFUSE):
                await asyncio.sleep(0)
            return reason
    finally:
        await server.close_all_connections()


async def _stop_when_gone(spawner: Spawner, leases: Leases) -> None:
    await spawner.gone()
    leases.stop(LOST_SPAWNER)
