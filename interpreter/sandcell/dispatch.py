"""What runs when in one context: its queue, its clocks, its interrupts, and who is told what its kernel says.

The rim around `ExecutionMachine`: it feeds the machine of the run that runs, and keeps time. One loop owns a
dispatcher; nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sandcell.clock import Clock
from sandcell.execution import Stop
from sandcell.kernel import Doom
from sandcell.life import KernelLife
from sandcell.runs import Request, Routes, Run, RunQueue
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_kernel.wire import BadMessage, ChannelMessage, new_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.execution import Death
    from sandcell.life import LiveKernel, Workshop
    from sandcell.runs import RunListener
    from sandcell.starter import KernelRequest
    from sandcell_container.end import Cause
    from sandcell_kernel.output import StreamName
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Dispatcher"]

log = logging.getLogger(__name__)

_MAX_REQUESTS = 900  # questions that wait for one kernel's answers; its channels hold a thousand messages
_REPLY_S = 1.0  # between idle and a reply, which come by different sockets; a kernel that fails sends none


class Dispatcher:
    """See the module. It is the owner of its runs, and the observer of its kernels."""

    def __init__(
        self, name: str, request: KernelRequest, workshop: Workshop, *, fresh_state: str | None = None
    ) -> None:
        self._name = name
        self._config = workshop.config
        self._loop = asyncio.get_running_loop()
        self._queue = RunQueue()
        self._routes = Routes()
        self._outbox: deque[ChannelMessage] = deque()  # for a kernel that is on its way
        self._fresh_state = fresh_state
        self._latest: Run | None = None  # what runs, or ran last
        self._env_news = dict[str, str | None]()  # that the next run brings to the interpreter
        self.running: Run | None = None
        self.execution_count = 0
        self.life = KernelLife(name, request, workshop, self)

    @property
    def queued(self) -> int:
        return len(self._queue)

    # --- what the context asks

    def enqueue(self, run: Run, *, queue_timeout: float | None = None) -> None:
        """Run it when its turn comes; after `queue_timeout` seconds of waiting, never."""
        self._queue.append(run)
        if queue_timeout is not None:
            run.timer = self._loop.call_later(queue_timeout, self._give_up, run, queue_timeout)
        self._advance()

    def ask(self, channel: Channel, message: Message, listener: RunListener) -> None:
        """Send anything but a run, now; a kernel that is on its way gets it when it is there.

        Raises:
            Limited (QUOTA_EXCEEDED): hundreds of questions wait for an answer already.
            Conflict (BUSY): the kernel reads nothing any more.
        """
        kernel = self.life.kernel
        if message.msg_type == "input_reply":
            if kernel is not None:
                kernel.send(channel, message)
            return
        if self._routes.count >= _MAX_REQUESTS:
            raise error(
                ErrorCode.QUOTA_EXCEEDED, f"{_MAX_REQUESTS} requests wait for the kernel {self._name}"
            )
        if kernel is not None:
            kernel.send(channel, message)
        else:
            self._outbox.append(ChannelMessage(channel, message))
            self.life.start_soon()
        self._routes.open(Request(channel, message, listener))

    def inherit_env(self, changes: Mapping[str, str | None]) -> None:
        """Change the environment of the interpreter before its next run, and of those to come."""
        self._env_news |= self.life.inherit_env(changes)

    def interrupt(self, who: str) -> None:
        """Interrupt the run that runs."""
        if self.running is not None:
            self._stop(self.running, Stop("interrupted", who))

    def drop_waiting(self, cause: Cause, reason: str, *, who: str | None = None) -> None:
        """End every run that waits."""
        for run in self._queue.take():
            run.abort(cause, reason, who=who)

    async def restart(self, doom: Doom) -> None:
        """End the kernel and what runs or waits in it, then start another. Raises as `Kernel.open`."""
        self.drop_waiting(doom.cause, doom.reason, who=doom.who)
        await self.life.stop(doom, politely=self.running is None)
        self._fresh_state = doom.reason
        await self.life.ready()

    async def close(self, doom: Doom) -> None:
        """End the kernel and all that waits for it, for good."""
        self.drop_waiting(doom.cause, doom.reason, who=doom.who)
        await self.life.close(doom, politely=self.running is None)
        self._abandon_requests(doom.reason)  # of a kernel that was still on its way

    # --- what runs ask: RunOwner

    def heed_run(self, run: Run) -> None:
        if run.is_over:
            self._finish(run)
        elif run.stopping is not None and not run.signalled:
            self._signal(run)

    def interrupt_run(self, run: Run, *, who: str) -> None:
        if self._queue.remove(run):
            run.abort("interrupted", "it was interrupted while it waited", who=who)
        elif run is self.running:
            self._stop(run, Stop("interrupted", who))

    def answer_run(self, run: Run, text: str) -> None:
        asked = run.machine.input_parent
        if asked is None or self.life.kernel is None:
            raise error(
                ErrorCode.BUSY, "the run waits for no input", hint="it does after an InputRequested event"
            )
        run.machine.input_parent = None
        answer = new_message("input_reply", {"status": "ok", "value": text}, session="sandcell", parent=asked)
        self.life.kernel.send("stdin", answer)

    def position_of(self, run: Run) -> int | None:
        return self._queue.position_of(run)

    # --- what the kernel does: KernelObserver

    def on_up(self, kernel: LiveKernel) -> None:
        while self._outbox:
            self._send(kernel, *self._outbox.popleft())
        self._advance()

    def on_message(self, channel: Channel, message: Message) -> None:
        try:
            asked = self._routes.deliver(channel, message)
        except BadMessage as problem:  # code in the kernel can write what it likes on its sockets
            log.warning("dropped a message context=%s: %s", self._name, problem)
            return
        if isinstance(asked, Request) and asked.is_unanswered:
            self._loop.call_later(_REPLY_S, self._answer_for_kernel, asked)

    def on_text(self, name: StreamName, text: str) -> None:
        """Take what the kernel's process wrote past its messages: it is of what runs now, or ran last."""
        run = self.running or self._latest
        if run is not None and run.is_recorded:
            run.take_text(name, text)

    def on_down(self, death: Death) -> None:
        """The kernel is gone: what ran and what waited ends, and the next run is told why it begins anew."""
        death = _blame(self.running, death)
        self._fresh_state = f"the interpreter was started anew: {death.reason}"
        # After `exit()`, or of one that was seen dying, the runs that wait were never promised the old state.
        waiting = [] if death.announced else self._queue.take()
        run, self.running = self.running, None
        if run is not None:
            self._routes.close(run)
            run.die(death)
        if death.problem is not None:
            _refuse_all(waiting, death.problem)
        else:
            for each in waiting:
                each.abort("lost", f"the run before it lost the interpreter: {death.reason}")
        self._abandon_requests(death.reason)
        self._advance()

    def on_start_failed(self, problem: SandcellError) -> None:
        """Fail all that waits: another attempt for each would fail as well, one after another."""
        _refuse_all(self._queue.take(), problem)
        self._abandon_requests(str(problem))

    def _answer_for_kernel(self, asked: Request) -> None:
        if asked.is_unanswered and self._routes.is_open(asked):
            asked.answer("the kernel did not answer this request: it may be one that it does not know")
            self._routes.close(asked)

    def _abandon_requests(self, reason: str) -> None:
        self._outbox.clear()
        for request in self._routes.take_unanswered():
            request.abandon(reason)

    # --- the run that runs

    def _advance(self) -> None:
        if self.running is not None or not self._queue:
            return
        kernel = self.life.kernel
        if kernel is None:
            self.life.start_soon()
        elif not kernel.leaving and kernel.is_dying():
            kernel.leaving = True  # who waits is for the next one: this one cannot have begun with it
        elif not kernel.leaving:
            self._begin(self._queue.pop(), kernel)

    def _begin(self, run: Run, kernel: LiveKernel) -> None:
        run.stop_timers()
        self.running = self._latest = run
        self._routes.open(run)
        fresh_state = None
        if run.is_recorded:
            fresh_state, self._fresh_state = self._fresh_state, None
        run.machine.sent(time.time(), fresh_state=fresh_state)
        if run.timeout is not None:
            run.clock = Clock(run.timeout, partial(self._stop, run, Stop("timeout")))
        run.connect(kernel.open_output(run.message.msg_id, run.take_text) if run.is_recorded else None)
        self._send(kernel, "shell", self._with_news(run.message))

    def _with_news(self, request: Message) -> Message:
        if not self._env_news:
            return request
        news, self._env_news = self._env_news, {}
        return request.with_extras({"environ": news})

    def _send(self, kernel: LiveKernel, channel: Channel, message: Message) -> None:
        try:
            kernel.send(channel, message)
        except SandcellError as problem:  # it reads nothing any more, and will not come back
            kernel.kill(Doom(cause="killed", reason=problem.message))

    def _finish(self, run: Run) -> None:
        self._routes.close(run)
        self.running = None
        self.execution_count = max(self.execution_count, run.machine.execution_count or 0)
        if run.machine.leaving and self.life.kernel is not None:
            self._see_off(self.life.kernel)
        dropped = self._queue.take(origin=run.origin) if run.machine.failed and run.stops_on_error else []
        run.report(reason="", aborted=run.machine.aborted)
        for each in dropped:
            each.abort("interrupted", "a run of the same origin before it failed", who=run.origin)
        self._advance()

    def _see_off(self, kernel: LiveKernel) -> None:
        """It says that it exits: nothing is sent to it any more, and it is not waited for for ever."""
        kernel.leaving = True
        doom = Doom(cause="killed", reason="the interpreter said that it exits, and did not")
        self._loop.call_later(self._config.kill_grace, kernel.kill, doom)

    def _stop(self, run: Run, stop: Stop) -> None:
        """Interrupt the run that runs, as soon as that can reach its code; kill its interpreter after the grace."""
        if run.stopping is None:
            run.stopping = stop
            run.machine.stop(stop)
            kernel = self.life.kernel
            grace = kernel.grace if kernel is not None else self._config.interrupt_grace
            run.deadline = self._loop.call_later(grace, self._kill, run)
        self._signal(run)

    def _signal(self, run: Run) -> None:
        if run.machine.interruptible and self.life.kernel is not None:
            run.signalled = True
            self.life.kernel.interrupt()

    def _kill(self, run: Run) -> None:
        stop, kernel = run.stopping, self.life.kernel
        if stop is None or kernel is None or run is not self.running:
            return
        timed_out = stop.cause == "timeout"
        why = f"it ran for more than {run.timeout:g} s" if timed_out else f"{stop.who} interrupted it"
        reason = f"{why} and it did not stop, so its interpreter was killed"
        run.machine.condemn()
        kernel.kill(Doom(cause="timeout" if timed_out else "killed", who=stop.who, reason=reason))

    def _give_up(self, run: Run, seconds: float) -> None:
        if not self._queue.remove(run):
            return
        problem = error(
            ErrorCode.BUSY,
            f"the run waited for {seconds:g} s and its turn did not come",
            hint="try again later",
        )
        run.refuse(problem)
        run.report(reason=problem.message, aborted=True)


def _blame(run: Run | None, death: Death) -> Death:
    """Return how a kernel ended that an interrupt of ours has ended: as whoever asked for that is told."""
    stop = run.stopping if run is not None and run.signalled else None
    if stop is None or not (death.end.signal == signal.SIGINT or death.end.cause == "interrupted"):
        return death
    end = replace(death.end, cause=stop.cause, who=stop.who)
    return replace(death, end=end, reason=f"{death.reason}, of the interrupt that was to end the run")


def _refuse_all(runs: list[Run], problem: SandcellError) -> None:
    for run in runs:
        run.refuse(problem)
        run.report(reason=str(problem))
