"""The child of the zygote that is a sandbox's way out: a filtering proxy that stays in the host's network.

Its listening socket is one of the sandbox's loopback: the guest, which is in there, makes it and hands it over by the pair
of sockets between both. By the same pair the guest hears of what was refused. The proxy ends with the guest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import socket
import sys
import traceback
from typing import NamedTuple, NoReturn

from sandcell_container.descriptors import raise_limit
from sandcell_container.engines import namespaces
from sandcell_container.engines.launcher import take_identity
from sandcell_container.network import PROXY_PORT
from sandcell_container.policy import Policy
from sandcell_container.proxy import Proxy, Refused, resolve

__all__ = ["ProxySide", "become_proxy", "hand_over_listener", "keep_only", "serve_proxy", "take_descriptor"]

_log = logging.getLogger(__name__)
_BACKLOG = 128
_MESSAGE = 4096
_HIGHEST = 65536  # a descriptor


class ProxySide(NamedTuple):
    """The proxy's descriptors: its end of the pair that it shares with the guest, the list of hosts, the sandbox's log."""

    way: int
    policy: int
    log: int


def become_proxy(side: ProxySide, *, identity: int | None, parent: int) -> NoReturn:
    """Be the proxy of a sandbox until its guest has gone. As root it takes the `identity` of the sandbox: it needs no right
    but to connect. `parent` is the zygote's pid."""
    code = 1
    try:
        namespaces.tie_to_parent(parent)
        namespaces.leave_keyring()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        side = keep_only(side)
        if identity is not None:
            take_identity(identity)
            namespaces.tie_to_parent(parent)
        namespaces.hide_from_peers()
        with socket.socket(fileno=side.way) as way:
            listener = take_descriptor(way)
            if listener is not None:  # else the sandbox did not come up
                serve_proxy(way, socket.socket(fileno=listener), side.policy)
        code = 0
    except Exception:  # noqa: BLE001 -- the outermost loop of this process: the log is all that is left to tell
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def hand_over_listener(way: socket.socket) -> None:
    """Make the proxy's listening socket in the network of this process, and give it to the proxy. Called by the guest, before
    user code runs: nobody else can have the port then."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", PROXY_PORT))
        listener.listen(_BACKLOG)
        socket.send_fds(way, [b"listener"], [listener.fileno()])


def take_descriptor(way: socket.socket) -> int | None:
    """Return what `hand_over_listener` sends; None where the other end of `way` is closed without."""
    _, descriptors, _, _ = socket.recv_fds(way, _MESSAGE, 1)
    return descriptors[0] if descriptors else None


def serve_proxy(way: socket.socket, listener: socket.socket, policy: int) -> None:
    """Be the proxy that accepts on `listener` until the other end of `way`, which hears of what is refused, has gone. `policy` is
    open on the list: see `policy`. Blocks."""
    raise_limit()  # each connection is two
    with listener:
        asyncio.run(_serve(way, listener, Policy(policy)))


def keep_only(side: ProxySide) -> ProxySide:
    """Close all descriptors but those of `side`, which get the numbers from 3 on; output goes to the log."""
    above = max(side) + 16
    for at, descriptor in enumerate(side):
        os.dup2(descriptor, above + at)
    for at in range(len(side)):
        os.dup2(above + at, 3 + at, inheritable=False)
    kept = ProxySide(*range(3, 3 + len(side)))
    os.closerange(3 + len(side), _HIGHEST)
    for output in (1, 2):
        os.dup2(kept.log, output)
    return kept


async def _serve(way: socket.socket, listener: socket.socket, policy: Policy) -> None:
    """Serve until the guest has gone."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    way.settimeout(0)
    loop.add_reader(way, gone.set)  # it says nothing more: this is its end

    def tell(refused: Refused) -> None:
        try:
            way.send(json.dumps(refused._asdict()).encode(), socket.MSG_NOSIGNAL)
        except OSError as failed:  # it does not keep up, or has gone
            _log.warning("a refusal was not told host=%s: %s", refused.host, failed)

    proxy = Proxy(policy.read, resolve=resolve, tell=tell)
    server = await proxy.listen(listener)
    await gone.wait()
    server.close()
