"""The way to the guest of a container where no socket in a shared folder can be one, as with Docker Desktop, whose containers
run on another kernel: a process of this machine that listens in its place, and has the daemon run a program inside for
each connection.

It belongs to the container and to no program: it ends with the one, and outlives all others. Who finds a container that
runs and nobody at its socket starts another one.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import docker

    from sandcell_container.engines.docker_folder import Folder

__all__ = ["SOCKET", "Daemon", "main", "read_program", "send_up", "start_relay"]

SOCKET = "/var/lib/sandcell/guest.sock"
"""Where the guest listens inside then, for itself alone. Source: container/image/entry.py"""

_START = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[1]) if each not in sys.path];"
    "from sandcell_container.engines.docker_relay import main; main()"
)
_USER = "guest"  # Source: container/image/Dockerfile
_INSIDE = ("/usr/bin/python3", "-I", "-S", "-c")
_PROGRAM = """
import os, socket, sys, threading
guest = socket.socket(socket.AF_UNIX)
guest.connect(sys.argv[1])
def up():
    while data := os.read(0, 65536):
        guest.sendall(data)
    guest.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := guest.recv(65536):
    while data:
        data = data[os.write(1, data):]
os._exit(0)
"""
_HEAD = struct.Struct(">BxxxI")  # Source: Engine API, "Attach to a container", stream format
_STDOUT = 1
_PIECE = 2**16
_MOST_CONNECTIONS = 256
_BACKLOG = 128
_CALL_S = 60  # of a request to the daemon
_START_TIMEOUT = 20.0  # seconds, until it listens


def start_relay(folder: Folder, client: docker.DockerClient, container_id: str) -> None:
    """Have somebody listen at `folder.socket` for the guest of a container that runs; returns when that is so. `client` is of
    the daemon that the folder names.

    Raises:
        Unavailable (START_FAILED): nobody does.
    """
    from sandcell_container.engines.zygote_process import import_path

    api: Any = client.api
    kept = folder.read()
    if kept is None:
        raise folder.missing()
    with open(folder.path / "relay.log", "ab") as log:
        line = [sys.executable, "-I", "-c", _START, json.dumps(import_path())]
        done = subprocess.run(
            [*line, folder.socket, kept.daemon, str(api.api_version), container_id],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=_START_TIMEOUT,
            check=False,
        )
    if done.returncode:
        words = (folder.path / "relay.log").read_text(errors="replace")[-4000:]
        raise error(
            ErrorCode.START_FAILED,
            "the way to the guest through the daemon does not open",
            hint="details['words'] says why",
            details={"words": words},
        )


def main() -> NoReturn:
    """Listen at argv[-4], then go on as a process of nobody's, until the container argv[-1] of the daemon argv[-3] ends."""
    path, url, version, container_id = sys.argv[-4:]
    listener = _listen(path)
    if os.fork():
        os._exit(0)
    daemon = Daemon(url, version, container_id)
    threading.Thread(target=_Relay(daemon).accept, args=(listener,), daemon=True).start()
    try:
        daemon.await_end()
    finally:
        os._exit(0)


def _listen(path: str) -> socket.socket:
    """Listen at `path` whatever lay there, by a rename: it is never missing and never somebody else's."""
    from sandcell_container.unix_address import listen_at

    draft = f"{path}.{os.getpid()}"
    listener = listen_at(draft, backlog=_BACKLOG)
    Path(draft).rename(path)
    return listener


class Daemon:
    """What the daemon at `url` does for one container. Thread-safe, each call with a client of its own, and blocking, as the SDK
    is."""

    def __init__(self, url: str, version: str, container_id: str) -> None:
        self._url = url
        self._version = version
        self._container_id = container_id

    def await_end(self) -> None:
        """Return when the container has ended, or the daemon is gone."""
        with closing(self._client()) as client:
            client.api.wait(self._container_id)  # as long as it takes: its own timeout is none

    @contextmanager
    def run_inside(self, program: str, arguments: Sequence[str]) -> Generator[socket.socket]:
        """Run a program of Python's as the guest; yields its input, and its output in frames. Raises what the SDK raises."""
        with closing(self._client()) as client:
            api: Any = client.api
            argv = [*_INSIDE, program, *arguments]
            made = api.exec_create(self._container_id, argv, user=_USER, stdin=True)
            reader = api.exec_start(made["Id"], socket=True)
            inside: socket.socket = reader._sock  # the SDK hands out a reader only
            inside.settimeout(None)
            with closing(reader), closing(inside):
                yield inside

    def _client(self) -> docker.DockerClient:
        import docker

        return docker.DockerClient(base_url=self._url, version=self._version, timeout=_CALL_S)


class _Relay:
    """The ways of one container. Two threads for each connection."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def accept(self, listener: socket.socket) -> NoReturn:
        """Take connections for ever; too many wait in the queue."""
        try:
            while True:
                self._room.acquire()
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        finally:
            os._exit(1)  # as nobody could come any more, who wants to starts another relay

    def _serve(self, connection: socket.socket) -> None:
        """Carry one connection. Where it breaks, its client is told by its end, as by that of a guest."""
        try:
            with connection, self._daemon.run_inside(_PROGRAM, [SOCKET]) as inside:
                up = threading.Thread(target=send_up, args=(connection, inside), daemon=True)
                up.start()
                for data in read_program(inside):
                    connection.sendall(data)
                with suppress(OSError):  # its client has gone already
                    connection.shutdown(socket.SHUT_RDWR)
                up.join()
        except Exception as problem:  # noqa: BLE001 -- the outermost of a connection: the others go on
            print(f"a connection broke: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)  # noqa: T201 -- the log
        finally:
            self._room.release()


def send_up(connection: socket.socket, inside: socket.socket) -> None:
    """Carry what the client says, to its end, which is passed on."""
    with suppress(OSError):  # one of both has gone, which the other direction tells
        while data := connection.recv(_PIECE):
            inside.sendall(data)
        inside.shutdown(socket.SHUT_WR)


def read_program(inside: socket.socket) -> Iterator[bytes]:
    """Yield what a program writes; what it says of itself is for the log."""
    for stream, data in _frames(inside):
        if stream == _STDOUT:
            yield data
        else:
            os.write(2, data)


def _frames(inside: socket.socket) -> Iterator[tuple[int, bytes]]:
    while head := _read(inside, _HEAD.size):
        stream, left = _HEAD.unpack(head)
        while left:
            data = inside.recv(min(left, _PIECE))
            if not data:
                return
            left -= len(data)
            yield stream, data


def _read(inside: socket.socket, size: int) -> bytes:
    """Return `size` bytes, or none where there are no more."""
    held = b""
    while len(held) < size:
        data = inside.recv(size - len(held))
        if not data:
            return b""
        held += data
    return held
