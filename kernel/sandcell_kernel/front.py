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
from sandcell_kernel.answers import Answers, Problem, describe_kernel, reply_type
from sandcell_kernel.cells import PythonCell, ShellCell, WrongCell
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
_LIMITED = {
    "complete_request",
    "inspect_request",
    "is_complete_request",
}  # an editor waits for these while it is typed in


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
        self._session = session
        self._version = version
        self._max_waiting = max_waiting
        self._max_shell_output = max_shell_output
        self._answers = Answers(session)
        self._seen = seen or Seen()
        self._out: list[Action] = []
        self._waiting: deque[Run] = deque()
        self._running: Run | None = None
        self._relays: dict[RequestKey, Relay] = {}
        self._served: dict[
            RequestKey, ChannelMessage
        ] = {}  # requests that are ours to answer, and take a while
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
            self._repeat(channel, message)
        elif message.head.subshell_id is not None:
            self._refuse(channel, message, _unsupported("subshells"))
        else:
            route = self._ROUTES.get(message.msg_type, Front._forward)
            route(self, channel, message)
        return self._take()

    def _repeat(self, channel: Channel, message: Message) -> None:
        if not self._seen.is_closed(message):
            return  # its answer will come
        reply = self._seen.reply(message)
        if reply is not None:
            self._out.append(reply)
        elif reply_type(message.msg_type):
            problem = Problem(name="LOST", value="this was done before; its reply is no longer kept")
            self._out.append(self._answers.error_reply(channel, message, problem))
        self._out.append(self._answers.status(message, "idle"))

    def _execute(self, channel: Channel, message: Message) -> None:
        try:
            run = read_run(channel, message)
        except BadMessage as problem:
            self._refuse(channel, message, Problem(name="BadMessage", value=str(problem)))
            return
        if len(self._waiting) >= self._max_waiting:
            text = f"{self._max_waiting} cells wait already"
            self._refuse(channel, message, Problem(name="BUSY", value=text))
            return
        self._waiting.append(run)
        self._start_next()

    def _answer_input(self, channel: Channel, message: Message) -> None:
        # A reply that comes after its cell ended would be taken as the answer to the next question.
        if self._running is not None and self._running.wants_input:
            self._running.wants_input = False
            self._out.append(Forward(channel, message))

    def _tell_kernel_info(self, channel: Channel, message: Message) -> None:
        if self._info is not None:
            self._serve(channel, message, self._info)
            return
        self._begin(channel, message)
        self._out.append(AskKernelInfo(message.key))

    def _interrupt(self, channel: Channel, message: Message) -> None:
        run = self._running
        shell = run.where if run is not None and isinstance(run.where, ShellCell) else None
        if run is not None and shell is not None:
            run.interrupted = True
            if not run.started:
                self._serve(channel, message, {})
                return
        self._begin(channel, message)
        self._out.append(Interrupt(message.key, shell.session_id if shell else None))

    def _shut_down(self, channel: Channel, message: Message) -> None:
        self._begin(channel, message)
        if flag_field(message, "restart", default=False):
            self._out.append(Restart(message.key))
        else:
            self._end(message.key, {"restart": False})
            self._out.append(Shutdown())

    def _complete(self, channel: Channel, message: Message) -> None:
        if is_python(message):
            self._forward(channel, message)
        else:
            self._serve(channel, message, know_nothing(message))

    def _refuse_unsupported(self, channel: Channel, message: Message) -> None:
        self._refuse(channel, message, _unsupported(message.msg_type))

    def _forward(self, channel: Channel, message: Message) -> None:
        if len(self._relays) >= self._max_waiting:
            text = f"{self._max_waiting} requests wait for the kernel already"
            self._refuse(channel, message, Problem(name="BUSY", value=text))
            return
        self._relays[message.key] = Relay(channel, message)
        self._out.append(Forward(channel, message, message.msg_type in _LIMITED))

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
            self._pass(channel, message)
        return self._take()

    def _hear_run(self, run: Run, channel: Channel, message: Message) -> None:
        kind = message.msg_type
        if kind == "execute_reply":
            run.reply = message if is_object(message) else None
        elif kind == "status":
            self._hear_status(run, message)
        else:
            run.wants_input |= kind == "input_request"
            self._pass(channel, message)

    def _hear_relay(self, relay: Relay, channel: Channel, message: Message) -> None:
        if message.msg_type == "status":
            self._hear_status(relay, message)
        elif channel == relay.channel and message.msg_type == reply_type(relay.request.msg_type):
            relay.reply = message
            self._reply_for(relay, message)
        elif not relay.expired:
            self._pass(channel, message)
        if relay.is_done:
            self._close_relay(relay)

    def _reply_for(self, relay: Relay, message: Message) -> None:
        if not relay.expired:
            self._reply(relay.request, ChannelMessage(relay.channel, message.with_session(self._session)))

    def _close_relay(self, relay: Relay) -> None:
        del self._relays[relay.request.key]
        if relay.idle is not None and not relay.expired:
            self._seen.close(relay.request)
            self._pass("iopub", relay.idle)

    def _hear_status(self, asked: Run | Relay, message: Message) -> None:
        state = text_field(message, "execution_state")
        if state == "idle":
            asked.idle = message
        elif state == "busy" and not asked.busy:
            asked.busy = True
            # A request that was answered in the kernel's place is idle already: nothing would end this busy.
            if isinstance(asked, Run) or not asked.expired:
                self._pass("iopub", message)

    def end_run(self, msg_id: str, *, cause: Cause, reason: str, lost: bool, note: str = "") -> list[Action]:
        """End the cell that runs: its kernel will say nothing more for it.

        A reply that the kernel left unsaid is an error with `reason`: it died, or the cell never got its turn.
        `lost` says that the kernel is gone, and everything that waited for its answer with it. `note` is told on
        stderr: that the cell found no earlier state, because somebody else's run had lost it.
        """
        if lost:
            self._fail_relays(Problem(name=_DIED, value=reason))
        run = self._running_run(RequestKey(msg_id, "execute_request"))
        if run is not None and note and not run.silent:
            self._out.append(self._answers.stream(run.request, "stderr", f"[sandcell] {note}\n"))
        if run is not None and run.reply is None:
            name = _DIED if lost else _NAMES.get(cause, _DIED)
            self._fail_run(run, Problem(name=name, value=reason or _SILENT), note=lost)
        elif run is not None and run.reply is not None:
            self._close_run(run, ChannelMessage(run.channel, run.reply.with_session(self._session)))
        return self._take()

    def expire(self, key: RequestKey) -> list[Action]:
        """Answer a limited request emptily, if the kernel has not answered it yet."""
        relay = self._relays.get(key)
        if relay is not None and relay.reply is None and not relay.expired:
            relay.expired = True
            self._serve(relay.channel, relay.request, know_nothing(relay.request), busy=not relay.busy)
        return self._take()

    # --- how asked work went on

    def learn_kernel(self, inner: Mapping[str, Any]) -> list[Action]:
        """Take the content of the kernel's kernel_info_reply and answer those who asked for ours."""
        self._info = describe_kernel(self._version, inner)
        for key, (_, message) in list(self._served.items()):
            if message.msg_type == "kernel_info_request":
                self._end(key, self._info)
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
            if problem is None:
                content: dict[str, Any] = {
                    "execution_count": run.count,
                    "user_expressions": {},
                    "payload": [],
                }
                self._close_run(run, self._answers.reply(run.channel, run.request, content))
            else:
                self._fail_run(run, problem)
        return self._take()

    def finish(self, key: RequestKey) -> list[Action]:
        """An interrupt or a restart was done."""
        asked = self._served.get(key)
        if asked is not None:
            self._end(key, {"restart": True} if asked.message.msg_type == "shutdown_request" else {})
        return self._take()

    def fail(self, key: RequestKey, problem: Problem) -> list[Action]:
        """Whatever was asked for the request `key` could not be done."""
        asked = self._served.pop(key, None)
        relay = self._relays.pop(key, None)
        run = self._running
        if asked is not None and asked.message.msg_type == "kernel_info_request":
            self._serve(asked.channel, asked.message, describe_kernel(self._version), busy=False)
        elif asked is not None:
            self._fail_request(asked.channel, asked.message, problem)
        elif relay is not None and not relay.expired:
            self._fail_request(relay.channel, relay.request, problem)
        elif run is not None and run.request.key == key:
            self._fail_run(run, problem)
        return self._take()

    # --- inside

    def _start_next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        run = self._running = self._waiting.popleft()
        match run.where:
            case PythonCell():
                self._out.append(Submit(run.request))
            case ShellCell():
                self._be_busy(run)
                if run.store_history:
                    self._out.append(TakeTicket(run.request.key))
                else:
                    self._run_shell(run, self._count)
            case WrongCell(problem):
                self._fail_run(run, Problem(name="UsageError", value=problem))

    def _run_shell(self, run: Run, count: int) -> None:
        assert isinstance(run.where, ShellCell)
        run.count = count
        if not run.silent:
            self._out.append(self._answers.execute_input(run.request, text_field(run.request, "code"), count))
        if run.interrupted:
            self._fail_run(run, INTERRUPTED)
            return
        run.started = True
        run.output = ShellOutput(self._max_shell_output)
        self._out.append(RunShell(run.request.key, run.where.session_id, run.where.code))

    def _running_run(self, key: RequestKey) -> Run | None:
        run = self._running
        return run if run is not None and run.request.key == key else None

    def _show(self, run: Run, texts: Iterable[StreamText]) -> None:
        self._out += [self._answers.stream(run.request, name, text) for name, text in texts]

    def _fail_run(self, run: Run, problem: Problem, *, note: bool = False) -> None:
        """Say what the kernel did not. `note`: also as a line on stderr, which batch tools keep."""
        self._be_busy(run)
        if note:
            self._out.append(self._answers.stream(run.request, "stderr", f"[sandcell] {problem.value}\n"))
        self._out.append(self._answers.error(run.request, problem))
        reply = self._answers.error_reply(run.channel, run.request, problem, count=run.count or self._count)
        self._close_run(run, reply)

    def _close_run(self, run: Run, reply: ChannelMessage) -> None:
        self._running = None
        self._be_busy(run)
        self._reply(run.request, reply)
        if run.idle is not None:
            self._pass("iopub", run.idle)
        else:
            self._out.append(self._answers.status(run.request, "idle"))
        self._count = max(self._count, number_field(reply.message, "execution_count"))
        if text_field(reply.message, "status") != "ok" and run.stop_on_error and not run.silent:
            self._abort_waiting()
        self._start_next()

    def _abort_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for run in waiting:
            self._serve(run.channel, run.request, {"status": "aborted"})

    def _fail_relays(self, problem: Problem) -> None:
        relays, self._relays = self._relays, {}
        for relay in relays.values():
            if not relay.expired:
                self._fail_request(relay.channel, relay.request, problem, busy=not relay.busy)

    def _be_busy(self, run: Run) -> None:
        if not run.busy:
            run.busy = True
            self._out.append(self._answers.status(run.request, "busy"))

    def _begin(self, channel: Channel, message: Message) -> None:
        self._out.append(self._answers.status(message, "busy"))
        self._served[message.key] = ChannelMessage(channel, message)

    def _end(self, key: RequestKey, content: dict[str, Any]) -> None:
        channel, message = self._served.pop(key)
        self._reply(message, self._answers.reply(channel, message, content))
        if message.msg_type == "shutdown_request":
            self._out.append(self._answers.copy_of_shutdown(message, restart=bool(content["restart"])))
        self._out.append(self._answers.status(message, "idle"))

    def _serve(
        self, channel: Channel, message: Message, content: dict[str, Any], *, busy: bool = True
    ) -> None:
        if busy:
            self._out.append(self._answers.status(message, "busy"))
        self._reply(message, self._answers.reply(channel, message, content))
        self._out.append(self._answers.status(message, "idle"))

    def _refuse(self, channel: Channel, message: Message, problem: Problem) -> None:
        self._fail_request(channel, message, problem, busy=True)

    def _fail_request(
        self, channel: Channel, message: Message, problem: Problem, *, busy: bool = False
    ) -> None:
        told = self._answers.refused(channel, message, problem)
        self._tell(told if busy else told[1:])
        self._seen.close(message)

    def _reply(self, request: Message, reply: ChannelMessage) -> None:
        self._seen.close(request, reply)
        self._out.append(reply)

    def _tell(self, messages: Iterable[ChannelMessage]) -> None:
        self._out += messages

    def _pass(self, channel: Channel, message: Message) -> None:
        self._out.append(ChannelMessage(channel, message.with_session(self._session)))

    def _take(self) -> list[Action]:
        out, self._out = self._out, []
        return out


def _unsupported(what: str) -> Problem:
    return Problem(name="UNSUPPORTED", value=f"this kernel does not serve {what}")
