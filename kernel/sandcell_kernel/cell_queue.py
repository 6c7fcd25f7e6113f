"""The cells of a front: they run one after another, wherever they run, and have one counter. Pure.

A cell has ended when its reply and its idle are both there; the reply then goes out before idle, and every output
before both. After an error with `stop_on_error`, the cells that wait are answered "aborted".
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from sandcell_kernel.actions import Answer, ErrandEnded, Perform, Submit, TakeTicket
from sandcell_kernel.answers import Problem
from sandcell_kernel.cell_output import CellOutput, PastOutputs
from sandcell_kernel.cells import ContextCell, HelpCell, PythonCell, ShellCell, WrongCell
from sandcell_kernel.remedies import finds_no_index, network_remedy, place_remedy
from sandcell_kernel.requests import (
    INTERRUPTED,
    Run,
    full,
    number_field,
    object_field,
    text_field,
    with_count,
)
from sandcell_kernel.shapes import with_known_orders
from sandcell_kernel.shell_output import ShellOutput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandcell_container.end import Cause
    from sandcell_kernel.outbox import Outbox
    from sandcell_kernel.shell_output import StreamName, StreamText
    from sandcell_kernel.wire import Channel, Message, RequestKey

__all__ = ["DIED", "CellQueue"]

DIED = "ContextDied"
# How a run that its kernel did not answer is named to the front end.
_NAMES: dict[Cause, str] = {"interrupted": "KeyboardInterrupt", "timeout": "TimeoutError"}
_SILENT = "the kernel gave no answer that could be read"
_LATE_KEPT = 64  # shell cells that have ended, and whose jobs may still say something
_COUNTED = ("execute_input", "execute_result")


class CellQueue:
    """See the module.

    `has_tickets`: the front's own kernel counts for cells that run elsewhere. Else the front counts by itself, and what
    its kernel counts is rewritten. `has_network`: whether the sandbox has any.
    """

    def __init__(
        self, out: Outbox, *, max_waiting: int, max_output: int, has_tickets: bool, has_network: bool
    ) -> None:
        self._out = out
        self._max_waiting = max_waiting
        self._max_output = max_output
        self._has_tickets = has_tickets
        self._waiting: deque[Run] = deque()
        self._running: Run | None = None
        self._count = 0
        self._has_network = has_network
        self._past = PastOutputs()
        self._ended_shells: OrderedDict[RequestKey, Run] = OrderedDict()

    @property
    def running(self) -> Run | None:
        return self._running

    # --- what the front end asks

    def add(self, run: Run) -> None:
        """Queue a cell; one too many is refused."""
        run.shown = CellOutput(self._max_output)
        if not run.silent:
            run.remedy = network_remedy(text_field(run.request, "code"), has_network=self._has_network)
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(run)
        else:
            self._out.refuse(run.channel, run.request, full(self._max_waiting, "cells"))

    def advance(self) -> None:
        """Begin with cells as long as none runs."""
        while self._running is None and self._waiting:
            self._running = self._waiting.popleft()
            self._start(self._running)

    def interrupt(self) -> RequestKey | None:
        """Note that the running cell is to be interrupted; returns which one, None where the front's own kernel runs it."""
        run = self._running
        if run is None or isinstance(run.where, PythonCell):
            return None
        run.interrupted = True
        return run.request.key

    def answer(self, channel: Channel, message: Message) -> bool:
        """Take an answer to what a cell's work has asked; False where it has asked nothing."""
        run = self._running
        if run is None or not run.wants_input or isinstance(run.where, PythonCell | ContextCell):
            return False
        run.wants_input = False
        self._out.do(Answer(run.request.key, text_field(message, "value")))
        return True

    # --- what a kernel says

    def hear(self, run: Run, channel: Channel, message: Message) -> None:
        """Take a message of the kernel for the running cell, but its status."""
        kind = message.msg_type
        if kind == "execute_reply":
            run.reply = with_known_orders(message) if text_field(message, "status") else None
        elif kind == "execute_input" and isinstance(run.where, ContextCell):
            pass  # said already, with the first line and the count of the notebook
        else:
            run.wants_input |= kind == "input_request"
            self._pass_on(run, channel, self._counted(run, message) if kind in _COUNTED else message)

    def hear_late(self, key: RequestKey | None, channel: Channel, message: Message) -> None:
        """Take output of a cell that has ended, as of a thread that still prints."""
        shown = self._past.take(key, message)
        if shown is not None:
            self._out.pass_on(channel, shown)

    def end(self, run: Run, *, cause: Cause, reason: str, lost: bool, note: str, whole: str) -> None:
        """End a cell whose kernel will say nothing more for it. See `Front.end_run`."""
        self._be_busy(run)
        if run.shown.is_cut:
            self._out.note(run.request, f"{run.shown.describe_rest()}{whole and f': {whole}'}")
        self._past.add(run.request.key, run.shown)
        self._advise(run)
        if note and not run.silent:
            self._out.note(run.request, note)
        if run.reply is not None:
            reply = self._counted(run, run.shown.bound(run.reply))
            self._out.pass_reply(run.channel, run.request, reply)
            self._close(run, reply)
        else:
            self._fail_unanswered(run, cause=cause, reason=reason, lost=lost)

    # --- how the guest's own work goes on

    def give_ticket(self, key: RequestKey, count: int) -> None:
        """Go on with a cell that has got its execution count."""
        run = self._of(key)
        if run is not None:
            self._go_on(run, count)

    def show_output(self, key: RequestKey, name: StreamName, data: bytes) -> None:
        """Show output of the work of a cell: of a shell cell also after its end, from a job in the background."""
        run = self._of(key) or self._ended_shells.get(key)
        if run is not None:
            run.needs_remedy |= bool(run.remedy) and finds_no_index(data)
            self._show(run, run.output.feed(name, data))

    def show(
        self, key: RequestKey, data: dict[str, Any], *, display_id: str | None = None, is_update: bool = False
    ) -> None:
        """Display something, after what was written before."""
        run = self._of(key)
        if run is not None and not run.silent:
            self._out.display(run.request, data, display_id=display_id, is_update=is_update)

    def ask(self, key: RequestKey, prompt: str, *, password: bool) -> None:
        run = self._of(key)
        if run is not None:
            run.wants_input = True
            self._out.ask(run.request, prompt, password=password)

    def send_out(self, key: RequestKey, number: int) -> None:
        """Have the kernel process on the host do a line of the cell."""
        run = self._of(key)
        if run is not None:
            self._out.send_out(run.request, number)

    def hear_errand(self, message: Message) -> None:
        """Take how that went; what comes for a cell that has ended is dropped."""
        run = self._running
        if run is None or message.parent_key != run.request.key:
            return
        told = object_field(message, "problem")
        problem = Problem.read(told) if told else None
        self._out.do(ErrandEnded(run.request.key, number_field(message, "number"), problem))

    def withdraw(self, key: RequestKey) -> None:
        """What was asked needs no answer any more."""
        run = self._of(key)
        if run is not None:
            run.wants_input = False

    def end_work(
        self, key: RequestKey, problem: Problem | None, *, payload: Sequence[dict[str, Any]] = ()
    ) -> None:
        run = self._of(key)
        if run is None:
            return
        self._show(run, run.output.finish())
        self._remember_shell(run)
        self._advise(run)
        if problem is not None:
            self._fail(run, problem)
        else:
            self._out.reply_ran(run.channel, run.request, count=run.count, payload=payload)
            self._close(run)

    def fail(self, key: RequestKey, problem: Problem) -> None:
        run = self._of(key)
        if run is not None:
            self._fail(run, problem)

    # --- inside

    def _pass_on(self, run: Run, channel: Channel, message: Message) -> None:
        run.needs_remedy |= bool(run.remedy) and finds_no_index(message.content)
        was_cut = run.shown.is_cut
        shown = run.shown.take(message) if channel == "iopub" else message
        if shown is not None:
            self._out.pass_on(channel, shown)
        if run.shown.is_cut and not was_cut:
            self._out.note(
                run.request, "the cell has shown much: what follows is counted, and not shown here"
            )

    def _start(self, run: Run) -> None:
        match run.where:
            case PythonCell():
                self._out.do(Submit(run.request))
            case HelpCell(text):
                self._be_busy(run)
                page = {"source": "page", "data": {"text/plain": text}, "start": 0}
                self._out.reply_ran(run.channel, run.request, count=self._count, payload=[page])
                self._close(run)
            case WrongCell(problem):
                self._fail(run, Problem(name="UsageError", value=problem))
            case _:
                self._be_busy(run)
                if not run.store_history:
                    self._go_on(run, self._count)
                elif self._has_tickets:
                    self._out.do(TakeTicket(run.request.key))
                else:
                    self._go_on(run, self._count + 1)

    def _go_on(self, run: Run, count: int) -> None:
        run.count = self._count = count
        if not run.silent:
            self._out.execute_input(run.request, text_field(run.request, "code"), count)
        if run.interrupted:
            self._fail(run, INTERRUPTED)
            return
        run.started = True
        match run.where:
            case ContextCell(context_id, language, code, _):
                inner = run.request.with_content({**run.request.body(), "code": code})
                self._out.do(Submit(inner, context_id, language))
            case PythonCell() | HelpCell() | WrongCell():
                raise AssertionError("these never wait for a count")
            case work:
                run.output = ShellOutput(self._max_output)
                self._out.do(Perform(run.request.key, work, run.allow_stdin))

    def _counted(self, run: Run, message: Message) -> Message:
        """Return a message with the notebook's count, where its kernel counts for itself."""
        if isinstance(run.where, ContextCell):
            return with_count(message, run.count)
        if self._has_tickets or not run.store_history:
            if message.msg_type == "execute_input":
                run.count = number_field(message, "execution_count")
            return message
        run.count = run.count or self._count + 1
        return with_count(message, run.count)

    def _advise(self, run: Run) -> None:
        """Say what to do where a cell wanted what its sandbox has not."""
        if run.silent:
            return
        advice = run.remedy if run.needs_remedy else ""
        if not advice and run.reply is not None and isinstance(run.where, PythonCell | ContextCell):
            advice = place_remedy(text_field(run.request, "code"), run.reply)
        if advice:
            self._out.note(run.request, advice)

    def _remember_shell(self, run: Run) -> None:
        if isinstance(run.where, ShellCell):
            self._ended_shells[run.request.key] = run
            if len(self._ended_shells) > _LATE_KEPT:
                self._ended_shells.popitem(last=False)

    def _of(self, key: RequestKey) -> Run | None:
        run = self._running
        return run if run is not None and run.request.key == key else None

    def _show(self, run: Run, texts: Iterable[StreamText]) -> None:
        for name, text in texts:
            self._out.stream(run.request, name, text)

    def _fail(self, run: Run, problem: Problem, *, is_noted: bool = False) -> None:
        """Say what the kernel did not. `is_noted`: also as a line on stderr."""
        self._be_busy(run)
        if is_noted:
            self._out.note(run.request, problem.value)
        self._out.error(run.request, problem)
        self._out.reply_error(run.channel, run.request, problem, count=run.count or self._count)
        self._close(run, failed=True)

    def _fail_unanswered(self, run: Run, *, cause: Cause, reason: str, lost: bool) -> None:
        """Say the end that its kernel did not. The next interpreter counts from its start, where the front does not count."""
        if lost and run.store_history:
            run.count = run.count or self._count + 1
        name = DIED if lost else _NAMES.get(cause, DIED)
        self._fail(run, Problem(name=name, value=reason or _SILENT), is_noted=lost)
        if lost and isinstance(run.where, PythonCell):
            self._count = 0 if self._has_tickets else run.count or self._count

    def _close(self, run: Run, reply: Message | None = None, *, failed: bool = False) -> None:
        """Say idle, after the reply; `reply` is the kernel's own."""
        self._running = None
        self._out.idle(run.request, run.idle)
        if reply is not None:
            self._count = number_field(reply, "execution_count") or self._count
            failed = text_field(reply, "status") != "ok"
        if failed and run.stop_on_error and not run.silent:
            self._abort_waiting()

    def _abort_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for run in waiting:
            self._out.serve(run.channel, run.request, {"status": "aborted"})

    def _be_busy(self, run: Run) -> None:
        if not run.busy:
            run.busy = True
            self._out.busy(run.request)
