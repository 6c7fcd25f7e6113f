"""The guest's end of the worker for files: one request, one answer, and nothing of it believed but its shape."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from sandcell_container.guest.spawn import Job

__all__ = ["Answer", "Nonsense", "WorkerLink", "worker_start"]

# Read while the guest is imported: once it has entered a sandbox it no longer sees its own files.
_WORKER = Path(__file__).with_name("files_worker.py").read_text("utf-8")
_LONGEST_RECORD = 2**18
_FDS_AT_MOST = 1


class Nonsense(Exception):
    """The worker said what no worker of ours says."""


class Answer:
    """What the worker said: `number` is an errno, 0 for success; `kind` what a path is that is no regular file."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds
        self.data: object = None
        self.parts: list[object] = []
        self.number = 0
        self.kind = ""

    @property
    def fd(self) -> int:
        """The open file, -1 where there is none."""
        return self._fds[0] if self._fds else -1

    def take_fd(self) -> int:
        return self._fds.pop()

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


class WorkerLink:
    """One live worker: its process, and our end of its socket."""

    def __init__(self, sock: socket.socket, job: Job) -> None:
        self._sock = sock
        self._job = job
        sock.settimeout(0.0)

    def is_usable(self) -> bool:
        """Whether the worker is there and owes nothing: one that died has closed its end."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def ask(self, request: bytes) -> Answer:
        """Send one request and gather its answer. Raises OSError or Nonsense."""
        self._sock.send(request)
        parts: list[object] = []
        while True:
            said, fds = await self._receive()
            answer = Answer(fds)
            try:
                match said:
                    case {"part": [*entries]}:
                        parts += entries
                    case {"errno": int(number), **more} if number > 0:
                        answer.number, answer.kind = number, str(more.get("is", ""))[:80]
                        return answer
                    case {"ok": data}:
                        answer.data, answer.parts = data, parts
                        return answer
                    case _:
                        raise Nonsense
            finally:
                if answer.data is None:
                    answer.close()

    def close(self) -> None:
        self._sock.close()
        self._job.start_kill(0.0, lambda _: None)

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        while True:
            try:
                return _parse(self._sock)
            except BlockingIOError:
                await _readable(self._sock.fileno())


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _parse(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return one record and the descriptors that came with it. Raises BlockingIOError where there is none yet."""
    message, ancillary, flags, _ = sock.recvmsg(
        _LONGEST_RECORD, socket.CMSG_SPACE(4 * _FDS_AT_MOST), socket.MSG_CMSG_CLOEXEC
    )
    fds = [
        fd
        for level, kind, data in ancillary
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        for fd in struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    ]
    try:
        if not message:
            raise ConnectionResetError(errno.ECONNRESET, "its end is closed")
        if flags & socket.MSG_TRUNC:
            raise Nonsense
        said = json.loads(message)
        if not isinstance(said, dict):
            raise Nonsense
    except (ValueError, RecursionError, OSError, Nonsense) as problem:
        Answer(fds).close()
        raise problem if isinstance(problem, OSError) else Nonsense from problem
    return cast("dict[str, Any]", said), fds


def worker_start(python: str, stdin: int) -> Start:
    return Start(argv=(python, "-I", "-S", "-c", _WORKER), env={}, cwd="/", stdin=stdin)
