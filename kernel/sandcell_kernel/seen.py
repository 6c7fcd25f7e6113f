"""What a front end has asked already, so that nothing is done twice after a reconnect. Pure, bounded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandcell_kernel.wire import ChannelMessage, Message

__all__ = ["Seen"]


class Seen:
    """Remembers the newest `max_requests` requests, and of their replies the newest `max_bytes` in all.

    A request that is sent again has the same header byte for byte; a `msg_id` alone is not unique.
    """

    def __init__(self, *, max_requests: int = 8192, max_bytes: int = 4 * 2**20) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._closed: OrderedDict[bytes, bool] = OrderedDict()
        self._replies: OrderedDict[bytes, ChannelMessage] = OrderedDict()
        self._bytes = 0

    def add(self, request: Message) -> bool:
        """Note a request; False says that it was noted before."""
        digest = _digest(request)
        if digest in self._closed:
            return False
        self._closed[digest] = False
        if len(self._closed) > self._max_requests:
            oldest, _ = self._closed.popitem(last=False)
            self._drop(oldest)
        return True

    def close(self, request: Message, reply: ChannelMessage | None = None) -> None:
        """Note that a request was answered; a reply is kept for whoever asks again, as long as there is room."""
        digest = _digest(request)
        if digest not in self._closed:
            return
        self._closed[digest] = True
        if reply is None or _size(reply) > self._max_bytes:
            return
        self._drop(digest)
        self._replies[digest] = reply
        self._bytes += _size(reply)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._replies)))

    def is_closed(self, request: Message) -> bool:
        return self._closed.get(_digest(request), False)

    def reply(self, request: Message) -> ChannelMessage | None:
        """Return the reply to a closed request, None where there was none or it is no longer kept."""
        return self._replies.get(_digest(request))

    def _drop(self, digest: bytes) -> None:
        reply = self._replies.pop(digest, None)
        if reply is not None:
            self._bytes -= _size(reply)


def _digest(request: Message) -> bytes:
    return hashlib.blake2b(request.header, digest_size=16).digest()


def _size(reply: ChannelMessage) -> int:
    return sum(map(len, reply.message.parts()))
