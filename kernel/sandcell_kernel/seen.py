"""What a front end has asked already, so that nothing is done twice after a reconnect. Pure, bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandcell_kernel.wire import ChannelMessage

__all__ = ["Seen"]


class Seen:
    """Remembers the newest `max_ids` requests, and of their replies the newest `max_bytes` in all."""

    def __init__(self, *, max_ids: int = 8192, max_bytes: int = 4 * 2**20) -> None:
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._closed: OrderedDict[str, bool] = OrderedDict()
        self._replies: OrderedDict[str, ChannelMessage] = OrderedDict()
        self._bytes = 0

    def add(self, msg_id: str) -> bool:
        """Note a request; False says that it was noted before."""
        if msg_id in self._closed:
            return False
        self._closed[msg_id] = False
        if len(self._closed) > self._max_ids:
            oldest, _ = self._closed.popitem(last=False)
            self._drop(oldest)
        return True

    def close(self, msg_id: str, reply: ChannelMessage | None = None) -> None:
        """Note that a request was answered; a reply is kept for whoever asks again, as long as there is room."""
        if msg_id not in self._closed:
            return
        self._closed[msg_id] = True
        if reply is None or _size(reply) > self._max_bytes:
            return
        self._drop(msg_id)
        self._replies[msg_id] = reply
        self._bytes += _size(reply)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._replies)))

    def is_closed(self, msg_id: str) -> bool:
        return self._closed.get(msg_id, False)

    def reply(self, msg_id: str) -> ChannelMessage | None:
        """Return the reply to a closed request, None where there was none or it is no longer kept."""
        return self._replies.get(msg_id)

    def _drop(self, msg_id: str) -> None:
        reply = self._replies.pop(msg_id, None)
        if reply is not None:
            self._bytes -= _size(reply)


def _size(reply: ChannelMessage) -> int:
    return sum(map(len, reply.message.parts()))
