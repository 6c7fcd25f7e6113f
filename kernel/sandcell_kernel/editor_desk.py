"""The questions of an editor: answered here where the line is ours, else by the kernel that the cell is for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_kernel.cells import ContextCell, PythonCell, read_cell
from sandcell_kernel.editor import complete_line, inspect_line, is_whole
from sandcell_kernel.requests import Relay, know_nothing, number_field, text_field

if TYPE_CHECKING:
    from sandcell_kernel.comms import Comms
    from sandcell_kernel.outbox import Outbox
    from sandcell_kernel.relays import Relays
    from sandcell_kernel.wire import Channel, Message

__all__ = ["EditorDesk"]


class EditorDesk:
    """See the module. `comms` knows which other contexts the front's cells have used."""

    def __init__(self, out: Outbox, relays: Relays, comms: Comms) -> None:
        self._out = out
        self._relays = relays
        self._comms = comms

    def serve(self, channel: Channel, message: Message) -> None:
        """Answer a complete, inspect or is_complete request, or hand it on."""
        match message.msg_type:
            case "complete_request":
                self._complete(channel, message)
            case "inspect_request":
                self._inspect(channel, message)
            case _:
                self._tell_completeness(channel, message)

    def _complete(self, channel: Channel, message: Message) -> None:
        ours = complete_line(text_field(message, "code"), number_field(message, "cursor_pos"))
        if ours is not None and ours.is_all:
            self._out.serve(channel, message, ours.content())
            return
        relay = self._route(channel, message)
        if relay is not None:
            relay.suggestions = ours
        else:
            self._out.serve(channel, message, ours.content() if ours is not None else know_nothing(message))

    def _inspect(self, channel: Channel, message: Message) -> None:
        ours = inspect_line(text_field(message, "code"), number_field(message, "cursor_pos"))
        if ours is not None:
            self._out.serve(channel, message, ours)
        elif self._route(channel, message) is None:
            self._out.serve(channel, message, know_nothing(message))

    def _tell_completeness(self, channel: Channel, message: Message) -> None:
        ours = is_whole(text_field(message, "code"))
        if ours is not None:
            self._out.serve(channel, message, ours)
        else:
            self._relays.forward(Relay(channel, message))

    def _route(self, channel: Channel, message: Message) -> Relay | None:
        """Hand a question to the kernel that its cell is for; None where there is none."""
        code, cursor = text_field(message, "code"), number_field(message, "cursor_pos")
        match read_cell(code):
            case PythonCell():
                relay, seen = Relay(channel, message), None
            case ContextCell(context_id, _, rest, offset) if (
                self._comms.is_known(context_id) and cursor >= offset
            ):
                relay = Relay(channel, message, context_id, offset)
                seen = message.with_content({**message.body(), "code": rest, "cursor_pos": cursor - offset})
            case _:
                return None
        self._relays.forward(relay, seen)
        return relay
