"""The start of a container: it is over when its guest answers, or with the guest's last words."""

from __future__ import annotations

import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from sandcell_container.engines.docker_relay import start_relay
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.unix_address import connect_address, is_listening

if TYPE_CHECKING:
    from docker.models.containers import Container

    from sandcell_container.engines.docker_folder import Folder

__all__ = ["open_relay", "start_container"]

_THERE, _INSIDE = b"listening\n", b"listening inside\n"  # Source: container/image/entry.py
_SHOWN = 300  # characters of the last line
_MOST_HEARD = 32 * 2**10  # bytes


def start_container(container: Container, folder: Folder, deadline: float) -> None:
    """Start `container` and return when its guest has answered; `deadline` is of time.monotonic().

    Where its socket in the folder cannot be bound or connected to, it is reached through the daemon from now on.

    Raises:
        Unavailable (START_FAILED): it ended before; `details["words"]` has the guest's last 50 lines.
        Unavailable (START_TIMEOUT): the deadline passed.
    """
    is_inside = _start(container, folder, deadline)
    if is_inside:
        folder.note_relayed()
        open_relay(container, folder)
    try:
        _await_answer(folder, deadline)
    except OSError as failed:
        container.reload()
        if is_inside or container.status != "running":
            raise _start_failed(folder, b"") from failed
        folder.note_relayed()
        container.kill()
        container.wait()
        start_container(container, folder, deadline)


def open_relay(container: Container, folder: Folder) -> None:
    """See that the guest of a container that runs can be reached, where that is not by its own socket."""
    client = container.client
    if client is not None and folder.is_relayed and not is_listening(folder.socket):
        start_relay(folder, client, str(container.id))


def _start(container: Container, folder: Folder, deadline: float) -> bool:
    """Start it and return whether its guest listens inside."""
    attached: Any = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
    try:
        container.start()
        heard = _read_until(attached.fileno(), (_THERE, _INSIDE), deadline)
    finally:
        attached._sock.close()  # the SDK hands out a reader, whose close alone would leave its socket open
        attached.close()
    if _THERE not in heard and _INSIDE not in heard:
        raise _start_failed(folder, heard)
    return _INSIDE in heard


def _await_answer(folder: Folder, deadline: float) -> None:
    """Return when the guest has answered something: what is listening may still fail to serve.

    Raises:
        OSError: its socket cannot be connected to.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        with connect_address(folder.socket) as address:
            connection.connect(address)
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n")
        if not _read_until(connection.fileno(), (b"HTTP/",), deadline):
            raise _start_failed(folder, b"")


def _read_until(fd: int, wanted: tuple[bytes, ...], deadline: float) -> bytes:
    """Return what came up to and with one of `wanted`, or up to the end of the stream."""
    heard = b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while not any(each in heard for each in wanted) and len(heard) < _MOST_HEARD:
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise error(
                ErrorCode.START_TIMEOUT,
                "the container did not answer before start_timeout",
                hint="try again with a longer start_timeout",
            )
        try:
            chunk = os.read(fd, 4096)
        except ConnectionResetError:  # it ended with something unread
            break
        if not chunk:
            break
        heard += chunk
    return heard


def _start_failed(folder: Folder, heard: bytes) -> SandcellError:
    said = "".join(each for each in heard.decode(errors="replace") if each.isprintable() or each == "\n")
    words = folder.last_words() or said.splitlines()
    last = words[-1].strip() if words else ""
    return error(
        ErrorCode.START_FAILED,
        f"the guest ended at its start: {last[-_SHOWN:] or 'it said nothing'}",
        hint="details['words'] has its last lines; build the image from the same version of Sandcell",
        details={"words": "\n".join(words)},
    )
