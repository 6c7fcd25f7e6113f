"""How messages leave on iopub: by a thread of their own, or at once from the main thread where that is safe.

Stock wakes its thread for each message, and whoever publishes then waits for the interpreter's lock until that thread has sent it:
four times a cell, each as long as the machine likes. The main thread may do the sending as well as long as nothing
can interrupt it half way: an exception between two frames would put all that follows out of step. So the kernel does with what
it says itself before and after the user's code, and with that what the thread has not sent yet.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import zmq
from ipykernel.iostream import IOPubThread
from zmq.eventloop.zmqstream import ZMQStream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = ["PublishingThread", "QuickSocket"]

# arithmetic with the enums costs more than to send
_MORE = int(zmq.SNDMORE)
_READABLE = int(zmq.POLLIN)


class QuickSocket(zmq.Socket[bytes]):
    """A publisher that sends the frames of a message without asking of each what else it could be.

    While it sends, libzmq takes notice of subscriptions, and then its descriptor tells nobody of them: whoever waits at
    that would never say welcome. So `on_readable` is called here.
    """

    on_readable: Callable[[], object] | None = None

    def send_multipart(  # type: ignore[override]  # nobody here tracks
        self,
        msg_parts: Sequence[Any],
        flags: int = 0,
        copy: bool = True,  # noqa: FBT001, FBT002 -- zmq's signature
        **_: Any,
    ) -> None:
        send = zmq.backend.Socket.send
        *parts, last = msg_parts
        for part in parts:
            send(self, part, flags | _MORE, copy)
        send(self, last, flags, copy)
        if self.on_readable is not None and cast("int", self.get(zmq.EVENTS)) & _READABLE:
            self.on_readable()


class _Sending(partial[None]):
    """A message that waits to be sent; any thread may do it in its turn. What else waits is for the publishing thread alone."""


class _TakingTurns(ZMQStream):
    """Hears who subscribes, when nobody else is at the socket."""

    def __init__(self, socket: QuickSocket, loop: Any, turn: threading.RLock) -> None:
        self._turn = turn
        super().__init__(socket, loop)

    def _handle_events(self, fd: Any, events: int) -> None:
        with self._turn:
            super()._handle_events(fd, events)

    def look(self) -> None:
        """Take what has come, of which the descriptor may not have told."""
        self._handle_events(self.socket, 0)


class PublishingThread(IOPubThread):
    """See the module. Made in the main thread. `in_code`: code of the user runs there, and what interrupts it may raise."""

    def __init__(self, publisher: QuickSocket, **options: Any) -> None:
        self._turn = threading.RLock()  # of who is at the socket
        self._is_woken = False
        self._main = threading.get_ident()
        self.in_code = False
        self._is_at_once = False
        self._publisher = publisher
        super().__init__(publisher, **options)
        publisher.on_readable = self._look_soon
        self._wake = self._event_pipe  # the main thread's, now: user code may leave no descriptor for one

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Send in the block without the thread, where that is safe. Nothing of the user's may run in it."""
        if self.in_code or threading.get_ident() != self._main:
            yield
            return
        self._is_at_once = True
        try:
            yield
        finally:
            self._is_at_once = False

    def send_multipart(self, *arguments: Any, **options: Any) -> None:
        """Send a message behind all that waits: now, where that can be, and else soon."""
        send = cast("Callable[..., None]", self._really_send)
        self.schedule(_Sending(send, *arguments, **options))

    def schedule(self, f: Callable[[], object]) -> None:
        """Have something done behind all that waits, by this thread where it is not a message."""
        if not self.thread.is_alive():  # as in a child that user code has forked
            f()
            return
        self._events.append(f)
        is_here = self._is_at_once and threading.get_ident() == self._main
        if not (is_here and self._send_waiting()) and not self._is_woken:
            self._wake_up()

    def _wake_up(self) -> None:
        """Wake the thread. It needs no pipe to itself, for which there might be no descriptor any more."""
        self._is_woken = True
        if threading.current_thread() is self.thread:
            self.io_loop.add_callback(self._handle_event, [])
            return
        try:
            self._event_pipe.send(b"")
        except BaseException:  # no descriptor is left for the pipe of a thread, or an interrupt came first
            self._is_woken = False  # else nobody would wake it ever again
            raise

    def _send_waiting(self) -> bool:
        """Send what waits, up to what is no message. Returns whether that was all."""
        events = self._events
        with self._turn:
            for _ in range(len(events)):
                if not events or not isinstance(events[0], _Sending):
                    break
                events.popleft()()
        return not events

    def _handle_event(self, msg: Any) -> None:
        self._is_woken = False  # before it is looked what waits: who comes later wakes again
        with self._turn:
            super()._handle_event(msg)

    def _setup_xpub_listener(self) -> None:
        self._subscriptions = _TakingTurns(self._publisher, self.io_loop, self._turn)
        self._subscriptions.on_recv(cast("Callable[[list[bytes]], None]", self._handle_subscription))

    def _look_soon(self) -> None:
        self.io_loop.add_callback(self._subscriptions.look)
