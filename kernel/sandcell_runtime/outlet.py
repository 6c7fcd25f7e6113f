"""Which run the output of this process belongs to, for whoever writes: a thread, a task, a callback, a forked child.

The guest sends the write ends of each run's pipes ahead of the request, over a socket that is bound here: first
JSON, `{"key": the connection's, "mark": hex}`, then for each run the `msg_id` of its request with two descriptors.
A run for which nothing was sent has no pipes, and its output travels in messages, as ipykernel has it; neither has one for whose
pipes user code has left no descriptors.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
from array import array
from contextvars import ContextVar
from typing import TYPE_CHECKING

from sandcell_runtime.pipes import RunPipes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outlet"]

_LONGEST = 1024
_PAIR = 2
_SPACE = socket.CMSG_SPACE(_PAIR * array("i").itemsize)
_BACKLOG = 8  # connections of others, who know no key, before the guest's


class Outlet:
    """See the module. One for a process."""

    def __init__(self, address: str, key: str) -> None:
        self._key = key.encode()
        self._mark = b""
        self._listener: socket.socket | None = _listen(address)
        self._guest: socket.socket | None = None
        self._on: RunPipes | None = None  # the run whose pipes descriptors 1 and 2 are
        self._mine: ContextVar[RunPipes | None] = ContextVar("sandcell_pipes")

    @property
    def pipes(self) -> RunPipes | None:
        """Where the caller's output goes; None: into messages. Who was told nothing belongs to the newest run."""
        return self._mine.get(self._on)

    @property
    def foreign_pipes(self) -> RunPipes | None:
        """The caller's pipes, where descriptors 1 and 2 are those of another run."""
        pipes = self._mine.get(None)
        return None if pipes is self._on else pipes

    def turn_to(self, msg_id: str, *, new: bool, take_over: bool) -> None:
        """Let the caller's output be that of the request `msg_id`.

        `new`: it may be a run that begins, for which pipes were sent; `take_over`: then all that uses descriptors 1 and 2
        writes there as well.
        """
        # Clients choose the ids, and the next run may have the same one: then pipes were sent for it. Where none were,
        # a library that has served other requests meanwhile goes back to the run that is on.
        # A subshell has none, and must not take those that are just coming for the main thread's next run.
        pipes = (self._receive(msg_id) or self._run_that_is_on(msg_id)) if new and take_over else None
        self._mine.set(pipes)
        if pipes is not None and pipes is not self._on and take_over:
            pipes.take_over()
            self._on = pipes

    def bequest(self) -> Callable[[], None]:
        """Return what a thread calls to write where the caller does now."""
        pipes = self.pipes
        return lambda: _set(self._mine, pipes)

    def settle_in_child(self) -> None:
        """In a child that was just forked, let 1 and 2 be what they are to the thread that forked it."""
        pipes = self.foreign_pipes
        if pipes is not None:
            pipes.take_over()
            self._on = pipes

    def _run_that_is_on(self, msg_id: str) -> RunPipes | None:
        return self._on if self._on is not None and self._on.msg_id == msg_id else None

    def _receive(self, msg_id: str) -> RunPipes | None:
        """Take what was sent for this run; what lies before it was for runs that did not come to be."""
        guest, expected = self._guest or self._accept(), msg_id.encode()
        while guest is not None:
            try:
                said, ancillary, _, _ = guest.recvmsg(_LONGEST, _SPACE, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return None
            if not said:
                return None  # the guest has ended
            descriptors = _descriptors_in(ancillary)
            if said == expected and len(descriptors) == _PAIR:
                return RunPipes(msg_id, (descriptors[0], descriptors[1]), mark=self._mark)
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def _accept(self) -> socket.socket | None:
        """Take the guest's connection, once: whoever else connects does not know the key."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return None
            mark = self._mark_told(connection)
            if mark:
                self._mark, self._guest = mark, connection
                self._listener.close()
                self._listener = None
            else:
                connection.close()
        return self._guest

    def _mark_told(self, connection: socket.socket) -> bytes:
        connection.settimeout(0)
        try:
            hello = json.loads(connection.recv(_LONGEST))
            known = hmac.compare_digest(str(hello["key"]).encode(), self._key)
            return bytes.fromhex(hello["mark"]) if known else b""
        except (OSError, ValueError, KeyError, TypeError):
            return b""  # it is not the guest's


def _descriptors_in(ancillary: list[tuple[int, int, bytes]]) -> array[int]:
    """Return the descriptors that came: fewer than were sent where this process may have no more."""
    descriptors = array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    return descriptors


def _listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(_BACKLOG)
    listener.settimeout(0)
    return listener


def _set(variable: ContextVar[RunPipes | None], pipes: RunPipes | None) -> None:
    variable.set(pipes)
