"""The pure machine of a front: a Jupyter kernel as a front end sees it.

Inputs are what the front end sends, what kernels of contexts send for this front, and how work that the front
asked for went on. Each input returns the actions that follow, in order. No IO, no task and no clock is known here.

The rules, from the messaging specification 5.5 and from what front ends hold kernels to:

* Requests and what answers them keep their own header bytes, so parents match without rewriting.
* Cells run one after another, wherever they run: `cell_queue`. Everything else is answered beside them: `relays`.
* Busy and idle come from whoever serves the request: relayed for the kernel's, ours for the rest.
* A message for a subshell goes to the front's own kernel, whatever else runs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sandcell_kernel.actions import AskComms, AskKernelInfo, Forward, Interrupt, Restart, Shutdown
from sandcell_kernel.answers import Problem, describe_kernel
from sandcell_kernel.cell_queue import DIED, CellQueue
from sandcell_kernel.cells import ContextCell, PythonCell, read_cell
from sandcell_kernel.comms import Comms
from sandcell_kernel.editor_desk import EditorDesk
from sandcell_kernel.outbox import Outbox
from sandcell_kernel.plain import text_of
from sandcell_kernel.relays import Relays
from sandcell_kernel.requests import (
    Relay,
    Run,
    flag_field,
    number_field,
    object_field,
    read_run,
    text_field,
    unsupported,
)
from sandcell_kernel.seen import Seen
from sandcell_kernel.shapes import check_shape
from sandcell_kernel.wire import BadMessage, ChannelMessage, RequestKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandcell_container.end import Cause
    from sandcell_kernel.actions import Action
    from sandcell_kernel.shell_output import StreamName
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Front"]

_ROUTED = "this cell does not run in the kernel's own interpreter, so it cannot be debugged: put the code into a cell without the first line {line!r}"
_SUBSHELL_CELL = "a cell whose first line is ours runs in the notebook itself, not in a subshell"


class Front:
    """See the module. `session` is the session of the kernel that the front end sees. `has_tickets` and
    `has_network`: see `CellQueue`."""

    def __init__(
        self,
        *,
        session: str,
        version: str,
        max_waiting: int = 4096,
        max_shell_output: int = 2**20,
        has_tickets: bool = True,
        has_network: bool = False,
        seen: Seen | None = None,
    ) -> None:
        self._version = version
        self._seen = seen or Seen()
        self._out = Outbox(session, self._seen)
        self._cells = CellQueue(
            self._out,
            max_waiting=max_waiting,
            max_output=max_shell_output,
            has_tickets=has_tickets,
            has_network=has_network,
        )
        self._relays = Relays(self._out, max_open=max_waiting)
        self._comms = Comms()
        self._desk = EditorDesk(self._out, self._relays, self._comms)
        self._served: dict[RequestKey, ChannelMessage] = {}  # ours to answer, but not at once
        self._info: dict[str, Any] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a cell runs or waits."""
        return self._cells.running is not None

    # --- from the front end

    def receive(self, channel: Channel, message: Message) -> list[Action]:
        """Take a message of the front end; one that was taken before is not taken again, but answered again.

        Raises:
            BadMessage: its header is not valid.
        """
        if not self._seen.add(message):
            self._out.repeat(channel, message)
        elif message.head.subshell_id is not None:
            self._serve_subshell(channel, message)
        else:
            route = self._ROUTES.get(message.msg_type, Front._forward)
            route(self, channel, message)
        return self._take()

    def refuse(self, channel: Channel, message: Message, problem: Problem) -> list[Action]:
        """Answer a message that could not be taken, so that nobody waits for it."""
        self._out.refuse(channel, message, problem)
        return self._take()

    def _serve_subshell(self, channel: Channel, message: Message) -> None:
        if message.msg_type == "execute_request" and not _is_for_kernel(message):
            self._out.refuse(channel, message, Problem(name="UNSUPPORTED", value=_SUBSHELL_CELL))
        elif message.msg_type.startswith("comm_"):
            self._pass_comm(channel, message)
        else:
            self._forward(channel, message)

    def _execute(self, channel: Channel, message: Message) -> None:
        try:
            run = read_run(channel, message)
        except BadMessage as problem:
            self._out.refuse(channel, message, Problem(name="BadMessage", value=str(problem)))
        else:
            self._cells.add(run)

    def _answer_input(self, channel: Channel, message: Message) -> None:
        # A reply that comes after its cell ended would be taken as the answer to the next question.
        run = self._cells.running
        if self._cells.answer(channel, message):
            return
        if run is not None and run.wants_input:
            run.wants_input = False
            self._out.do(Forward(channel, message, context_id=_context_of(run)))
        else:
            self._relays.answer(channel, message)

    def _hear_errand(self, _channel: Channel, message: Message) -> None:
        self._cells.hear_errand(message)

    def _tell_kernel_info(self, channel: Channel, message: Message) -> None:
        if self._info is not None:
            self._out.serve(channel, message, self._info)
        else:
            self._begin(channel, message)
            self._out.do(AskKernelInfo(message.key))

    def _interrupt(self, channel: Channel, message: Message) -> None:
        work, run = self._cells.interrupt(), self._cells.running
        if work is not None and run is not None and not run.started:
            self._out.serve(channel, message, {})
            return
        self._begin(channel, message)
        self._out.do(Interrupt(message.key, work))

    def _shut_down(self, channel: Channel, message: Message) -> None:
        if flag_field(message, "restart", default=False):
            self._begin(channel, message)
            self._out.do(Restart(message.key))
        else:
            self._out.busy(message)
            self._out.reply_shutdown(channel, message, restart=False)
            self._out.do(Shutdown())

    def _ask_desk(self, channel: Channel, message: Message) -> None:
        self._desk.serve(channel, message)

    def _pass_comm(self, channel: Channel, message: Message) -> None:
        comm_id = text_field(message, "comm_id")
        self._relays.forward(Relay(channel, message, self._comms.context_of(comm_id)))
        if message.msg_type == "comm_close":
            self._comms.close(comm_id)

    def _tell_comms(self, channel: Channel, message: Message) -> None:
        others = self._comms.context_ids
        if not others:
            self._forward(channel, message)
        else:
            self._begin(channel, message)
            self._out.do(AskComms(message.key, text_field(message, "target_name"), others))

    def _debug(self, channel: Channel, message: Message) -> None:
        code = text_of(object_field(message, "arguments").get("code"))
        if text_field(message, "command") == "dumpCell" and not isinstance(read_cell(code), PythonCell):
            line = code.lstrip().partition("\n")[0][:40]
            self._out.serve(channel, message, _refused_debugging(message, _ROUTED.format(line=line)))
        else:
            self._forward(channel, message)

    def _refuse_unsupported(self, channel: Channel, message: Message) -> None:
        self._out.refuse(channel, message, unsupported(message.msg_type))

    def _forward(self, channel: Channel, message: Message) -> None:
        self._relays.forward(Relay(channel, message))

    _ROUTES: ClassVar[dict[str, Callable[[Front, Channel, Message], None]]] = {
        "execute_request": _execute,
        "input_reply": _answer_input,
        "errand_reply": _hear_errand,
        "kernel_info_request": _tell_kernel_info,
        "interrupt_request": _interrupt,
        "shutdown_request": _shut_down,
        "complete_request": _ask_desk,
        "inspect_request": _ask_desk,
        "is_complete_request": _ask_desk,
        "comm_open": _pass_comm,
        "comm_msg": _pass_comm,
        "comm_close": _pass_comm,
        "comm_info_request": _tell_comms,
        "debug_request": _debug,
        "connect_request": _refuse_unsupported,
    }

    # --- from kernels

    def relay(self, channel: Channel, message: Message, context_id: str | None = None) -> list[Action]:
        """Take a message of the kernel of a context (None: the front's own) whose parent is a request of this front.

        What comes for a cell that has ended (a thread that still prints) is passed on; a status is not.

        Raises:
            BadMessage: its header is not valid, or no front end can read it.
        """
        if channel in ("iopub", "stdin"):
            check_shape(message)
        if channel == "iopub" and message.msg_type in ("comm_open", "comm_close"):
            self._comms.note(message.msg_type, text_field(message, "comm_id"), context_id)
        parent, run = message.parent_key, self._cells.running
        asked = run if run is not None and parent == run.request.key else self._relays.find(parent)
        if asked is not None and message.msg_type == "status":
            self._hear_status(asked, message)
        elif isinstance(asked, Run):
            self._cells.hear(asked, channel, message)
        elif asked is not None:
            self._relays.hear(asked, channel, message)
        elif channel == "iopub" and message.msg_type != "status":
            self._cells.hear_late(parent, channel, message)
        if isinstance(asked, Relay):
            self._relays.settle(asked)
        return self._take()

    def _hear_status(self, asked: Run | Relay, message: Message) -> None:
        state = text_field(message, "execution_state")
        if state == "idle":
            asked.idle = message
        elif state == "busy" and not asked.busy:
            asked.busy = True
            # A request that was answered in the kernel's place is idle already: nothing would end this busy.
            if isinstance(asked, Run) or not asked.expired:
                self._out.pass_on("iopub", message)

    def end_run(
        self,
        msg_id: str,
        *,
        cause: Cause,
        reason: str,
        lost: bool,
        note: str = "",
        whole: str = "",
        context_id: str | None = None,
    ) -> list[Action]:
        """End the cell that runs: its kernel will say nothing more for it.

        A reply that the kernel left unsaid is an error with `reason`: it died, or the cell never got its turn.
        `lost` says that the kernel is gone, and everything that waited for its answer with it. `note` is told on
        stderr: that the cell found no earlier state, because somebody else's run had lost it. `whole` says where the
        output is that was too much to be shown.
        """
        if lost:
            self._relays.lose(context_id, Problem(name=DIED, value=reason))
            self._comms.lose(context_id)
        run = self._cells.running
        if run is not None and run.request.key == RequestKey(msg_id, "execute_request"):
            self._cells.end(run, cause=cause, reason=reason, lost=lost, note=note, whole=whole)
        return self._take()

    def expire(self, key: RequestKey) -> list[Action]:
        """Answer a limited request emptily, if the kernel has not answered it yet."""
        self._relays.expire(key)
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

    def tell_comms(self, key: RequestKey, comms: Mapping[str, Any]) -> list[Action]:
        """Take the comms of all contexts, as comm_info_replies have them."""
        self._answer(key, {"comms": dict(comms)})
        return self._take()

    def note_context(self, context_id: str) -> list[Action]:
        """Cells of this front run in another context, too."""
        self._comms.know(context_id)
        return self._take()

    def give_ticket(self, key: RequestKey, count: int) -> list[Action]:
        """Go on with a cell that has got its execution count."""
        self._cells.give_ticket(key, count)
        return self._take()

    def show_output(self, key: RequestKey, name: StreamName, data: bytes) -> list[Action]:
        """Show output of the work of a cell."""
        self._cells.show_output(key, name, data)
        return self._take()

    def show(
        self, key: RequestKey, data: dict[str, Any], *, display_id: str | None = None, is_update: bool = False
    ) -> list[Action]:
        """Display what work has found, by MIME type; an update replaces what has the same `display_id`."""
        self._cells.show(key, data, display_id=display_id, is_update=is_update)
        return self._take()

    def ask(self, key: RequestKey, prompt: str, *, password: bool = False) -> list[Action]:
        """Ask whoever runs the cell for a line; answered by an `Answer`, or never."""
        self._cells.ask(key, prompt, password=password)
        return self._take()

    def send_out(self, key: RequestKey, number: int) -> list[Action]:
        """Have the kernel process on the host do line `number` of a cell; answered by an `ErrandEnded`, or never."""
        self._cells.send_out(key, number)
        return self._take()

    def withdraw(self, key: RequestKey) -> list[Action]:
        """What was asked needs no answer any more: one that comes is dropped."""
        self._cells.withdraw(key)
        return self._take()

    def end_work(
        self, key: RequestKey, problem: Problem | None = None, *, payload: Sequence[dict[str, Any]] = ()
    ) -> list[Action]:
        """End a cell whose work is done; `payload` is what its front end is to do besides."""
        self._cells.end_work(key, problem, payload=payload)
        return self._take()

    def finish(self, key: RequestKey) -> list[Action]:
        """An interrupt or a restart was done."""
        asked = self._served.get(key)
        if asked is not None and asked.message.msg_type == "shutdown_request":
            del self._served[key]
            self._out.reply_shutdown(asked.channel, asked.message, restart=True)
        else:
            self._answer(key, {})
        return self._take()

    def fail(self, key: RequestKey, problem: Problem) -> list[Action]:
        """Whatever was asked for the request `key` could not be done."""
        asked = self._served.pop(key, None)
        if asked is not None and asked.message.msg_type == "kernel_info_request":
            self._out.serve(asked.channel, asked.message, describe_kernel(self._version), is_busy=True)
        elif asked is not None:
            self._out.refuse(asked.channel, asked.message, problem, is_busy=True)
        elif not self._relays.fail(key, problem):
            self._cells.fail(key, problem)
        return self._take()

    # --- inside

    def _take(self) -> list[Action]:
        before = self._cells.running
        self._cells.advance()
        run = self._cells.running
        if run is not None and run is before and run.busy and self._out.says_idle:
            self._out.busy(run.request)  # front ends show what was said last, and a cell runs
        return self._out.take()

    def _begin(self, channel: Channel, message: Message) -> None:
        self._out.busy(message)
        self._served[message.key] = ChannelMessage(channel, message)

    def _answer(self, key: RequestKey, content: dict[str, Any]) -> None:
        asked = self._served.pop(key, None)
        if asked is not None:
            self._out.serve(asked.channel, asked.message, content, is_busy=True)


def _is_for_kernel(request: Message) -> bool:
    return isinstance(read_cell(text_field(request, "code")), PythonCell)


def _context_of(run: Run) -> str | None:
    return run.where.context_id if isinstance(run.where, ContextCell) else None


def _refused_debugging(request: Message, why: str) -> dict[str, Any]:
    """Return the content of a debug_reply that refuses, as the debug adapter protocol has it."""
    return {
        "type": "response",
        "request_seq": number_field(request, "seq"),
        "success": False,
        "command": text_field(request, "command"),
        "message": why,
        "body": {},
    }
