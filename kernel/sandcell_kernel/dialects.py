"""How kernels that are not ours differ from what the protocol says, put right between their sockets and everyone else.

Pure machines: messages in, messages out. A dialect that is not needed is `Plain`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from sandcell_kernel.wire import BadMessage, ChannelMessage, new_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_kernel.wire import Channel, Message

__all__ = [
    "INTERRUPTED",
    "Dialect",
    "Heard",
    "Lender",
    "Plain",
    "RDialect",
    "body_of",
    "environ_of",
]

_PICTURES = {"image/png", "image/svg+xml", "image/jpeg", "application/pdf"}
INTERRUPTED = "KeyboardInterrupt"  # the name of the error of a run that was interrupted, in every language


class Heard(NamedTuple):
    """What a message of a kernel comes to: what others get to hear, and what the kernel is asked on that."""

    shown: list[ChannelMessage]
    asked: list[ChannelMessage]


class Dialect(Protocol):
    """Between one kernel and those who speak to it."""

    @property
    def greeting(self) -> str:
        """The code that the kernel has to run before any other, "" for none."""
        ...

    def tell(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        """Note a message that is about to be sent to the kernel; returns what has to be sent before it."""
        ...

    def hear(self, channel: Channel, message: Message) -> Heard:
        """Take a message of the kernel."""
        ...


class Plain:
    """A kernel that does as the protocol says."""

    greeting = ""

    def tell(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        """Nothing has to be known of what is sent."""
        return []

    def hear(self, channel: Channel, message: Message) -> Heard:
        return Heard([ChannelMessage(channel, message)], [])


class Lender:
    """Lends a run its host tools, by code that the kernel runs ahead of it, as it knows nothing of metadata.

    `lend` makes that code of the address and the secret that the tools are called with; `take` takes them away again.
    """

    def __init__(self, lend: Callable[[str, str], str], take: str) -> None:
        self._lend = lend
        self._take = take
        self._has_lent = False

    def ahead_of(self, request: Message) -> list[ChannelMessage]:
        """Return what has to be sent before this execute_request."""
        tools = request.extras.get("tools")
        had, self._has_lent = self._has_lent, isinstance(tools, dict)
        if not isinstance(tools, dict):
            return [_errand(self._take)] if had else []
        told = cast("dict[str, Any]", tools)
        return [_errand(self._lend(str(told.get("address", "")), str(told.get("secret", ""))))]


def environ_of(request: Message, write: Callable[[dict[str, Any]], str]) -> list[ChannelMessage]:
    """Return what has to be sent before this execute_request, where the environment has changed: the code that `write`
    makes of names and values, None for what is unset."""
    news = request.extras.get("environ")
    return [_errand(write(cast("dict[str, Any]", news)))] if isinstance(news, dict) and news else []


class RDialect:
    """IRkernel: shows values as displays, so the last one of a run is made its result; calls an interrupted run "abort"; does not exit
    by itself.

    Source: IRkernel 1.3.2.
    """

    greeting = ""

    def __init__(self) -> None:
        self._held: list[Message] = []  # a value that may be the last one, and the plots that came after it
        self._lender = Lender(_lend_to_r, 'Sys.unsetenv("SANDCELL_TOOLS")')

    def tell(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        if message.msg_type != "execute_request":
            return []
        return [*environ_of(message, _environ_in_r), *self._lender.ahead_of(message)]

    def hear(self, channel: Channel, message: Message) -> Heard:
        if message.msg_type == "execute_reply":
            return Heard([ChannelMessage(channel, _as_error(message))], _after(message))
        if channel != "iopub":
            return Heard([ChannelMessage(channel, message)], [])
        if self._held and _is_plot(message):
            self._held.append(message)
            return Heard([], [])
        shown, self._held = self._held, []
        if shown and message.msg_type == "status" and message.parent_id == shown[0].parent_id:
            shown = [_as_result(shown[0]), *shown[1:]]
        if _is_value(message):
            self._held = [message]
        else:
            shown = [*shown, message]
        return Heard([ChannelMessage("iopub", each) for each in shown], [])


def body_of(message: Message) -> dict[str, Any]:
    """Return the content, {} where it is none: code in a kernel can send what it likes."""
    try:
        return message.body()
    except BadMessage:
        return {}


def _lend_to_r(address: str, secret: str) -> str:
    return f"Sys.setenv(SANDCELL_TOOLS = {json.dumps(f'{address}:{secret}')})"  # also a literal of R


def _environ_in_r(news: dict[str, Any]) -> str:
    """Return R that sets and unsets variables; a text of JSON is one of R's."""
    lines = [
        f"Sys.unsetenv({json.dumps(name)})"
        if value is None
        else f"do.call(Sys.setenv, stats::setNames(list({json.dumps(value)}), {json.dumps(name)}))"
        for name, value in news.items()
    ]
    return "\n".join(lines)


def _errand(code: str) -> ChannelMessage:
    content = {"code": code, "silent": True, "store_history": False, "allow_stdin": False}
    return ChannelMessage("shell", new_message("execute_request", content, session="sandcell"))


def _is_value(message: Message) -> bool:
    return message.msg_type == "display_data" and not _is_plot(message)


def _is_plot(message: Message) -> bool:
    if message.msg_type != "display_data":
        return False
    data = body_of(message).get("data")
    return isinstance(data, dict) and not _PICTURES.isdisjoint(cast("dict[str, Any]", data))


def _as_result(display: Message) -> Message:
    content = {**body_of(display), "execution_count": None}
    return new_message("execute_result", content, session=display.head.session, parent=display.parent_header)


def _after(reply: Message) -> list[ChannelMessage]:
    """Return what has to follow `quit()`: the kernel says that it exits, and waits to be told so."""
    payload = body_of(reply).get("payload")
    parts = cast("list[object]", payload) if isinstance(payload, list) else []
    if not any(isinstance(part, dict) and ("source", "ask_exit") in part.items() for part in parts):
        return []
    told = new_message("shutdown_request", {"restart": False}, session="sandcell")
    return [ChannelMessage("control", told)]


def _as_error(reply: Message) -> Message:
    content = body_of(reply)
    if content.get("status") != "abort":
        return reply
    told: dict[str, Any] = {**content, "status": "error", "ename": INTERRUPTED, "evalue": "", "traceback": []}
    return reply.with_content(told)
