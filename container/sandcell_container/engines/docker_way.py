"""The way out of a container: a filtering proxy that is a process of this machine, and accepts on a socket of the container's.

The entry makes that socket before user code runs, and hands it over by a unix socket in the sandbox's folder, which stays
open as the guest's: see `egress`. The proxy belongs to the container and to no program: it ends when the guest's end closes.
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
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from sandcell_container.engines import namespaces
from sandcell_container.engines.egress import serve_proxy, take_listener
from sandcell_container.engines.launcher import take_identity
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.policy import open_policy
from sandcell_container.unix_address import listen_at

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell_container.engines.docker_folder import Folder
    from sandcell_container.spec import Network

__all__ = ["main", "open_way"]

_START = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.docker_way import main; main()"
)
_NOBODY = "nobody"
_NEEDED_LATER = ("concurrent.futures.thread", "encodings.idna")  # by the resolver
_STARTED, _OPEN = b"started", b"open"
_SHOWN = 4000  # characters of the log


class _Side(NamedTuple):
    """The descriptors of a proxy: where the container's entry comes to, the list of hosts, and its end of a pair with the engine,
    which says there that the container has started, and hears that the way is open."""

    entrance: int
    policy: int
    word: int


@contextmanager
def open_way(folder: Folder, network: Network, deadline: float) -> Generator[None]:
    """See that the container that is started in the block reaches the hosts of `network`; ends when it does. `deadline` is of
    time.monotonic(). A block that fails leaves no proxy. Of a relayed container see `docker_carrier`.

    Raises:
        Unavailable (START_FAILED, START_TIMEOUT): it has no way out.
    """
    if network == "none" or folder.is_relayed:
        yield
        return
    with _proxy(folder, network) as word:
        yield
        if not folder.is_relayed:  # which is found out by starting
            _await_open(word, folder, deadline)


@contextmanager
def _proxy(folder: Folder, network: Network) -> Generator[socket.socket]:
    """Have a proxy wait for the entry of a container that is about to start; yields the engine's end of `_Side.word`. A proxy to which
    nobody came ends with the block."""
    from sandcell_container.engines.zygote_process import import_path

    Path(folder.way).unlink(missing_ok=True)  # of the last start
    with ExitStack() as held:
        ours, theirs = (held.enter_context(each) for each in socket.socketpair())
        entrance = held.enter_context(listen_at(folder.way, backlog=1, kind=socket.SOCK_SEQPACKET))
        policy = open_policy(folder.path, network)
        held.callback(os.close, policy)
        log = held.enter_context(open(folder.path / "proxy.log", "ab"))
        side = _Side(entrance.fileno(), policy, theirs.fileno())
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, json.dumps(import_path()), json.dumps(side)],
            cwd="/",
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


def _await_open(word: socket.socket, folder: Folder, deadline: float) -> None:
    """Return when the proxy has the container's socket. Raises Unavailable."""
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
    return error(
        ErrorCode.START_FAILED,
        "the container has no way to the hosts that it may reach",
        hint="build the image from the same version of Sandcell; details['words'] has what the proxy said",
        details={"words": words},
    )


def main() -> NoReturn:
    """Be the proxy of one container, argv[-1] its `_Side` as JSON, as a process of nobody's."""
    side = _Side(*json.loads(sys.argv[-1]))
    if os.fork():
        os._exit(0)
    code = 1
    try:
        _give_up_rights()
        _serve(side)
        code = 0
    except Exception:  # noqa: BLE001 -- the outermost loop of this process: the log is all that is left to tell
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _give_up_rights() -> None:
    """As root be nobody: all that is needed is open. What is imported later has to be now, as nobody may not read it."""
    for name in _NEEDED_LATER:
        importlib.import_module(name)
    namespaces.leave_keyring()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        take_identity(pwd.getpwnam(_NOBODY).pw_uid)
    namespaces.hide_from_peers()


def _serve(side: _Side) -> None:
    with socket.socket(fileno=side.word) as word:
        with socket.socket(fileno=side.entrance) as entrance:
            way = _await_entry(entrance, word)
        if way is None:
            return
        listener = take_listener(way)
        if listener is None:
            return
        word.sendall(_OPEN)
    with way:
        serve_proxy(way, listener, side.policy)


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
