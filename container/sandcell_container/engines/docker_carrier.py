"""The way out of a container whose proxy cannot be handed a socket, see `docker_relay`: the proxy of `docker_way`, to which the daemon
carries each connection by a program that it runs inside.

Nobody outside can know when somebody inside connects, so one such program always waits there for the next.
It belongs to the container and to no program, as the relay does, and ends with the container.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sandcell_container.engines.docker_relay import Daemon, read_program, send_up
from sandcell_container.errors import ErrorCode, error
from sandcell_container.policy import Policy, open_policy
from sandcell_container.proxy import Proxy, Refused, resolve
from sandcell_container.unix_address import connect_address, listen_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.models.containers import Container

    from sandcell_container.engines.docker_folder import Folder
    from sandcell_container.spec import Network

__all__ = ["keep_carrier", "main", "start_carrier"]

_START = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.docker_carrier import main; main()"
)
_PORTER = "/var/lib/sandcell/way.sock"  # Source: container/image/entry.py
_LISTENER = "listener"  # likewise
_CAME = b"+"
# Before somebody came its input has nothing but an end, where the process outside is gone: then nobody may be taken. Several wait
# at a time then, so one that is called may be too late. A client that has said all may still be told something, for 30 s.
_CARRY = """
import contextlib, os, select, socket, sys, threading
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as porter:
    porter.connect(sys.argv[1])
    porter.send(sys.argv[2].encode())
    _, (number,), _, _ = socket.recv_fds(porter, 64, 1)
listener = socket.socket(fileno=number)
listener.setblocking(False)
client = None
while client is None:
    ready, _, _ = select.select([0, listener], [], [])
    if 0 in ready:
        sys.exit()
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        pass
client.setblocking(True)
os.write(1, b"+")
def down():
    with contextlib.suppress(OSError):
        while data := os.read(0, 65536):
            client.sendall(data)
        client.shutdown(socket.SHUT_WR)
last = threading.Thread(target=down, daemon=True)
last.start()
with contextlib.suppress(OSError):
    while data := client.recv(65536):
        while data:
            data = data[os.write(1, data):]
    last.join(30)
os._exit(0)
"""
_TELL = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as porter:
    porter.connect(sys.argv[1])
    porter.send(sys.argv[2].encode())
"""
_MOST_CONNECTIONS = 64
_START_TIMEOUT = 20.0  # seconds, until it has begun
_PAUSE_S = 1.0  # after a program that could not be run inside
_MOST_WORDS = 200  # lines of the log: user code can break as many connections as it likes


def start_carrier(container: Container, folder: Folder, network: Network) -> None:
    """See that a relayed container, which has just started, reaches the hosts of `network`.

    Raises:
        Unavailable (START_FAILED): it does not begin.
    """
    _lock_file(folder).unlink(missing_ok=True)  # of the last start, which may be just ending
    keep_carrier(container, folder, network)


def keep_carrier(container: Container, folder: Folder, network: Network) -> None:
    """Do what `start_carrier` does for a container that runs, unless it is done already."""
    with open(_lock_file(folder), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # the one that is there holds it for as long as it lives
        _start(container, folder, network, lock.fileno())


def _lock_file(folder: Folder) -> Path:
    return folder.path / "carrier.lock"


def _start(container: Container, folder: Folder, network: Network, lock: int) -> None:
    from sandcell_container.engines.zygote_process import import_path

    api: Any = container.client.api if container.client is not None else None
    kept = folder.read()
    if kept is None:
        raise folder.missing()
    with ExitStack() as held:
        log = held.enter_context(open(folder.path / "proxy.log", "ab"))
        policy = open_policy(folder.path, network)
        held.callback(os.close, policy)
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-c", _START, json.dumps(import_path())),
                *(str(policy), folder.way, kept.daemon, str(api.api_version), str(container.id)),
            ],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[policy, lock],
            start_new_session=True,
            timeout=_START_TIMEOUT,
            check=False,
        )
    if done.returncode:
        words = (folder.path / "proxy.log").read_text(errors="replace")[-4000:]
        raise error(
            ErrorCode.START_FAILED,
            "the way out of the container through the daemon does not open",
            hint="details['words'] says why",
            details={"words": words},
        )


def main() -> NoReturn:
    """Serve the container argv[-1] of the daemon argv[-3] until it ends, by the list in the descriptor argv[-5]; the proxy listens
    at the path argv[-4], for this process."""
    policy, path, url, version, container_id = sys.argv[-5:]
    Path(path).unlink(missing_ok=True)
    listener = listen_at(path)
    if os.fork():
        os._exit(0)
    daemon = Daemon(url, version, container_id)
    threading.Thread(target=_Carriers(daemon, path).run, daemon=True).start()
    threading.Thread(target=_end_with, args=(daemon,), daemon=True).start()
    try:
        asyncio.run(_serve(listener, daemon, Policy(int(policy))))
    finally:
        os._exit(1)


def _end_with(daemon: Daemon) -> NoReturn:
    try:
        daemon.await_end()
    finally:
        os._exit(0)


async def _serve(listener: socket.socket, daemon: Daemon, policy: Policy) -> None:
    """Be the proxy, as long as this process lives."""
    loop = asyncio.get_running_loop()

    def tell(refused: Refused) -> None:
        loop.run_in_executor(None, _tell, daemon, refused)

    proxy = Proxy(policy.read, resolve=resolve, tell=tell)
    server = await proxy.listen(listener)
    await server.serve_forever()


def _tell(daemon: Daemon, refused: Refused) -> None:
    """Have the guest hear of a host that was refused."""
    try:
        with daemon.run_inside(_TELL, [_PORTER, json.dumps(refused._asdict())]) as inside:
            for _ in read_program(inside):
                pass  # it says nothing, and ends
    except Exception as problem:  # noqa: BLE001 -- the outermost of this thread: only the event is lost
        print(f"a refusal was not told: {problem}", file=sys.stderr, flush=True)  # noqa: T201 -- the log


class _Carriers:
    """The programs inside, one for each connection and one that waits for the next. Two threads for each connection."""

    def __init__(self, daemon: Daemon, proxy: str) -> None:
        self._daemon = daemon
        self._proxy = proxy
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._words_left = _MOST_WORDS

    def run(self) -> NoReturn:
        """Let one after the other come for ever; too many wait in the queue."""
        try:
            while True:
                self._room.acquire()
                settled = threading.Event()
                threading.Thread(target=self._carry, args=(settled,), daemon=True).start()
                settled.wait()
        finally:
            os._exit(1)  # as nobody could come any more, who starts or finds the sandbox has another begin

    def _carry(self, settled: threading.Event) -> None:
        """Carry one connection, and say that somebody came for it."""
        try:
            with self._daemon.run_inside(_CARRY, [_PORTER, _LISTENER]) as inside:
                said = read_program(inside)
                first = next(said, b"")
                if first.startswith(_CAME):
                    settled.set()
                    self._pass_on(first[len(_CAME) :], said, inside)
        except Exception as problem:  # noqa: BLE001 -- the outermost of a connection: the others go on
            self._log(f"a connection broke: {type(problem).__name__}: {problem}")
        finally:
            if not settled.is_set():
                time.sleep(_PAUSE_S)  # what cannot be run now: nothing tells when it can
                settled.set()
            self._room.release()

    def _pass_on(self, first: bytes, said: Iterator[bytes], inside: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
            with connect_address(self._proxy) as address:
                proxy.connect(address)
            up = threading.Thread(target=send_up, args=(proxy, inside), daemon=True)
            up.start()
            with suppress(OSError):  # the proxy has said all: the client is told by the end of what goes up
                for data in itertools.chain((first,), said):
                    proxy.sendall(data)
            with suppress(OSError):
                proxy.shutdown(socket.SHUT_WR)
            up.join()

    def _log(self, words: str) -> None:
        if self._words_left:
            self._words_left -= 1
            print(words, file=sys.stderr, flush=True)  # noqa: T201 -- the log
