"""The requests of a front that kernels answer: handed on, their answers passed back, bounded. Pure.

Answers to editors come within a second, empty ones if need be; what a kernel says later is dropped. Where a cell's first
line is ours, the kernel sees the rest of it, and places in its answers are moved to where the editor has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandcell_kernel.actions import Forward
from sandcell_kernel.answers import reply_type
from sandcell_kernel.editor import merge_matches
from sandcell_kernel.plain import list_of, table_of
from sandcell_kernel.requests import Relay, full, know_nothing
from sandcell_kernel.wire import BadMessage

if TYPE_CHECKING:
    from sandcell_kernel.answers import Problem
    from sandcell_kernel.outbox import Outbox
    from sandcell_kernel.wire import Channel, Message, RequestKey

__all__ = ["Relays"]

_LIMITED = ("complete_request", "inspect_request", "is_complete_request")  # an editor waits for these
_TYPES = "_jupyter_types_experimental"
_PLACES = ("cursor_start", "cursor_end")


class Relays:
    """See the module."""

    def __init__(self, out: Outbox, *, max_open: int) -> None:
        self._out = out
        self._max_open = max_open
        self._open: dict[RequestKey, Relay] = {}

    def forward(self, relay: Relay, message: Message | None = None) -> None:
        """Hand a request on; `message` is what the kernel sees of it, where that is not all."""
        if len(self._open) >= self._max_open:
            self._out.refuse(relay.channel, relay.request, full(self._max_open, "requests"))
            return
        self._open[relay.request.key] = relay
        is_limited = relay.request.msg_type in _LIMITED
        self._out.do(Forward(relay.channel, message or relay.request, is_limited, relay.context_id))

    def find(self, key: RequestKey | None) -> Relay | None:
        return self._open.get(key) if key is not None else None

    def answer(self, channel: Channel, message: Message) -> bool:
        """Hand an answer on to what has asked for a line of input; False where nothing has."""
        asking = next((each for each in self._open.values() if each.wants_input), None)
        if asking is None:
            return False
        asking.wants_input = False
        self._out.do(Forward(channel, message, context_id=asking.context_id))
        return True

    def hear(self, relay: Relay, channel: Channel, message: Message) -> None:
        """Take what a kernel says for a request, but its status."""
        if channel == relay.channel and message.msg_type == reply_type(relay.request.msg_type):
            relay.reply = message
            relay.wants_input = False
            if not relay.expired:
                self._out.pass_reply(channel, relay.request, _seen_from_outside(relay, message))
        elif not relay.expired:
            relay.wants_input |= message.msg_type == "input_request"
            self._out.pass_on(channel, message)

    def settle(self, relay: Relay) -> None:
        """Say idle for a request for which its kernel has said all."""
        if relay.is_done and self._open.pop(relay.request.key, None) is not None and not relay.expired:
            self._out.close(relay.request)
            self._out.idle(relay.request, relay.idle)

    def expire(self, key: RequestKey) -> None:
        """Answer a limited request with what is known without its kernel, if that has not answered yet."""
        relay = self._open.get(key)
        if relay is not None and relay.reply is None and not relay.expired:
            relay.expired = True
            known = relay.suggestions.content() if relay.suggestions else know_nothing(relay.request)
            self._out.serve(relay.channel, relay.request, known, is_busy=relay.busy)

    def fail(self, key: RequestKey, problem: Problem) -> bool:
        """Answer that a request could not be handed on; False where it is none of these."""
        relay = self._open.pop(key, None)
        if relay is None:
            return False
        if not relay.expired:
            self._out.refuse(relay.channel, relay.request, problem, is_busy=relay.busy)
        return True

    def lose(self, context_id: str | None, problem: Problem) -> None:
        """The kernel of a context is gone: answer what waited for it."""
        for relay in [each for each in self._open.values() if each.context_id == context_id]:
            self.fail(relay.request.key, problem)


def _seen_from_outside(relay: Relay, reply: Message) -> Message:
    """Return a kernel's reply as it is for the whole cell, with what is ours."""
    if not relay.offset and relay.suggestions is None:
        return reply
    try:
        content = _moved(reply.body(), relay.offset)
    except BadMessage:
        return reply
    return reply.with_content(merge_matches(content, relay.suggestions) if relay.suggestions else content)


def _moved(content: dict[str, Any], offset: int) -> dict[str, Any]:
    """Return a reply whose places count from the beginning of the cell. Kernels of code write what they like."""
    moved = {name: content[name] + offset for name in _PLACES if isinstance(content.get(name), int)}
    if not offset or not moved:
        return content
    metadata = table_of(content.get("metadata"))
    items = list_of(metadata.get(_TYPES))
    if items:
        moved["metadata"] = {**metadata, _TYPES: [_moved_item(table_of(each), offset) for each in items]}
    return {**content, **moved}


def _moved_item(item: dict[str, Any], offset: int) -> dict[str, Any]:
    places = {name: item[name] + offset for name in ("start", "end") if isinstance(item.get(name), int)}
    return {**item, **places}
