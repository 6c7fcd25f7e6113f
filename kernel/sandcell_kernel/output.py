"""What the runs of one kernel write to stdout and stderr, read from pipes that this side made.

Outside of the kernel's process: what was written is not lost with it, and what comes after a run is still its own. The
kernel gets the write ends ahead of each request. Its messages on iopub have numbers, and marks in the pipes say what
was written after which message; so both can be put in order again. Source: docs/protocol.md, "Output of a run".
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
from collections import deque
from typing import TYPE_CHECKING, Literal

from sandcell_kernel.marked_text import MarkedText, new_mark

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sandcell_kernel.channels import Connection

__all__ = ["KernelOutput", "RunOutput", "StreamName"]

log = logging.getLogger(__name__)

StreamName = Literal["stdout", "stderr"]

_PIPE_SIZE = 64 * 2**10  # the default of Linux: one read takes all there is
_BULK = 4 * 2**10  # from this on a writer is quick: read on at once
_PAUSE_S = 0.005  # else words are collected for as long, unless a message wants them: a print is two writes. The ends of
# those who wrote for a run that is over are looked for as late, so that they cost the next run no turn of the loop
_NEWS_S = 0.1  # for the news that a run runs
# For the message that text waits for. Both are written at nearly the same time, but code that lets no other thread run
# also holds up the one that sends: then the text is shown, and the message after it.
_PATIENCE_S = 1.0
_MOST_PIPES = 130  # runs whose output somebody still holds, and the next one
_MOST_READS = 16  # of one pipe in one go: code may have made it as large as Linux lets it, which is 1 MiB
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class KernelOutput:
    """The runs of one kernel that may still write. Give it back with `close`."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self.mark = new_mark()
        self.epoll = select.epoll()
        self._kernel: socket.socket | None = None
        self._next: RunOutput | None = None
        self._write_ends: list[int] = []  # of the next one, and until then of the last
        self._pipes: dict[int, _Pipe] = {}
        self._pausing: dict[RunOutput, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self.epoll, self._serve)

    def connect(self) -> None:
        """Tell the kernel who we are. One that does not listen gets no pipes: it is no kernel of our runtime."""
        kernel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            kernel.connect(self._connection.output_address)
            hello = {"key": self._connection.key, "mark": self.mark.hex()}
            kernel.send(json.dumps(hello).encode())
        except OSError as problem:
            log.info("a kernel has no pipes for its runs: %s", problem)
            kernel.close()
        else:
            self._kernel = kernel
            self._prepare()

    def open(self, msg_id: str, on_text: Callable[[StreamName, str], None]) -> RunOutput | None:
        """Give the kernel pipes for the run of that request, ahead of the request itself.

        `on_text` gets what comes, from the loop, until nobody can write any more. None where there are no pipes: many
        runs are still held open, there are no more descriptors, or the kernel takes none. Then output comes in messages.
        """
        self._prepare()
        run, self._next = self._next, None
        if run is None or self._kernel is None:
            return None
        try:
            socket.send_fds(self._kernel, [msg_id.encode()], self._write_ends)
        except OSError as problem:
            log.warning("a run has no pipes: %s", problem)
            run.close()
            return None
        run.on_text = on_text
        self._loop.call_later(_NEWS_S, run.start)
        self._loop.call_soon(self._prepare)  # while the kernel runs this one
        return run

    def drain(self) -> None:
        """Hand over all that is there. For after a kernel's death, when no more messages come to wait for."""
        self._hang_up()
        for pipe in list(self._pipes.values()):
            pipe.run.release()
            pipe.read_all()
            pipe.arm()

    def close(self) -> None:
        """Give back everything; what was not read is lost. Closing twice is fine."""
        self._hang_up()
        for pipe in list(self._pipes.values()):
            pipe.run.close()
        if self._timer is not None:
            self._timer.cancel()
        if not self.epoll.closed:
            self._loop.remove_reader(self.epoll)
            self.epoll.close()

    def _prepare(self) -> None:
        """Have pipes for the next run, so that it does not have to wait for them."""
        if self._next is not None or self._kernel is None:
            return
        self._let_go()
        if len(self._pipes) >= _MOST_PIPES:
            self._serve()
            self._look()  # after those that are held no more
        if len(self._pipes) < _MOST_PIPES:
            self._next = self._make_pipes()

    def _make_pipes(self) -> RunOutput | None:
        read_ends = list[int]()
        try:
            for _ in range(2):
                read_end, write_end = os.pipe2(os.O_CLOEXEC)
                read_ends.append(read_end)
                self._write_ends.append(write_end)
                os.set_blocking(read_end, False)
        except OSError as problem:
            log.warning("there are no pipes for a run: %s", problem)
            _close_all(read_ends)
            return None
        return RunOutput(self, *read_ends)

    def _hang_up(self) -> None:
        """Make no more pipes."""
        self._let_go()
        if self._next is not None:
            self._next.close()
            self._next = None
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def _let_go(self) -> None:
        """Close the write ends that the kernel has by now: theirs alone are to keep the pipes open."""
        _close_all(self._write_ends)
        self._write_ends = []

    # --- for the runs

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)

    def add(self, pipe: _Pipe) -> None:
        self._pipes[pipe.descriptor] = pipe

    def remove(self, pipe: _Pipe) -> None:
        del self._pipes[pipe.descriptor]

    def pause(self, run: RunOutput) -> None:
        """Look after it in a moment."""
        self._pausing[run] = None
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE_S, self._look)

    def is_pausing(self, run: RunOutput) -> bool:
        return run in self._pausing

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        runs, self._pausing = self._pausing, {}
        for run in runs:
            run.look()

    def _serve(self) -> None:
        for descriptor, _ in self.epoll.poll(0):
            pipe = self._pipes.get(descriptor)
            if pipe is not None:
                pipe.serve()


class RunOutput:
    """Both streams of one run. Nothing is read before `start`, so nothing comes ahead of the news that it runs.

    Unless that takes very long: code that lets no other thread run also holds up the one that would tell the news.
    """

    def __init__(self, owner: KernelOutput, stdout: int, stderr: int) -> None:
        self._owner = owner
        self._pipes = (_Pipe(owner, self, "stdout", stdout), _Pipe(owner, self, "stderr", stderr))
        self.on_text: Callable[[StreamName, str], None] = _ignore
        self.started = False
        self.seen = 0  # the fence of the newest message: what is marked with more has to wait for its own
        self.ended = False  # late output waits for nothing
        self.closed = False
        self._patience: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The kernel says that it runs, or says nothing: read."""
        if not self.started and not self.closed:
            self.started = True
            self.arm()

    def catch_up(self, fence: int) -> None:
        """Hand over what was written before a message with this fence, 0 for one that has none."""
        self.seen = max(self.seen, fence - 1)
        if self.started:
            for pipe in self._pipes:
                pipe.deliver()
                pipe.read_all()

    def go_on(self, fence: int) -> None:
        """The message was taken: hand over what came after it."""
        self.seen = max(self.seen, fence)
        self._wait_no_more()
        if self.started:
            for pipe in self._pipes:
                pipe.deliver()
            if not self._owner.is_pausing(self):
                self.arm()

    def release(self) -> None:
        """The run is over: wait for no message any more."""
        self.started = self.ended = True
        self._wait_no_more()
        for pipe in self._pipes:
            pipe.deliver()
            pipe.disarm()
        self._owner.pause(self)

    def look(self) -> None:
        """Take what came in a pause, and be told again from now on."""
        for pipe in self._pipes:
            pipe.take()

    def arm(self) -> None:
        for pipe in self._pipes:
            pipe.arm()

    def be_patient(self) -> None:
        """Something waits for its message: bear with that for a while."""
        if self._patience is None:
            self._patience = self._owner.call_later(_PATIENCE_S, self._show_held)

    def close(self) -> None:
        self.closed = True
        self._wait_no_more()
        for pipe in self._pipes:
            pipe.close()

    def _show_held(self) -> None:
        """Show what has waited for too long, as if its messages had come."""
        self._patience = None
        self.seen = max(self.seen, *(pipe.newest_mark for pipe in self._pipes))
        for pipe in self._pipes:
            pipe.deliver()
        self.arm()

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class _Pipe:
    """One stream of a run, until nobody can write any more."""

    __slots__ = ("_known", "_owner", "_parts", "_quick", "_text", "armed", "descriptor", "name", "run")

    def __init__(self, owner: KernelOutput, run: RunOutput, name: StreamName, descriptor: int) -> None:
        self._owner = owner
        self._known = False  # to epoll
        self._quick = False
        self._parts: deque[str | int] = deque()
        self._text = MarkedText(owner.mark)
        self.run = run
        self.name: StreamName = name
        self.descriptor = descriptor
        self.armed = False
        owner.add(self)

    @property
    def held(self) -> bool:
        """Whether something waits here for a message. Then nothing more is read."""
        return bool(self._parts)

    @property
    def newest_mark(self) -> int:
        """The number of the newest message that something waits for here, 0 where nothing does."""
        return max((part for part in self._parts if isinstance(part, int)), default=0)

    def arm(self) -> None:
        """Be told, once, when there is something to read."""
        if self.descriptor >= 0 and not self.armed and not self.held:
            self.armed = True
            epoll = self._owner.epoll
            (epoll.modify if self._known else epoll.register)(self.descriptor, _ONCE)
            self._known = True

    def serve(self) -> None:
        """There is something to read: take it now from a writer that is quick, and else with what comes next."""
        self.armed = False
        if self._quick:
            self.take()
        else:
            self._owner.pause(self.run)

    def take(self) -> None:
        if not self.held:
            self._quick = self.read() >= _BULK
        self.arm()

    def disarm(self) -> None:
        """Be told nothing for a while."""
        if self._known and self.descriptor >= 0:
            self._known = self.armed = False
            self._owner.epoll.unregister(self.descriptor)

    def read_all(self) -> None:
        """Take all that is there at this moment, and not what a writer adds for ever."""
        for _ in range(_MOST_READS):
            if self.held or not self.read():
                return

    def read(self) -> int:
        """Take what is there and hand it over, as far as it has not to wait. Returns how many bytes there were."""
        if self.descriptor < 0:
            return 0
        try:
            data = os.read(self.descriptor, _PIPE_SIZE)
        except BlockingIOError:
            return 0
        if data:
            self._parts += self._text.feed(data)
        else:
            self.close()
        self.deliver()
        return len(data)

    def deliver(self) -> None:
        parts, run = self._parts, self.run
        while parts:
            part = parts[0]
            if isinstance(part, int):
                if part > run.seen and not run.ended:
                    run.be_patient()
                    return
                parts.popleft()
            else:
                parts.popleft()
                run.on_text(self.name, part)

    def close(self) -> None:
        if self.descriptor >= 0:
            rest = self._text.finish()
            if rest:
                self._parts.append(rest)
            self._owner.remove(self)
            os.close(self.descriptor)
            self.descriptor = -1


def _ignore(_name: StreamName, _text: str) -> None:
    """Nobody has written: the run is not there yet."""


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
