"""The pure machine of a front: a Jupyter kernel as a front end sees it.

Inputs are what the front end sends, what the context's kernel sends for this front, and how work that the front
asked for went on. Each input returns the actions that follow, in order. No IO, no task and no clock is known here.

The rules, from the messaging specification 5.5 and from what front ends hold kernels to:

* Requests and what answers them keep their own header bytes, so parents match without rewriting.
* Cells run one after another, wherever they run. A cell has ended when its reply and its idle are both there;
  the reply then goes out before idle, and every output before both.
* After an error with `stop_on_error`, the cells that wait are answered "aborted".
* Busy and idle come from whoever serves the request: relayed for the kernel's, ours for the rest.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from sandcell_kernel.actions import (
    AskKernelInfo,
    Forward,
    Interrupt,
    Restart,
    RunShell,
    Shutdown,
    Submit,
    TakeTicket,
)
from sandcell_kernel.answers import Problem, describe_kernel, reply_type
from sandcell_kernel.cells import PythonCell, ShellCell, WrongCell
from sandcell_kernel.outbox import Outbox
from sandcell_kernel.requests import (
    INTERRUPTED,
    Relay,
    Run,
    command_problem,
    flag_field,
    is_object,
    is_python,
    know_nothing,
    number_field,
    read_run,
    text_field,
)
from sandcell_kernel.seen import Seen
from sandcell_kernel.shell_output import ShellOutput
from sandcell_kernel.wire import BadMessage, ChannelMessage, RequestKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sandcell_container.end import Cause, CommandEnd
    from sandcell_kernel.actions import Action
    from sandcell_kernel.shell_output import StreamName, StreamText
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Front"]

# How a run that its kernel did not answer is named to the front end.
_NAMES: dict[Cause, str] = {"interrupted": "KeyboardInterrupt", "timeout": "TimeoutError"}
_DIED = "ContextDied"
_SILENT = "the kernel gave no answer that could be read"
_LIMITED = ("complete_request", "inspect_request", "is_complete_request")  # an editor waits for these


class Front:
    """See the module. `session` is the session of the kernel that the front end sees."""

    def __init__(
        self,
        *,
        session: str,
        version: str,
        max_waiting: int = 4096,
        max_shell_output: int = 2**20,
        seen: Seen | None = None,
    ) -> None:
        self._version = version
        self._max_waiting = max_waiting
        self._max_shell_output = max_shell_output
        self._seen = seen or Seen()
        self._out = Outbox(session, self._seen)
        self._waiting: deque[Run] = deque()
        self._running: Run | None = None
        self._relays: dict[RequestKey, Relay] = {}
        self._served: dict[RequestKey, ChannelMessage] = {}  # ours to answer, but not at once
        self._info: dict[str, Any] | None = None
        self._count = 0

    @property
    def is_busy(self) -> bool:
        """Whether a cell runs or waits."""
        return self._running is not None

    # --- from the front end

    def receive(self, channel: Channel, message: Message) -> list[Action]:
        """Take a message of the front end; one that was taken before is not taken again, but answered again.

        Raises:
            BadMessage: its header is not valid.
        """
        if not self._seen.add(message):
            self._out.repeat(channel, message)
        elif message.head.subshell_id is not None:
            self._out.refuse(channel, message, _unsupported("subshells"))
        else:
            route = self._ROUTES.get(message.msg_type, Front._forward)
            route(self, channel, message)
        return self._take()

    def _execute(self, channel: Channel, message: Message) -> None:
        try:
            run = read_run(channel, message)
        except BadMessage as problem:
            self._out.refuse(channel, message, Problem(name="BadMessage", value=str(problem)))
            return
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(run)
        else:
            self._out.refuse(channel, message, _full(self._max_waiting, "cells"))

    def _answer_input(self, channel: Channel, message: Message) -> None:
        # A reply that comes after its cell ended would be taken as the answer to the next question.
        if self._running is not None and self._running.wants_input:
            self._running.wants_input = False
            self._out.do(Forward(channel, message))

    def _tell_kernel_info(self, channel: Channel, message: Message) -> None:
        if self._info is not None:
            self._out.serve(channel, message, self._info)
        else:
            self._begin(channel, message)
            self._out.do(AskKernelInfo(message.key))

    def _interrupt(self, channel: Channel, message: Message) -> None:
        run = self._running
        shell = run.where if run is not None and isinstance(run.where, ShellCell) else None
        if run is not None and shell is not None:
            run.interrupted = True
            if not run.started:
                self._out.serve(channel, message, {})
                return
        self._begin(channel, message)
        self._out.do(Interrupt(message.key, shell.session_id if shell else None))

    def _shut_down(self, channel: Channel, message: Message) -> None:
        if flag_field(message, "restart", default=False):
            self._begin(channel, message)
            self._out.do(Restart(message.key))
        else:
            self._out.busy(message)
            self._out.reply_shutdown(channel, message, restart=False)
            self._out.do(Shutdown())

    def _complete(self, channel: Channel, message: Message) -> None:
        if is_python(message):
            self._forward(channel, message)
        else:
            self._out.serve(channel, message, know_nothing(message))

    def _refuse_unsupported(self, channel: Channel, message: Message) -> None:
        self._out.refuse(channel, message, _unsupported(message.msg_type))

    def _forward(self, channel: Channel, message: Message) -> None:
        if len(self._relays) < self._max_waiting:
            self._relays[message.key] = Relay(channel, message)
            self._out.do(Forward(channel, message, message.msg_type in _LIMITED))
        else:
            self._out.refuse(channel, message, _full(self._max_waiting, "requests"))

    _ROUTES: ClassVar[dict[str, Callable[[Front, Channel, Message], None]]] = {
        "execute_request": _execute,
        "input_reply": _answer_input,
        "kernel_info_request": _tell_kernel_info,
        "interrupt_request": _interrupt,
        "shutdown_request": _shut_down,
        "complete_request": _complete,
        "inspect_request": _complete,
        "is_complete_request": _complete,
        "connect_request": _refuse_unsupported,
        "debug_request": _refuse_unsupported,
        "create_subshell_request": _refuse_unsupported,
        "delete_subshell_request": _refuse_unsupported,
        "list_subshell_request": _refuse_unsupported,
    }

    # --- from the context's kernel

    def relay(self, channel: Channel, message: Message) -> list[Action]:
        """Take a message of the kernel whose parent is a request of this front.

        What comes for a cell that has ended (a thread that still prints) is passed on; a status is not.

        Raises:
            BadMessage: its header is not valid.
        """
        parent = message.parent_key
        if self._running is not None and parent == self._running.request.key:
            self._hear_run(self._running, channel, message)
        elif parent is not None and parent in self._relays:
            self._hear_relay(self._relays[parent], channel, message)
        elif channel == "iopub" and message.msg_type != "status":
            self._out.pass_on(channel, message)
        return self._take()

    def _hear_run(self, run: Run, channel: Channel, message: Message) -> None:
        kind = message.msg_type
        if kind == "execute_reply":
            run.reply = message if is_object(message) else None
        elif kind == "status":
            self._hear_status(run, message)
        else:
            run.wants_input |= kind == "input_request"
            self._out.pass_on(channel, message)

    def _hear_relay(self, relay: Relay, channel: Channel, message: Message) -> None:
        if message.msg_type == "status":
            self._hear_status(relay, message)
        elif channel == relay.channel and message.msg_type == reply_type(relay.request.msg_type):
            relay.reply = message
            if not relay.expired:
                self._out.pass_reply(channel, relay.request, message)
        elif not relay.expired:
            self._out.pass_on(channel, message)
        if relay.is_done:
            del self._relays[relay.request.key]
            if not relay.expired:
                self._out.close(relay.request)
                self._out.idle(relay.request, relay.idle)

    def _hear_status(self, asked: Run | Relay, message: Message) -> None:
        state = text_field(message, "execution_state")
        if state == "idle":
            asked.idle = message
        elif state == "busy" and not asked.busy:
            asked.busy = True
            # A request that was answered in the kernel's place is idle already: nothing would end this busy.
            if isinstance(asked, Run) or not asked.expired:
                self._out.pass_on("iopub", message)

    def end_run(self, msg_id: str, *, cause: Cause, reason: str, lost: bool, note: str = "") -> list[Action]:
        """End the cell that runs: its kernel will say nothing more for it.

        A reply that the kernel left unsaid is an error with `reason`: it died, or the cell never got its turn.
        `lost` says that the kernel is gone, and everything that waited for its answer with it. `note` is told on
        stderr: that the cell found no earlier state, because somebody else's run had lost it.
        """
        if lost:
            self._fail_relays(Problem(name=_DIED, value=reason))
        run = self._running_run(RequestKey(msg_id, "execute_request"))
        if run is not None:
            self._be_busy(run)
            if note and not run.silent:
                self._out.note(run.request, note)
            if run.reply is not None:
                self._out.pass_reply(run.channel, run.request, run.reply)
                self._close_run(run, run.reply)
            else:
                name = _DIED if lost else _NAMES.get(cause, _DIED)
                self._fail_run(run, Problem(name=name, value=reason or _SILENT), is_noted=lost)
        return self._take()

    def expire(self, key: RequestKey) -> list[Action]:
        """Answer a limited request emptily, if the kernel has not answered it yet."""
        relay = self._relays.get(key)
        if relay is not None and relay.reply is None and not relay.expired:
            relay.expired = True
            self._out.serve(relay.channel, relay.request, know_nothing(relay.request), is_busy=relay.busy)
        return self._take()

    # --- how asked work went on

    def learn_kernel(self, inner: Mapping[str, Any]) -> list[Action]:
        """Take the content of the kernel's kernel_info_reply and answer those who asked for ours."""
        self._info = describe_kernel(self._version, inner)
        for key, (channel, message) in list(self._served.items()):
            if message.msg_type == "kernel_info_request":
                del self._served[key]
                self._out.serve(channel, message, self._info, is_busy=True)
        return self._take()

    def start_shell(self, key: RequestKey, count: int) -> list[Action]:
        """Go on with a shell cell that has got its execution count."""
        run = self._running_run(key)
        if run is not None:
            self._count = max(self._count, count)
            self._run_shell(run, count)
        return self._take()

    def show_shell(self, key: RequestKey, name: StreamName, data: bytes) -> list[Action]:
        """Show output of a shell cell."""
        run = self._running_run(key)
        if run is not None:
            self._show(run, run.output.feed(name, data))
        return self._take()

    def end_shell(self, key: RequestKey, end: CommandEnd) -> list[Action]:
        """End a shell cell; one that did not exit with 0 is an error that names how it ended."""
        run = self._running_run(key)
        if run is not None:
            self._show(run, run.output.finish())
            problem = command_problem(end, interrupted=run.interrupted)
            if problem is not None:
                self._fail_run(run, problem)
            else:
                self._out.reply_ran(run.channel, run.request, count=run.count)
                self._close_run(run)
        return self._take()

    def finish(self, key: RequestKey) -> list[Action]:
        """An interrupt or a restart was done."""
        asked = self._served.pop(key, None)
        if asked is not None and asked.message.msg_type == "shutdown_request":
            self._out.reply_shutdown(asked.channel, asked.message, restart=True)
        elif asked is not None:
            self._out.serve(asked.channel, asked.message, {}, is_busy=True)
        return self._take()

    def fail(self, key: RequestKey, problem: Problem) -> list[Action]:
        """Whatever was asked for the request `key` could not be done."""
        asked = self._served.pop(key, None)
        relay = self._relays.pop(key, None)
        run = self._running_run(key)
        if asked is not None and asked.message.msg_type == "kernel_info_request":
            self._out.serve(asked.channel, asked.message, describe_kernel(self._version), is_busy=True)
        elif asked is not None:
            self._out.refuse(asked.channel, asked.message, problem, is_busy=True)
        elif relay is not None and not relay.expired:
            self._out.refuse(relay.channel, relay.request, problem, is_busy=relay.busy)
        elif run is not None:
            self._fail_run(run, problem)
        return self._take()

    # --- inside

    def _take(self) -> list[Action]:
        while self._running is None and self._waiting:
            self._running = self._waiting.popleft()
            self._start(self._running)
        return self._out.take()

    def _start(self, run: Run) -> None:
        match run.where:
            case PythonCell():
                self._out.do(Submit(run.request))
            case ShellCell():
                self._be_busy(run)
                if run.store_history:
                    self._out.do(TakeTicket(run.request.key))
                else:
                    self._run_shell(run, self._count)
            case WrongCell(problem):
                self._fail_run(run, Problem(name="UsageError", value=problem))

    def _run_shell(self, run: Run, count: int) -> None:
        assert isinstance(run.where, ShellCell)
        run.count = count
        if not run.silent:
            self._out.execute_input(run.request, text_field(run.request, "code"), count)
        if run.interrupted:
            self._fail_run(run, INTERRUPTED)
            return
        run.started = True
        run.output = ShellOutput(self._max_shell_output)
        self._out.do(RunShell(run.request.key, run.where.session_id, run.where.code))

    def _running_run(self, key: RequestKey) -> Run | None:
        run = self._running
        return run if run is not None and run.request.key == key else None

    def _show(self, run: Run, texts: Iterable[StreamText]) -> None:
        for name, text in texts:
            self._out.stream(run.request, name, text)

    def _fail_run(self, run: Run, problem: Problem, *, is_noted: bool = False) -> None:
        """Say what the kernel did not. `is_noted`: also as a line on stderr."""
        self._be_busy(run)
        if is_noted:
            self._out.note(run.request, problem.value)
        self._out.error(run.request, problem)
        self._out.reply_error(run.channel, run.request, problem, count=run.count or self._count)
        self._close_run(run, failed=True)

    def _close_run(self, run: Run, reply: Message | None = None, *, failed: bool = False) -> None:
        """Say idle, after the reply; `reply` is the kernel's own."""
        self._running = None
        self._out.idle(run.request, run.idle)
        if reply is not None:
            self._count = max(self._count, number_field(reply, "execution_count"))
            failed = text_field(reply, "status") != "ok"
        if failed and run.stop_on_error and not run.silent:
            self._abort_waiting()

    def _abort_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for run in waiting:
            self._out.serve(run.channel, run.request, {"status": "aborted"})

    def _fail_relays(self, problem: Problem) -> None:
        relays, self._relays = self._relays, {}
        for relay in relays.values():
            if not relay.expired:
                self._out.refuse(relay.channel, relay.request, problem, is_busy=relay.busy)

    def _be_busy(self, run: Run) -> None:
        if not run.busy:
            run.busy = True
            self._out.busy(run.request)

    def _begin(self, channel: Channel, message: Message) -> None:
        self._out.busy(message)
        self._served[message.key] = ChannelMessage(channel, message)


def _unsupported(what: str) -> Problem:
    return Problem(name="UNSUPPORTED", value=f"this kernel does not serve {what}")


def _full(count: int, what: str) -> Problem:
    return Problem(name="BUSY", value=f"{count} {what} wait already")
