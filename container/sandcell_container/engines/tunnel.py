"""The child of the zygote that is the way out of a sandbox with the network "open": it becomes slirp4netns.

slirp4netns stays in the host's network, where it makes each connection of user code anew as an ordinary program does. Before
it comes up, the sandbox's own network namespace gets a packet filter, which only the owner of that namespace could change:
user code lives in a user namespace below. It ends with the guest, by whose pair of sockets it is told to begin.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import shutil
import socket
import stat
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from sandcell_container.engines import namespaces
from sandcell_container.engines.bwrap import Cause
from sandcell_container.engines.launch import Tunnel
from sandcell_container.engines.launcher import take_identity
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import items_of
from sandcell_container.packet_filter import ruleset
from sandcell_container.packet_log import GROUP, open_packet_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.engines.egress import ProxySide
    from sandcell_container.spec import Network

__all__ = [
    "FOLDERS",
    "RESOLVER",
    "TunnelError",
    "become_slirp",
    "become_tunnel",
    "explain",
    "find_tunnel",
    "open_tunnel",
    "set_filter",
]

RESOLVER = "10.0.2.3"  # of slirp4netns: it asks the resolver of the host
_DEVICE, _DEVICE_NUMBER = "/dev/net/tun", os.makedev(10, 200)
FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"  # which the PATH of an ordinary user often has not
_MESSAGE = 4096
_MOST_FILES = 1024  # each connection of user code is one, with buffers of this machine's memory
_OPTIONS = (
    "--configure",
    "--mtu=65520",
    "--disable-host-loopback",
    "--enable-sandbox",
    "--enable-seccomp",
    "--netns-type=path",
)
_UP = b"1"  # what slirp4netns writes when the network is there
_FILTER_FAILED = "sandcell: the packet filter could not be made"
_TUNNEL_FAILED = "sandcell: slirp4netns did not start"


class TunnelError(Exception):
    """The way out did not come up; the words are for the host program."""


def find_tunnel(network: Network, *, as_root: bool, engine: str = "local") -> Tunnel:
    """Return what it takes to open `network` for a sandbox of `engine`, the programs of this machine.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): one is missing, or the device. The hint is the remedy.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:{FOLDERS}"
    found = {name: shutil.which(name, path=path) for name in ("slirp4netns", "nft")}
    slirp, nft = found["slirp4netns"], found["nft"]
    if slirp is None or nft is None:
        missing = " and ".join(name for name, where in found.items() if where is None)
        raise _unavailable(
            engine,
            f"{missing} is not installed",
            "install slirp4netns and nftables: apt install slirp4netns nftables",
        )
    try:
        mode = os.stat(_DEVICE).st_mode
    except FileNotFoundError:
        raise _unavailable(engine, f"there is no {_DEVICE}", "load its module: modprobe tun") from None
    is_open = stat.S_IMODE(mode) & 0o006 == 0o006
    if not (is_open or as_root or os.access(_DEVICE, os.R_OK | os.W_OK)):
        raise _unavailable(engine, f"this user may not open {_DEVICE}", f"let everybody: chmod 666 {_DEVICE}")
    return Tunnel(slirp=slirp, nft=nft, items=items_of(network), own_device=as_root and not is_open)


def explain(words: str) -> Cause | None:
    """Return what the `words` of a start that failed say about this machine, None where they say nothing of it."""
    if _FILTER_FAILED in words:
        return Cause("nft cannot make the packet filter", ("load its kernel module: modprobe nf_tables",))
    if _TUNNEL_FAILED in words:
        return Cause(
            "slirp4netns does not run here",
            ("let this program open /dev/net/tun, and make namespaces", "or list hosts: network=[...]"),
        )
    return None


def open_tunnel(way: socket.socket, init: int, timeout: float) -> int | None:
    """Have the sandbox whose first process is `init` connected. Called by the guest, before user code runs. Returns the
    descriptor of the log of what is refused, None where this kernel has none.

    Raises:
        TunnelError: there is no way out; the log has the words of the programs.
        TimeoutError: it did not come up in time.
    """
    way.send(json.dumps({"init": init}).encode())
    log: int | None = None
    while True:
        if not select.select([way], [], [], timeout)[0]:
            raise TimeoutError("the network did not come up in time")
        said, descriptors, _, _ = socket.recv_fds(way, _MESSAGE, 1)
        if said == _UP:
            return log
        if not descriptors:
            raise TunnelError(said.decode(errors="replace") or _TUNNEL_FAILED)
        log = descriptors[0]
        os.set_inheritable(log, False)


def become_tunnel(side: ProxySide, tunnel: Tunnel, *, identity: int | None, parent: int) -> NoReturn:
    """Wait for the guest's word, then be slirp4netns until it has gone. As root it takes the `identity` of the sandbox.
    `parent` is the zygote's pid. Never returns."""
    from sandcell_container.engines.egress import (
        keep_only,
    )  # the zygote has it; a host program would import a proxy

    try:
        namespaces.tie_to_parent(parent)
        namespaces.leave_keyring()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        side = keep_only(side)
        if identity is not None:
            if tunnel.own_device:
                namespaces.own_mounts()
                namespaces.own_device(_DEVICE, _DEVICE_NUMBER)
            take_identity(identity)
            namespaces.tie_to_parent(parent)
        with socket.socket(fileno=side.way) as way:
            _connect(way, tunnel, parent)
    except Exception:  # noqa: BLE001 -- the outermost loop of this process: the log is all that is left to tell
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def _connect(way: socket.socket, tunnel: Tunnel, parent: int) -> None:
    asked = way.recv(_MESSAGE)
    if not asked:
        return  # the sandbox did not come up
    opened = namespaces.open_network(int(json.loads(asked)["init"]))
    try:
        set_filter(tunnel, opened, told=way)
    except TunnelError as failed:
        _say(way, str(failed))
        return
    namespaces.enter_network(opened, owner_alone=True)
    namespaces.tie_to_parent(parent)
    # One to tell by that it is up, which it closes; one to see by that the guest has gone.
    become_slirp(tunnel, opened.network, ready=os.dup(way.fileno()), end=os.dup(way.fileno()))


def become_slirp(tunnel: Tunnel, network: int, *, ready: int, end: int) -> NoReturn:
    """Be slirp4netns for the network namespace `network`, a descriptor, with the rights over it that this process has: it says
    "1" by the socket `ready` when it is up, and ends when the other side of `end` is closed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MOST_FILES, _MOST_FILES))
    for kept in (ready, end, network):
        os.set_inheritable(kept, True)
    ends = [f"--ready-fd={ready}", f"--exit-fd={end}"]
    if tunnel.orders:
        ends.append(f"--api-socket={tunnel.orders}")
    os.execve(tunnel.slirp, [tunnel.slirp, *_OPTIONS, *ends, f"/proc/self/fd/{network}", "tap0"], {})


def set_filter(tunnel: Tunnel, opened: namespaces.OwnedNetwork, *, told: socket.socket | None = None) -> None:
    """Set the packet filter of a sandbox in its network namespace. Who is at the other end of `told` gets a log of what it
    refuses, where the kernel has one.

    Raises:
        TunnelError: it cannot be; standard error has the words of nft.
    """
    own = _own_addresses()
    logged, silent = (
        ruleset(tunnel.items, own=own, resolver=RESOLVER, log=group, published=tunnel.published)
        for group in (GROUP, None)
    )
    if told is not None and _run_nft(tunnel.nft, logged, opened, lambda: _hand_over_log(told)):
        return
    if not _run_nft(tunnel.nft, silent, opened, lambda: None):
        raise TunnelError(_FILTER_FAILED)


def _hand_over_log(told: socket.socket) -> None:
    with open_packet_log() as log:
        socket.send_fds(told, [b"log"], [log.fileno()])


def _run_nft(nft: str, rules: str, opened: namespaces.OwnedNetwork, prepare: Callable[[], None]) -> bool:
    """Have nft set `rules` in the network namespace, in a process of its own, after `prepare` there; returns whether it did."""
    text = os.memfd_create("rules")
    os.write(text, rules.encode())
    os.lseek(text, 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        try:
            namespaces.enter_network(opened)
            prepare()
            os.dup2(text, 0)
            os.execve(nft, [nft, "-f", "-"], {})
        finally:
            os._exit(127)
    os.close(text)
    return os.waitpid(pid, 0)[1] == 0


def _own_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine: what listens at one of them was often meant for the machine alone."""
    try:
        with open("/proc/net/fib_trie") as table:
            found = re.findall(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL", table.read())
    except FileNotFoundError:
        return []  # a kernel without routing tables has no addresses
    return sorted(set(found))


def _say(way: socket.socket, words: str) -> None:
    sys.stderr.write(f"{words}\n")
    way.send(words.encode())


def _unavailable(engine: str, reason: str, remedy: str) -> SandcellError:
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f'the engine {engine} cannot do network="open": {reason}',
        hint=f'{remedy}; or list what is to be reached: network=["pypi.org"], ["*"] for all public hosts',
        details={"field": "network"},
    )
