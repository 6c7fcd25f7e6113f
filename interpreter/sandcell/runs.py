"""Runs on their way through a context: waiting in its queue, running in its kernel, reported to who asked."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sandcell.content import content_of, take_text
from sandcell.execution import Phase
from sandcell_container.end import Cause, End
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.masks import TextMasks
from sandcell_kernel.answers import reply_type
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell.clock import Clock
    from sandcell.events import Event
    from sandcell.execution import Death, ExecutionMachine, Stop
    from sandcell_container.guest.masks import Masks
    from sandcell_kernel.output import RunOutput, StreamName
    from sandcell_kernel.wire import Channel, Header, Message

__all__ = [
    "Answer",
    "Recorder",
    "Request",
    "Routes",
    "Run",
    "RunEnded",
    "RunListener",
    "RunOwner",
    "RunQueue",
]

_SESSION = "sandcell"
_LATE_KEPT = 256  # ended runs and requests whose threads may still say something


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """How a run ended, and what of the protocol the kernel itself has said for it.

    `aborted`: it never ran. `reason` says for a person why it ended, where that was not its own doing.
    """

    end: End
    replied: bool
    idle: bool
    aborted: bool
    reason: str


class RunListener(Protocol):
    """Who asked for a run or another request, and speaks Jupyter. Called from the loop; must not block or raise."""

    def on_message(self, channel: Channel, message: Message) -> None:
        """Take a message of the kernel whose parent is the listener's request."""
        ...

    def on_run_end(self, msg_id: str, ended: RunEnded) -> None:
        """Take the end of a run: once for each that was submitted, after `on_message`.

        Also once for each other request that the kernel has not answered when it ends; `end.state` is then "lost".
        """
        ...


class Recorder(Protocol):
    """Keeps the events of a run."""

    def record(self, events: Iterable[Event]) -> None: ...


class RunOwner(Protocol):
    """What a run asks of its context."""

    def heed_run(self, run: Run) -> None:
        """A message came: see whether the run is over, or can be interrupted by now."""
        ...

    def interrupt_run(self, run: Run, *, who: str) -> None: ...
    def answer_run(self, run: Run, text: str) -> None: ...
    def position_of(self, run: Run) -> int | None: ...


class Run:
    """One execute request. `timer` is of its place in the queue, `clock` of its running, `deadline` of its stopping.

    Its output comes in messages, or once it is connected, by way of pipes. `masks` takes secrets out of it.
    """

    def __init__(
        self,
        message: Message,
        machine: ExecutionMachine,
        owner: RunOwner,
        *,
        origin: str,
        recorder: Recorder | None = None,
        listener: RunListener | None = None,
        timeout: float | None = None,
        stops_on_error: bool = False,
        masks: Masks | None = None,
    ) -> None:
        self.message = message
        self.machine = machine
        self.owner = owner
        self.origin = origin
        self.timeout = timeout
        self.stops_on_error = stops_on_error
        self.stopping: Stop | None = None
        self.signalled = False
        self.timer: asyncio.TimerHandle | None = None
        self.clock: Clock | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self._recorder = recorder
        self._listener = listener
        self._output: RunOutput | None = None
        self._masks = None if masks is None else TextMasks(masks)

    @property
    def is_recorded(self) -> bool:
        """Whether anybody reads its events: a ticket's nobody does."""
        return self._recorder is not None

    @property
    def is_over(self) -> bool:
        return self.machine.phase is Phase.ENDED

    def expects(self, _channel: Channel) -> bool:
        """Whether something is still to come for it on a channel: a kernel has one run at a time."""
        return not self.is_over

    def connect(self, output: RunOutput | None) -> None:
        """Say where its output comes from, before it is sent; None: from messages alone."""
        self._output = output

    def receive(self, channel: Channel, message: Message) -> None:
        """Take a message of the kernel for this run, also one that is late. Raises BadMessage."""
        output = self._output
        if output is None:
            self._receive(channel, message)
            return
        if channel != "shell":  # what is written before a reply is there by the idle that comes with it
            output.catch_up(message.fence)
        self._receive(channel, message)
        if self.machine.interruptible:
            output.start()
        output.go_on(message.fence)

    def take_text(self, name: StreamName, text: str) -> None:
        """Take what the run has written, also when it is late."""
        shown = text if self._masks is None else self._masks.feed(name, text, is_last=self.is_over)
        if shown:
            self._show(name, shown)

    def _show(self, name: StreamName, text: str) -> None:
        events = self.machine.hear_output(name, text)
        if self._listener is not None:
            content = {"name": name, "text": text}
            shown = new_message("stream", content, session=_SESSION, parent=self.message.header)
            self._listener.on_message("iopub", shown)
        self._record(events)
        if self.stopping is not None and not self.signalled and not self.is_over:
            self.owner.heed_run(self)

    def _show_held(self) -> None:
        """Show what may have been the beginning of a secret: nothing more comes before the end."""
        rest = self._masks.finish() if self._masks is not None else {}
        for name in ("stdout", "stderr"):
            if name in rest:
                self._show(name, rest[name])

    def note_call(self) -> None:
        """It calls a host tool: what it has written before that is handed over, behind the news that it runs."""
        self._record(self.machine.hear_call())
        if self._output is not None:
            self._output.start()
            self._output.catch_up(0)
        if self.stopping is not None and not self.signalled and not self.is_over:
            self.owner.heed_run(self)

    def die(self, death: Death) -> None:
        self._show_held()
        self._record(self.machine.die(time.time(), death))
        self.report(reason=death.reason)

    def abort(self, cause: Cause, reason: str, *, who: str | None = None) -> None:
        """Leave the queue for good, and report that."""
        self._record(self.machine.abort(time.time(), cause=cause, reason=reason, who=who))
        self.report(reason=reason, aborted=True)

    def refuse(self, problem: SandcellError) -> None:
        """Record that it cannot be run; the listener is told by `report`, or by the caller's exception."""
        self._record(self.machine.refuse(time.time(), problem))

    def report(self, *, reason: str = "", aborted: bool = False) -> None:
        """Tell the listener how it ended. Once."""
        self.stop_timers()
        if self._output is not None:
            self._output.release()
        listener, machine = self._listener, self.machine
        if listener is not None and machine.end is not None:
            ended = RunEnded(
                end=machine.end, replied=machine.replied, idle=machine.idle, aborted=aborted, reason=reason
            )
            listener.on_run_end(self.message.msg_id, ended)

    def _receive(self, channel: Channel, message: Message) -> None:
        if self._masks is not None:
            if message.msg_type == "stream":
                self._take_stream(content_of(message))
                return
            if message.msg_type == "status":  # idle: by then all is there that was written before
                self._show_held()
        was_over = self.is_over
        events = self.machine.receive(channel, message, time.time())
        if self._listener is not None:
            self._listener.on_message(channel, message)
        self._record(events)
        if not was_over:
            self.owner.heed_run(self)

    def _take_stream(self, content: dict[str, Any]) -> None:
        """Take output that came in a message as if it had come by the pipes: it is to be masked across pieces."""
        name: StreamName = "stderr" if take_text(content, "name") == "stderr" else "stdout"
        self.take_text(name, take_text(content, "text"))

    def stop_timers(self) -> None:
        for handle in (self.timer, self.clock, self.deadline):
            if handle is not None:
                handle.cancel()

    def _record(self, events: list[Event]) -> None:
        if events and self._recorder is not None:
            self._recorder.record(events)


class Answer:
    """A listener that waits for one reply."""

    def __init__(self, msg_type: str) -> None:
        self._msg_type = msg_type
        self._reply: asyncio.Future[dict[str, Any] | SandcellError] = (
            asyncio.get_running_loop().create_future()
        )

    def on_message(self, channel: Channel, message: Message) -> None:
        if message.msg_type == self._msg_type and not self._reply.done():
            self._reply.set_result(content_of(message))

    def on_run_end(self, msg_id: str, ended: RunEnded) -> None:
        if not self._reply.done():
            turned_away = ended.aborted and ended.end.cause == "exited"
            code = ErrorCode.BUSY if turned_away else ErrorCode.CONTEXT_DIED
            self._reply.set_result(error(code, ended.reason))

    @property
    def is_done(self) -> bool:
        """Whether it has the reply, or none will come."""
        return self._reply.done()

    async def content(self) -> dict[str, Any]:
        """Return the content of the reply.

        Raises:
            Gone (CONTEXT_DIED): none will come. Conflict (BUSY): its turn did not come in time.
        """
        answer = await self._reply
        if isinstance(answer, SandcellError):
            raise answer
        return answer


class Request:
    """Anything else that was asked of the kernel: over when idle was said, and the reply where one is due."""

    def __init__(self, channel: Channel, message: Message, listener: RunListener) -> None:
        self.message = message
        self._channel: Channel = channel
        self._listener = listener
        self._reply_type = reply_type(message.msg_type)
        self._owed = {"idle", self._reply_type} - {""}

    @property
    def is_over(self) -> bool:
        return not self._owed

    def expects(self, channel: Channel) -> bool:
        """Whether something is still to come for it on a channel."""
        return (self._reply_type if channel == self._channel else "idle") in self._owed

    @property
    def is_unanswered(self) -> bool:
        """Whether the kernel is done with it, as it says, and has not answered yet."""
        return self._owed == {self._reply_type}

    def receive(self, channel: Channel, message: Message) -> None:
        kind = message.msg_type
        if kind == "status":
            self._owed.discard(take_text(content_of(message), "execution_state"))
        else:
            self._owed.discard(kind)
        self._listener.on_message(channel, message)

    def tell(self, channel: Channel, message: Message) -> None:
        """Hand its asker a message that is no answer."""
        self._listener.on_message(channel, message)

    def answer(self, problem: str) -> None:
        """Answer in the kernel's place that it did not."""
        content: dict[str, Any] = {
            "status": "error",
            "ename": "NoReply",
            "evalue": problem,
            "traceback": [],
        }
        reply = new_message(self._reply_type, content, session=_SESSION, parent=self.message.header)
        self.receive(self._channel, reply)

    def abandon(self, reason: str) -> None:
        """Report that the kernel ended before it had answered."""
        end = End(cause="lost", at=time.time(), state="lost")
        ended = RunEnded(
            end=end, replied=len(self._owed) == 1, idle="idle" not in self._owed, aborted=False, reason=reason
        )
        self._listener.on_run_end(self.message.msg_id, ended)


class Routes:
    """Who gets what a kernel says: found by the header of the request that it answers.

    Clients choose the ids of their requests, and two may choose the same one; then session and type decide, and
    between requests that are alike in all that, the order in which they came.
    """

    def __init__(self) -> None:
        self._asked: dict[str, list[Run | Request]] = {}  # by msg_id, what is open and what may still be late
        self._open: dict[Run | Request, None] = {}
        self._late: deque[Run | Request] = deque()
        self._debugging: Request | None = None

    def open(self, asked: Run | Request) -> None:
        self._asked.setdefault(asked.message.msg_id, []).append(asked)
        self._open[asked] = None
        if isinstance(asked, Request) and asked.message.msg_type == "debug_request":
            self._debugging = asked

    def deliver(self, channel: Channel, message: Message) -> Run | Request | None:
        """Hand a message to who asked, and return that; what answers nobody's request is dropped. Raises BadMessage."""
        if message.msg_type == "debug_event" and self._debugging is not None:
            # Its parent is whatever the kernel served last; who has to know is who debugs.
            self._debugging.tell(channel, message)
            return None
        asked = self._who_asked(channel, message.parent) if message.parent is not None else None
        if asked is not None:
            asked.receive(channel, message)
            if asked.is_over:
                self.close(asked)
        return asked

    def close(self, asked: Run | Request) -> None:
        """From now on what comes for it is late."""
        if asked in self._open:
            del self._open[asked]
            self._late.append(asked)
            if len(self._late) > _LATE_KEPT:
                self._forget(self._late.popleft())

    def is_open(self, asked: Run | Request) -> bool:
        return asked in self._open

    def take_unanswered(self) -> list[Request]:
        """Return the requests that wait for an answer, which they will not get here any more."""
        requests = [asked for asked in self._open if isinstance(asked, Request)]
        for request in requests:
            del self._open[request]
            self._forget(request)
        return requests

    @property
    def count(self) -> int:
        """How many wait for an answer."""
        return len(self._open)

    def _who_asked(self, channel: Channel, parent: Header) -> Run | Request | None:
        found = self._asked.get(parent.msg_id, [])
        if len(found) > 1:
            known = (parent.session, parent.msg_type)
            found = [
                each for each in found if (each.message.head.session, each.message.msg_type) == known
            ] or found
        asking = [each for each in found if each in self._open]
        # Replies and idle come by different sockets: the second reply may be here before the first idle.
        owed = next((each for each in asking if each.expects(channel)), None)
        return owed or next(iter(asking or found[-1:]), None)

    def _forget(self, asked: Run | Request) -> None:
        msg_id = asked.message.msg_id
        self._asked[msg_id].remove(asked)
        if not self._asked[msg_id]:
            del self._asked[msg_id]


class RunQueue:
    """The runs that wait, first come first served."""

    def __init__(self) -> None:
        self._waiting: deque[Run] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, run: Run) -> None:
        self._waiting.append(run)

    def pop(self) -> Run:
        return self._waiting.popleft()

    def remove(self, run: Run) -> bool:
        """Take `run` out; False where it does not wait."""
        try:
            self._waiting.remove(run)
        except ValueError:
            return False
        return True

    def position_of(self, run: Run) -> int | None:
        """Return how many runs wait before it, None where it does not wait."""
        return next((at for at, waiting in enumerate(self._waiting) if waiting is run), None)

    def take(self, *, origin: str | None = None) -> list[Run]:
        """Return the runs of `origin`, or all, which wait no more."""
        taken = [run for run in self._waiting if origin is None or run.origin == origin]
        self._waiting = deque(run for run in self._waiting if origin is not None and run.origin != origin)
        return taken
