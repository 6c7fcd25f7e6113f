"""Unix sockets at paths of any length: the kernel takes 107 bytes."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["connect_address", "is_listening", "listen_at"]

_LONGEST = 107  # sun_path has 108 bytes with its NUL. Source: unix(7)


@contextmanager
def connect_address(path: str) -> Generator[str]:
    """Yield an address that means `path` and is short enough to bind or connect to, good while the block runs.

    Raises:
        FileNotFoundError: the folder of a long `path` does not exist.
    """
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    folder, name = os.path.split(path)
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


def is_listening(path: str) -> bool:
    """Tell whether somebody listens at `path` now; one whose queue of connections is full does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.0)
        try:
            with connect_address(path) as address:
                probe.connect(address)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def listen_at(
    path: str, *, backlog: int = 128, kind: socket.SocketKind = socket.SOCK_STREAM
) -> socket.socket:
    """Return a unix socket that listens at `path`, for its owner alone whatever the umask is."""
    listener = socket.socket(socket.AF_UNIX, kind)
    try:
        with connect_address(path) as address:
            listener.bind(address)
        os.chmod(path, 0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener
