"""Requests that a front has in hand: what was asked, and what of the protocol was said for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandcell_kernel.answers import Problem, reply_type
from sandcell_kernel.cell_output import CellOutput
from sandcell_kernel.cells import Cell, read_cell
from sandcell_kernel.editor import Suggestions
from sandcell_kernel.plain import table_of, text_of
from sandcell_kernel.shell_output import ShellOutput
from sandcell_kernel.wire import BadMessage, Channel, Message

if TYPE_CHECKING:
    from sandcell_container.end import CommandEnd

__all__ = [
    "INTERRUPTED",
    "Relay",
    "Run",
    "command_problem",
    "flag_field",
    "full",
    "is_object",
    "know_nothing",
    "number_field",
    "object_field",
    "read_run",
    "text_field",
    "unsupported",
    "with_count",
]

INTERRUPTED = Problem(name="KeyboardInterrupt", value="the command was interrupted")


@dataclass(slots=True, kw_only=True)
class Run:
    """One execute request: what of the protocol was said for it, and what is held back until its end."""

    channel: Channel
    request: Message
    where: Cell
    silent: bool
    store_history: bool
    stop_on_error: bool
    allow_stdin: bool
    busy: bool = False
    reply: Message | None = None
    idle: Message | None = None
    wants_input: bool = False
    interrupted: bool = False
    started: bool = False  # work that was handed to the guest, or a cell that was handed to another context
    count: int = 0
    output: ShellOutput = field(default_factory=lambda: ShellOutput(0))  # of work
    shown: CellOutput = field(default_factory=lambda: CellOutput(0))  # of a kernel
    remedy: str = ""  # what helps if the cell finds no network
    needs_remedy: bool = False


@dataclass(slots=True)
class Relay:
    """One request that a context's kernel answers, None for the front's own."""

    channel: Channel
    request: Message
    context_id: str | None = None
    offset: int = 0  # characters of the cell that the kernel does not see
    suggestions: Suggestions | None = None  # what of ours could stand there as well
    busy: bool = False
    reply: Message | None = None
    idle: Message | None = None
    wants_input: bool = False
    expired: bool = False  # was answered in the kernel's place; what the kernel says later is dropped

    @property
    def is_done(self) -> bool:
        """Whether the kernel has said all that it will say: idle, and the reply where one is due."""
        return self.idle is not None and (self.reply is not None or not reply_type(self.request.msg_type))


def read_run(channel: Channel, message: Message) -> Run:
    """Read an execute request.

    Raises:
        BadMessage: its content is no object, or has no code.
    """
    body = message.body()
    code = body.get("code")
    if not isinstance(code, str):
        raise BadMessage("an execute_request has its code as text")
    silent = bool(body.get("silent", False))
    return Run(
        channel=channel,
        request=message,
        where=read_cell(code),
        silent=silent,
        store_history=not silent and bool(body.get("store_history", True)),
        stop_on_error=bool(body.get("stop_on_error", True)),
        allow_stdin=bool(body.get("allow_stdin", False)),
    )


def command_problem(end: CommandEnd, *, interrupted: bool) -> Problem | None:
    """Tell what is wrong with how a command ended, None where it exited with 0."""
    if end.exit_code == 0 and end.end.cause == "exited":
        return None
    if interrupted or end.end.cause == "interrupted":
        return INTERRUPTED
    how = f"exit status {end.exit_code}" if end.exit_code is not None else f"signal {end.signal}"
    cause = "" if end.end.cause in ("exited", "signaled") else f" ({end.end.cause})"
    return Problem(name="CommandFailed", value=f"the command ended with {how}{cause}")


def know_nothing(request: Message) -> dict[str, Any]:
    """Return the reply that knows nothing, to a request of an editor."""
    if request.msg_type == "inspect_request":
        return {"found": False, "data": {}, "metadata": {}}
    if request.msg_type == "is_complete_request":
        return {"status": "unknown"}
    at = number_field(request, "cursor_pos")
    return {"matches": [], "cursor_start": at, "cursor_end": at, "metadata": {}}


def unsupported(what: str) -> Problem:
    return Problem(name="UNSUPPORTED", value=f"this kernel does not serve {what}")


def full(count: int, what: str) -> Problem:
    return Problem(name="BUSY", value=f"{count} {what} wait already")


def with_count(message: Message, count: int) -> Message:
    """Return a message with another execution count, as it came where it has none or is no object."""
    try:
        body = message.body()
    except BadMessage:
        return message
    return message.with_content({**body, "execution_count": count}) if "execution_count" in body else message


def is_object(message: Message) -> bool:
    """Whether the content is JSON that a front end can read."""
    try:
        message.body()
    except BadMessage:
        return False
    return True


def _field(message: Message, name: str) -> Any:
    try:
        return message.body().get(name)
    except BadMessage:
        return None


def text_field(message: Message, name: str) -> str:
    return text_of(_field(message, name))


def number_field(message: Message, name: str) -> int:
    value = _field(message, name)
    return value if isinstance(value, int) else 0


def flag_field(message: Message, name: str, *, default: bool) -> bool:
    value = _field(message, name)
    return value if isinstance(value, bool) else default


def object_field(message: Message, name: str) -> dict[str, Any]:
    return table_of(_field(message, name))
