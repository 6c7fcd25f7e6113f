"""Ports of a container with an open network on addresses of this machine: orders to its slirp4netns, by a socket in the sandbox's folder.

Source: slirp4netns(1), API socket.
"""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandcell_container.errors import ErrorCode, error
from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.openings import PublishedPort

__all__ = ["choose_ports", "publish", "words_for"]

_PATIENCE_S = 10.0
_LONGEST = 4096


def choose_ports(ports: Sequence[PublishedPort]) -> tuple[PublishedPort, ...]:
    """Return `ports`, each "any free one" in place of which is free now.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): an address is none of this machine's.
    """
    return tuple(each if each.host_port else replace(each, host_port=_free(each.host)) for each in ports)


def publish(path: str, ports: Sequence[PublishedPort]) -> None:
    """Have the slirp4netns that takes orders at `path` listen for `ports`.

    Raises:
        Unavailable (START_FAILED): somebody else has one.
    """
    for each in ports:
        arguments = {
            "proto": "tcp",
            "host_addr": each.host,
            "host_port": each.host_port,
            "guest_port": each.port,
        }
        answer = _order(path, {"execute": "add_hostfwd", "arguments": arguments})
        if "error" in answer:
            raise error(
                ErrorCode.START_FAILED,
                f"{each.host}:{each.host_port} cannot be published: somebody else has it, or it is no address of this machine",
                hint="name another port, or 0 for any free one",
                details={"words": str(answer["error"]), "field": "publish"},
            )


def words_for(ports: Sequence[PublishedPort]) -> tuple[str, ...]:
    """Return what is told of ports that were chosen, of which nobody else knows."""
    return tuple(
        f"port {each.port} is published at {each.host}:{each.host_port}, which was free" for each in ports
    )


def _order(path: str, order: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_PATIENCE_S)
        with connect_address(path) as address:
            line.connect(address)
        line.sendall(json.dumps(order).encode())
        line.shutdown(socket.SHUT_WR)
        found: dict[str, Any] = json.loads(line.recv(_LONGEST))
        return found


def _free(host: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as failed:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"nothing can be published at {host}: {failed.strerror}",
                hint="name an address of this machine, 127.0.0.1 or 0.0.0.0",
                details={"field": "publish"},
            ) from failed
        port: int = probe.getsockname()[1]
        return port
