"""The guest as a program, for engines that start one: `python -m sandcell.guest --boot-fd N --listen-fd N --spawner-fd N`.

`--boot-fd` is a file that holds the GuestBoot as JSON, `--listen-fd` a listening socket, `--spawner-fd` one end of
the SEQPACKET pair whose other end is the spawner's.
"""

from __future__ import annotations

import argparse
import socket

from sandcell.guest.main import serve
from sandcell_container.guest.boot import GuestBoot

__all__ = ["main"]


def main() -> None:
    """Read the three descriptors and serve."""
    parser = argparse.ArgumentParser(prog="python -m sandcell.guest", description=__doc__)
    for name in ("boot", "listen", "spawner"):
        parser.add_argument(f"--{name}-fd", type=int, required=True)
    given = parser.parse_args()
    with open(given.boot_fd, "rb") as file:
        boot = GuestBoot.from_json(file.read())
    serve(boot, _socket_of(given.listen_fd), _socket_of(given.spawner_fd))


def _socket_of(descriptor: int) -> socket.socket:
    made = socket.socket(fileno=descriptor)
    made.set_inheritable(False)
    return made


if __name__ == "__main__":
    main()
