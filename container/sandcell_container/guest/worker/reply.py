"""The worker's end of its socket: requests in, answers out, one JSON object a record.

{"do": VERB, ...}                     of a file also "path", which is absolute; {"long": true} comes with a descriptor that holds the request
{"errno": NUMBER, "is"?, "at"?}       it failed; `is` names what a path is that is no regular file, `at` which path
{"refused": CODE, "why", "details"}   it is not done
{"ok": ...}                           and, where the verb opens something, its descriptors by SCM_RIGHTS
{"part": [...]}                       some entries of a list; `ok` ends it
{"opened": ...}                       with the descriptor of a stream; `ok` or a failure ends it
"""

from __future__ import annotations

import array
import json
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Reply", "receive"]

LONGEST_RECORD = 2**16
PART_BYTES = 2**15  # with one entry more, of at most three paths, still half of what a socket takes at once


class Reply:
    """Answers to the requests of one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._entries: list[str] = []
        self._size = 0

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._sock.fileno()

    def done(self, answer: object, *fds: int) -> None:
        """End the answer, with the descriptors that belong to it."""
        self.flush()
        self.send({"ok": answer}, *fds)

    def part(self, entry: object) -> None:
        """Add one entry to the list that is the answer."""
        text = json.dumps(entry)
        self._entries.append(text)
        self._size += len(text)
        if self._size > PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the entries that there are."""
        entries, self._entries, self._size = self._entries, [], 0
        if entries:
            self._sock.sendmsg([b'{"part": [', ",".join(entries).encode(), b"]}"])

    def fail(self, answer: dict[str, object]) -> None:
        """End the answer; entries that were not sent are not the answer."""
        self._entries, self._size = [], 0
        self.send(answer)

    def send(self, answer: dict[str, object], *fds: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
        self._sock.sendmsg([json.dumps(answer).encode()], rights)


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """Return the next request, None where there is to be no other."""
    message, ancillary, _, _ = sock.recvmsg(LONGEST_RECORD, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    if not message:
        return None
    request: dict[str, Any] = json.loads(message)
    for _, _, data in ancillary:
        with os.fdopen(array.array("i", data)[0], "rb") as file:
            file.seek(0)
            request = json.loads(file.read())
    return request
