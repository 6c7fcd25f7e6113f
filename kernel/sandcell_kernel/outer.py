"""The pure machine of the kernel process on the host, between its front end and the front in the guest.

The front is the brain. This machine keeps what the brain has not answered yet: to send it again when a connection
broke, to hold it while the sandbox starts, and to answer it in the front's place when there is no guest any more.
No IO, no task and no clock is known here; each input returns what follows, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandcell_kernel.answers import Answers, Problem, describe_kernel, reply_type
from sandcell_kernel.cells import LineOrder, is_errand, lines_in
from sandcell_kernel.requests import flag_field, is_object, number_field, text_field
from sandcell_kernel.wire import Channel, ChannelMessage, Message, RequestKey, new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


__all__ = ["Answered", "Errand", "ErrandsOver", "OuterAction", "OuterKernel", "Stop", "Up", "Wake"]


@dataclass(frozen=True, slots=True)
class Up:
    """Send this to the front in the guest."""

    channel: Channel
    message: Message


@dataclass(frozen=True, slots=True)
class Stop:
    """The front end asked for the end: end what is ours, then send what `answer_stop` returns, then leave."""

    channel: Channel
    request: Message


@dataclass(frozen=True, slots=True)
class Wake:
    """A cell came and the sandbox is stopped: start it, then `connect`; else `rest` again, or `give_up`."""


@dataclass(frozen=True, slots=True)
class Errand:
    """Do this line of a cell, which only this machine can; then `end_errand`. Meanwhile `show`, `say` and `ask` are for it.
    `may_ask`: somebody answers questions. `is_last`: no line of the cell follows. What is done is what the front end itself has sent: a guest only says when."""

    key: RequestKey
    number: int
    order: LineOrder
    may_ask: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class ErrandsOver:
    """The cell has ended: whatever is still done for it is given up."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Answered:
    """A person has answered what was asked last for this cell."""

    key: RequestKey
    text: str


OuterAction = ChannelMessage | Up | Stop | Wake | Errand | ErrandsOver | Answered

_NOT_ASKED = Problem(name="FORBIDDEN", value="the notebook has not asked for this")

_STARTED = "[sandcell] the sandbox was stopped and is started again: files are there, variables and processes are not\n"


@dataclass(slots=True)
class _Open:
    """A message of the front end that was not answered yet."""

    channel: Channel
    message: Message
    is_private: bool = False  # a request of ours, whose answers are for nobody
    busy: bool = False
    replied: bool = False
    idle: bool = False
    errands: dict[int, ChannelMessage | None] = field(default_factory=dict[int, "ChannelMessage | None"])
    """By the line of the cell: how each went, None as long as it is done."""
    is_asking: bool = False
    count: int = 0  # of a cell that runs

    @property
    def is_silent(self) -> bool:
        return flag_field(self.message, "silent", default=False)

    @property
    def is_done(self) -> bool:
        return self.idle and (self.replied or not reply_type(self.message.msg_type))


class OuterKernel:
    """See the module. `session` is that of the front, so that all that a front end gets is of one kernel. `remedy` returns
    what to do about an error message, "" where that is not known: this side knows what lies beside the notebook."""

    def __init__(
        self,
        *,
        session: str,
        version: str,
        max_open: int = 4096,
        remedy: Callable[[Message], str] = lambda _: "",
    ) -> None:
        self._remedy = remedy
        self._session = session
        self._version = version
        self._max_open = max_open
        self._answers = Answers(session)
        self._open: dict[RequestKey, _Open] = {}
        self._connected = False
        self._gone: Problem | None = (
            None  # why there is no guest: none will be, or one when the next cell comes
        )
        self._may_wake = False
        self._woken_by: Message | None = None
        self._info: dict[str, Any] = describe_kernel(version)

    # --- from the front end

    def receive(self, channel: Channel, message: Message) -> list[OuterAction]:
        """Take a message of the front end.

        Raises:
            BadMessage: its header is not valid.
        """
        if message.msg_type == "shutdown_request":
            return [self._answers.status(message, "busy"), Stop(channel, message)]
        if message.msg_type == "input_reply" and (asking := self._asking()) is not None:
            asking.is_asking = False
            return [Answered(asking.message.key, text_field(message, "value"))]
        if self._may_wake and message.msg_type == "execute_request":
            self._may_wake, self._gone, self._woken_by = False, None, message
            return [*self._ask(_Open(channel, message)), Wake()]
        if self._gone is not None:
            return [*self._answer_alone(channel, message, self._gone)]
        if len(self._open) >= self._max_open:
            text = f"{self._max_open} requests wait already"
            return [*self._answers.refused(channel, message, Problem(name="BUSY", value=text))]
        return self._ask(_Open(channel, message))

    def interrupt(self) -> list[OuterAction]:
        """Interrupt whatever runs, on behalf of this process, which got SIGINT."""
        if self._gone is not None:
            return []
        request = new_message("interrupt_request", {}, session=self._session)
        return self._ask(_Open("control", request, is_private=True))

    def answer_stop(self, stop: Stop) -> list[OuterAction]:
        """Return what to send when everything that is ours has ended."""
        restart = flag_field(stop.request, "restart", default=False)
        return [
            self._answers.reply(stop.channel, stop.request, {"restart": restart}),
            self._answers.copy_of_shutdown(stop.request, restart=restart),
            self._answers.status(stop.request, "idle"),
        ]

    # --- from the guest

    def connect(self) -> list[OuterAction]:
        """A connection to the front is there: send what waits, and again what a broken one left open."""
        self._connected = True
        return [*self._tell_of_start(), *self._send_open()]

    def _send_open(self) -> list[OuterAction]:
        return [
            Up(*each)
            for asked in self._open.values()
            for each in (ChannelMessage(asked.channel, asked.message), *asked.errands.values())
            if each is not None
        ]

    def disconnect(self) -> None:
        """The connection broke; another one may follow."""
        self._connected = False

    def hear(self, channel: Channel, message: Message) -> list[OuterAction]:
        """Take a message of the front. What answers nothing that is open is dropped: it came before.

        Raises:
            BadMessage: its header is not valid.
        """
        parent, kind = message.parent_key, message.msg_type
        asked = self._open.get(parent) if parent is not None else None
        if kind == "errand_request":
            return self._take_errand(asked, number_field(message, "number"))
        if kind == "kernel_info_reply" and is_object(message):
            self._info = message.body()
        is_answer = kind == "status" or (channel in ("shell", "control") and kind.endswith("_reply"))
        if asked is None:
            return [] if is_answer else [ChannelMessage(channel, message)]
        if is_answer:
            self._note_answer(asked, kind, text_field(message, "execution_state"))
        if kind == "execute_input":
            asked.count = number_field(message, "execution_count")
        if asked.is_private:
            return []
        remedy = self._remedy(message) if channel == "iopub" and kind == "error" else ""
        told: list[OuterAction] = [ChannelMessage(channel, message)]
        if remedy:
            told.append(self._answers.stream(asked.message, "stderr", f"[sandcell] {remedy}\n"))
        return [*told, *_give_up(asked)] if asked.is_done else told

    def lose(self, entries: int) -> list[OuterAction]:
        """The guest no longer has `entries` messages: tell the cells that are open, and ask again for answers."""
        told: list[OuterAction] = [
            self._answers.stream(each.message, "stderr", f"[sandcell] {entries} messages were lost\n")
            for each in self._open.values()
            if each.message.msg_type == "execute_request" and each.busy
        ]
        return told + self._send_open()

    def give_up(self, problem: Problem) -> list[OuterAction]:
        """There is no guest and there will be none: answer everything, now and from now on."""
        self._may_wake, self._woken_by = False, None
        return self._end_all(problem)

    def rest(self, problem: Problem) -> list[OuterAction]:
        """The sandbox is stopped and can be started: answer what is open, and what comes until the next cell, which is
        to start it."""
        self._may_wake, self._woken_by = True, None
        return self._end_all(problem)

    # --- errands

    def show(
        self, key: RequestKey, data: dict[str, Any], *, display_id: str | None = None, is_update: bool = False
    ) -> list[OuterAction]:
        """Display something in a cell, by MIME type; an update replaces what has the same `display_id`."""
        asked = self._open.get(key)
        if asked is None or asked.is_silent:
            return []
        return [self._answers.display(asked.message, data, display_id=display_id, is_update=is_update)]

    def say(self, key: RequestKey, text: str) -> list[OuterAction]:
        """Say a line of ours in a cell."""
        asked = self._open.get(key)
        if asked is None or asked.is_silent:
            return []
        return [self._answers.stream(asked.message, "stderr", f"[sandcell] {text}\n")]

    def ask(self, key: RequestKey, prompt: str) -> list[OuterAction]:
        """Ask whoever runs a cell for a line; answered by an `Answered`, or never."""
        asked = self._open.get(key)
        if asked is None:
            return []
        asked.is_asking = True
        return [self._answers.input_request(asked.message, prompt, password=False)]

    def end_errand(self, key: RequestKey, number: int, problem: Problem | None) -> list[OuterAction]:
        """Say how an errand went. It is said again after each new connection, as long as its cell is open."""
        asked = self._open.get(key)
        if asked is None:
            return []
        asked.is_asking = False
        reply = asked.errands[number] = self._answers.errand_reply(asked.message, number, problem)
        return [Up(*reply)] if self._connected else []

    def end_cell(self, key: RequestKey) -> list[OuterAction]:
        """End a cell well in the place of a guest that is gone, because an errand of its last line has started the sandbox anew.
        What waits behind it is for the next guest."""
        asked = self._open.pop(key, None)
        if asked is None:
            return []
        content: dict[str, Any] = {"execution_count": asked.count, "user_expressions": {}, "payload": []}
        return [
            self._answers.reply(asked.channel, asked.message, content),
            self._answers.status(asked.message, "idle"),
        ]

    def _take_errand(self, asked: _Open | None, number: int) -> list[OuterAction]:
        """Begin with a line of a cell that the front end has sent, once."""
        if asked is None or number in asked.errands:
            return []
        key, orders = asked.message.key, lines_in(text_field(asked.message, "code"))
        asked.errands[number] = None
        if not 0 <= number < len(orders) or not is_errand(orders[number]):
            return self.end_errand(key, number, _NOT_ASKED)
        may_ask = flag_field(asked.message, "allow_stdin", default=False)
        return [Errand(key, number, orders[number], may_ask, is_last=number == len(orders) - 1)]

    def _asking(self) -> _Open | None:
        return next((each for each in self._open.values() if each.is_asking), None)

    # --- inside

    def _end_all(self, problem: Problem) -> list[OuterAction]:
        self._connected, self._gone = False, problem
        told = list[OuterAction]()
        waiting, self._open = self._open, {}
        for each in waiting.values():
            told += [*self._finish(each, problem), *_give_up(each)]
        return told

    def _tell_of_start(self) -> list[OuterAction]:
        """Say to the cell that has woken the sandbox what it does not find any more."""
        cell, self._woken_by = self._woken_by, None
        return [] if cell is None else [self._answers.stream(cell, "stderr", _STARTED)]

    def _ask(self, asked: _Open) -> list[OuterAction]:
        self._open[asked.message.key] = asked
        return [Up(asked.channel, asked.message)] if self._connected else []

    def _note_answer(self, asked: _Open, kind: str, state: str) -> None:
        asked.busy |= state == "busy"
        asked.idle |= state == "idle"
        asked.replied |= kind == reply_type(asked.message.msg_type)
        if not asked.is_done:
            return
        del self._open[asked.message.key]
        if asked.message.msg_type == "execute_request":
            # Answers to its questions have no answer themselves; they are of no use after the cell.
            for line in [key for key, each in self._open.items() if each.channel == "stdin"]:
                del self._open[line]

    def _finish(self, asked: _Open, problem: Problem) -> Iterable[ChannelMessage]:
        if asked.is_private:
            return []
        if asked.replied:
            return [self._answers.status(asked.message, "idle")]
        told = self._answer_alone(asked.channel, asked.message, problem)
        return told[1:] if asked.busy else told  # the first of them says busy

    def _answer_alone(self, channel: Channel, message: Message, problem: Problem) -> list[ChannelMessage]:
        if channel == "stdin":
            return []
        if message.msg_type == "kernel_info_request":
            return self._answers.served(channel, message, self._info)
        if message.msg_type == "interrupt_request":
            return self._answers.served(channel, message, {})
        return self._answers.refused(channel, message, problem)


def _give_up(asked: _Open) -> Iterable[OuterAction]:
    return [ErrandsOver(asked.message.key)] if asked.errands else []
