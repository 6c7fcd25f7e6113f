"""The way out of a container, by a process of this machine: a filtering proxy that accepts on a socket of the container's, or
with the network "open" slirp4netns, which connects the container's network; see `egress` and `tunnel`.

The entry hands socket or network over before user code runs, by a unix socket in the sandbox's folder, which stays
open as the guest's. The process belongs to the container and to no program: it ends when the guest's end closes.
"""

from __future__ import annotations

import importlib
import json
import os
import pwd
import resource
import select
import socket
import subprocess
import sys
import time
import traceback
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, NoReturn

from sandcell_container.engines import namespaces
from sandcell_container.engines.docker_publish import publish
from sandcell_container.engines.egress import serve_proxy, take_descriptor
from sandcell_container.engines.launch import Tunnel
from sandcell_container.engines.launcher import take_identity
from sandcell_container.engines.tunnel import RESOLVER, become_slirp, explain, find_tunnel, set_filter
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import kind_of
from sandcell_container.policy import open_policy
from sandcell_container.unix_address import listen_at

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from sandcell_container.engines.docker_folder import Folder
    from sandcell_container.spec import Network, SandboxSpec

__all__ = ["check_open", "main", "open_way", "write_resolver"]

_START = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.docker_way import main; main()"
)
_NOBODY = "nobody"
_OTHERWISE = 'list what is to be reached: network=["pypi.org"], ["*"] for all public hosts'
_NEEDED_LATER = ("concurrent.futures.thread", "encodings.idna")  # by the resolver
_STARTED = b"started"
_OPEN = b"1"  # as slirp4netns says it, too
_TAKEN = b"taken"  # what the entry waits for
_DNS_PORT = 53
_SHOWN = 4000  # characters of the log


class _Side(NamedTuple):
    """The descriptors of the process: where the container's entry comes to, the list of hosts, and its end of a pair with the engine,
    which says there that the container has started, and hears that the way is open."""

    entrance: int
    policy: int
    word: int


def check_open(network: Network, engine: str) -> None:
    """Refuse an open network that `engine` cannot give here.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): the user is not root, or something is missing.
    """
    if os.geteuid():
        raise error(
            ErrorCode.ENGINE_UNAVAILABLE,
            f'the engine {engine} can do network="open" for root alone, who owns the networks of its containers',
            hint=f'{_OTHERWISE}, or engine="local"',
            details={"field": "network"},
        )
    find_tunnel(network, as_root=True, engine=engine)


@contextmanager
def open_way(folder: Folder, spec: SandboxSpec, deadline: float) -> Generator[None]:
    """See that the container of `spec` that is started in the block reaches what it may, and that its ports are published; ends when
    that is so. `deadline` is of time.monotonic(). A block that fails leaves no process. With a list see `docker_carrier` for a relayed container.

    Raises:
        Unavailable (START_FAILED, START_TIMEOUT): it has no way out. ENGINE_UNAVAILABLE: it is relayed, and so cannot be opened.
    """
    if spec.network == "none" or folder.is_relayed:
        yield
    else:
        with _process(folder, spec) as word:
            yield
            if not folder.is_relayed:  # which is found out by starting
                _await_open(word, folder, deadline)
                publish(folder.orders, spec.publish if kind_of(spec.network) == "open" else ())
    if folder.is_relayed and kind_of(spec.network) == "open":
        raise error(
            ErrorCode.ENGINE_UNAVAILABLE,
            'a container that is reached through its daemon cannot have network="open"',
            hint=_OTHERWISE,
            details={"field": "network"},
        )


@contextmanager
def _process(folder: Folder, spec: SandboxSpec) -> Generator[socket.socket]:
    """Have a process wait for the entry of a container that is about to start; yields the engine's end of `_Side.word`. One to which
    nobody came ends with the block."""
    from sandcell_container.engines.zygote_process import import_path

    tunnel = _tunnel(folder, spec) if kind_of(spec.network) == "open" else None
    for left in (folder.way, folder.orders):  # by the last start
        Path(left).unlink(missing_ok=True)
    with ExitStack() as held:
        ours, theirs = (held.enter_context(each) for each in socket.socketpair())
        entrance = held.enter_context(listen_at(folder.way, backlog=1, kind=socket.SOCK_SEQPACKET))
        policy = open_policy(folder.path, spec.network)
        held.callback(os.close, policy)
        log = held.enter_context(_new_log(folder))
        side = _Side(entrance.fileno(), policy, theirs.fileno())
        child = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-c",
                _START,
                *(json.dumps(each) for each in (import_path(), side, tunnel and asdict(tunnel))),
            ],
            cwd=folder.path,  # where slirp4netns makes a socket, which takes no long path
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=side,
            start_new_session=True,  # a ^C in the terminal is for the host program
        )
        held.enter_context(child)  # it ends at once, and leaves a child that is nobody's
        theirs.close()
        entrance.close()
        held.callback(Path(folder.way).unlink, missing_ok=True)
        yield ours


def _tunnel(folder: Folder, spec: SandboxSpec) -> Tunnel:
    found = find_tunnel(spec.network, as_root=True)
    return replace(
        found,
        items=(*found.items, *(f"{address}:{_DNS_PORT}" for address in spec.dns)),
        published=tuple(each.port for each in spec.publish),
        orders=Path(folder.orders).name if spec.publish else "",
    )


def _new_log(folder: Folder) -> BinaryIO:
    path = folder.path / "proxy.log"
    path.unlink(missing_ok=True)  # what the one of the last start says is nobody's any more
    return path.open("ab")


def write_resolver(folder: Folder, dns: Sequence[str]) -> None:
    """Write who resolves names in an open network: in place, as a container may have mounted it already. Without `dns` it is the
    resolver of this machine."""
    folder.resolver.write_text("".join(f"nameserver {address}\n" for address in dns or [RESOLVER]))
    folder.resolver.chmod(0o644)


def _await_open(word: socket.socket, folder: Folder, deadline: float) -> None:
    """Return when the process has what the container gave. Raises Unavailable."""
    with suppress(BrokenPipeError):  # it has ended, which is read below
        word.sendall(_STARTED)
    word.settimeout(max(deadline - time.monotonic(), 0.001))
    try:
        said = word.recv(len(_OPEN))
    except ConnectionResetError:  # it has ended
        said = b""
    except TimeoutError:
        raise error(
            ErrorCode.START_TIMEOUT,
            "the way out of the container did not open before start_timeout",
            hint="try again with a longer start_timeout",
        ) from None
    if said != _OPEN:
        raise _no_way(folder)


def _no_way(folder: Folder) -> SandcellError:
    words = (folder.path / "proxy.log").read_text(errors="replace")[-_SHOWN:]
    cause = explain(words)
    if cause is not None:
        return error(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"the container cannot be connected: {cause.reason}",
            hint="; ".join(cause.remedies),
            details={"words": words},
        )
    return error(
        ErrorCode.START_FAILED,
        f"the container has no way to what it may reach: {words.strip().rpartition(chr(10))[2] or 'it did not open it'}",
        hint="build the image from the same version of Sandcell; details['words'] has what was said to that",
        details={"words": words},
    )


def main() -> NoReturn:
    """Be the way out of one container, as a process of nobody's: argv[-2] is its `_Side` as JSON, argv[-1] a Tunnel or null."""
    side, fields = _Side(*json.loads(sys.argv[-2])), json.loads(sys.argv[-1])
    tunnel = None if fields is None else Tunnel.from_fields(fields)
    if os.fork():
        os._exit(0)
    code = 1
    try:
        _give_up_rights(None if tunnel else _NOBODY)
        _serve(side, tunnel)
        code = 0
    except Exception:  # noqa: BLE001 -- the outermost loop of this process: the log is all that is left to tell
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _give_up_rights(user: str | None) -> None:
    """As root become `user`: all that is needed is open. What is imported later has to be now, as `user` may not read it."""
    for name in _NEEDED_LATER:
        importlib.import_module(name)
    namespaces.leave_keyring()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0 and user is not None:
        take_identity(pwd.getpwnam(user).pw_uid)
    namespaces.hide_from_peers()


def _serve(side: _Side, tunnel: Tunnel | None) -> None:
    with socket.socket(fileno=side.word) as word:
        with socket.socket(fileno=side.entrance) as entrance:
            way = _await_entry(entrance, word)
        given = None if way is None else take_descriptor(way)
        if way is None or given is None:
            return
        if tunnel is not None:
            _connect(tunnel, given, way, word)
        way.send(_TAKEN)
        word.sendall(_OPEN)
    with way:
        serve_proxy(way, socket.socket(fileno=given), side.policy)


def _connect(tunnel: Tunnel, network: int, way: socket.socket, word: socket.socket) -> NoReturn:
    """Be slirp4netns for the container's network: as root, until it has given up all rights by itself. The entry waits until
    the packet filter is there, and is given its log."""
    opened = namespaces.owned_network(network)
    set_filter(tunnel, opened, told=way)
    way.send(_TAKEN)
    namespaces.enter_network(opened, owner_alone=True)
    become_slirp(tunnel, network, ready=word.fileno(), end=way.fileno())


def _await_entry(entrance: socket.socket, word: socket.socket) -> socket.socket | None:
    """Return the connection of the container's entry; None where the container has started without, or not at all."""
    poll = select.poll()
    for each in (entrance, word):
        poll.register(each, select.POLLIN)
    poll.poll()
    entrance.settimeout(0)
    try:
        way, _ = entrance.accept()
    except BlockingIOError:
        return None
    way.settimeout(None)
    return way
