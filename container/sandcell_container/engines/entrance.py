"""The child of the zygote that becomes the guest: it waits for the spawner, enters the sandbox and serves."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sandcell_container.engines import namespaces
from sandcell_container.engines.egress import hand_over_listener
from sandcell_container.engines.imports import import_only_from
from sandcell_container.engines.launcher import take_identity
from sandcell_container.engines.tunnel import TunnelError, open_tunnel
from sandcell_container.guest.meter import open_group_files
from sandcell_container.os_process import OsProcess

if TYPE_CHECKING:
    from sandcell_container.engines.launch import Launch
    from sandcell_container.guest.boot import GuestBoot

__all__ = ["GuestSide", "serve"]

_MESSAGE = 65536


class GuestSide(NamedTuple):
    """The guest's descriptors: see `GUEST_DESCRIPTORS`."""

    reply: int
    listener: int
    lock: int
    log: int
    memo: int
    spawner: int
    status: int
    policy: int


class _StartError(Exception):
    """The sandbox did not come up; the words are for the host program."""


def serve(launch: Launch, side: GuestSide, *, launcher: int, parent: int, way: int | None) -> NoReturn:
    """Be the guest of `launch` until it ends; `launcher` is the pid of its bubblewrap, `parent` the zygote's, `way` its end
    of the pair that it shares with its proxy.

    Tells the host program by `side.reply`: {"running": [[pid, start], ...]} just before it serves, or {"failed": words,
    "late": whether the time of the start was over}.
    """
    code = 1
    try:
        namespaces.tie_to_parent(parent)
        namespaces.leave_keyring()
        _take_streams(side.log)
        code = _serve(launch, side, launcher=launcher, parent=parent, way=way)
    except Exception:  # noqa: BLE001 -- the outermost loop of this process: the log is all that is left to tell
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve(launch: Launch, side: GuestSide, *, launcher: int, parent: int, way: int | None) -> int:
    reply = socket.socket(fileno=side.reply)
    spawner = socket.socket(fileno=side.spawner)
    boot = _with_group(launch)
    try:
        _await_spawner(spawner, launch.timeout)
        processes = [OsProcess.of(launcher), OsProcess.of(os.getpid())]
        isolation = dict(boot.isolation)
        if launch.enter:
            init = _child_pid(side.status)
            processes.append(OsProcess.of(init))
            isolation |= _enter(launch, init, parent)
        refusals = None if way is None else _open_way(way, launch, processes[-1].pid)
    except (_StartError, TunnelError, OSError) as failed:
        reply.send(json.dumps({"failed": str(failed), "late": isinstance(failed, TimeoutError)}).encode())
        return 1
    namespaces.hide_from_peers()
    serve_sandbox = getattr(sys.modules[launch.module], launch.function)
    reply.send(json.dumps({"running": [[each.pid, each.started] for each in processes]}).encode())
    reply.close()
    boot = replace(boot, isolation=isolation, memo_fd=side.memo, way_fd=way, refusals_fd=refusals)
    serve_sandbox(boot, socket.socket(fileno=side.listener), spawner)
    return 0


def _with_group(launch: Launch) -> GuestBoot:
    """Open what the guest is to read of its sandbox's control group: files alone, as a folder would lead to the host's."""
    if launch.group is None:
        return launch.boot
    files = open_group_files(launch.group.version, launch.group.folders)
    isolation = {**launch.boot.isolation, "cgroup": bool(files)}
    return replace(launch.boot, isolation=isolation, group_version=launch.group.version, group_files=files)


def _await_spawner(spawner: socket.socket, timeout: float) -> None:
    """Wait until the spawner has said its first word, which is that it is ready, and leave that for the guest to read."""
    poll = select.poll()
    poll.register(spawner, select.POLLIN)
    if not poll.poll(timeout * 1000):
        raise TimeoutError("the spawner did not say that it is ready in time")
    if not spawner.recv(1, socket.MSG_PEEK):
        raise _StartError("the spawner ended before it was ready")


def _child_pid(status: int) -> int:
    """Read the pid of the sandbox's init from what bubblewrap has written by now."""
    said = os.read(status, _MESSAGE).decode()
    first: dict[str, Any] = json.JSONDecoder().raw_decode(said)[0]
    return int(first["child-pid"])


def _enter(launch: Launch, init: int, parent: int) -> dict[str, bool]:
    if launch.program.identity is not None:
        take_identity(launch.program.identity)
    own = namespaces.enter(init)
    namespaces.drop_privileges()
    namespaces.tie_to_parent(parent)
    import_only_from(launch.import_roots)
    return {"mount": own["mnt"], **{name: own[name] for name in ("pid", "net", "user", "ipc", "uts")}}


def _open_way(way: int, launch: Launch, init: int) -> int | None:
    """Have the proxy or the tunnel work; returns the descriptor of the log of what the tunnel refuses."""
    with socket.socket(fileno=os.dup(way)) as pair:
        if launch.tunnel is not None:
            return open_tunnel(pair, init, launch.timeout)
        hand_over_listener(pair)
        return None


def _take_streams(log: int) -> None:
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
