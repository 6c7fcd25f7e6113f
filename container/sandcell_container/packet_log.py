"""The packets that a filter of ours has refused, as the kernel tells them by netlink: which address and port they were for.

Source: linux/netfilter/nfnetlink_log.h, linux/netlink.h. User code chooses what is in a packet, but not that it is told well formed.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GROUP", "LONGEST", "Destination", "open_packet_log", "read_destinations"]

GROUP = 1  # of the log in the sandbox's own network
LONGEST = 8192  # bytes of what is read at once

_NETLINK_NETFILTER = 12
_ACKNOWLEDGED_REQUEST = 0x5
_ERROR = 2
_PACKET, _CONFIG = 0x0400, 0x0401
_COMMAND, _MODE, _THRESHOLD, _PAYLOAD = 1, 2, 5, 9
_BIND, _COPY_PACKET = 1, 2
_HEAD, _FAMILY = struct.Struct("=IHHII"), struct.Struct("!BBH")
_COPIED = 64  # bytes of each packet: the longest head of IPv4, and the ports behind it
_WITH_PORTS = frozenset({6, 17})  # TCP, UDP


class Destination(NamedTuple):
    """Where a packet was to go; `port` is 0 where its protocol has none."""

    address: IPv4Address
    port: int


def open_packet_log() -> socket.socket:
    """Return a socket that hears of what is logged in `GROUP` of this process's network. Raises OSError: the kernel has no
    such log, or this process no right to hear of it."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    try:
        made.bind((0, 0))
        attributes = (
            _attribute(_COMMAND, struct.pack("!B", _BIND))
            + _attribute(_MODE, struct.pack("!IBx", _COPIED, _COPY_PACKET))
            + _attribute(_THRESHOLD, struct.pack("!I", 1))  # else they would be told once a second
        )
        body = _FAMILY.pack(socket.AF_UNSPEC, 0, GROUP) + attributes
        made.send(_HEAD.pack(_HEAD.size + len(body), _CONFIG, _ACKNOWLEDGED_REQUEST, 0, 0) + body)
        answer = made.recv(LONGEST)
        (number,) = struct.unpack_from("=i", answer, _HEAD.size)
        if _HEAD.unpack_from(answer)[1] != _ERROR or number:
            raise OSError(-number, "the packet log was refused")
    except OSError:
        made.close()
        raise
    return made


def read_destinations(told: bytes) -> Iterator[Destination]:
    """Yield where the packets of one message of the kernel's were to go."""
    for kind, body in _messages(told):
        if kind == _PACKET:
            for name, value in _attributes(body[_FAMILY.size :]):
                found = _destination(value) if name == _PAYLOAD else None
                if found is not None:
                    yield found


def _destination(packet: bytes) -> Destination | None:
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    start = (packet[0] & 15) * 4
    has_port = packet[9] in _WITH_PORTS and len(packet) >= start + 4
    port = struct.unpack_from("!H", packet, start + 2)[0] if has_port else 0
    return Destination(IPv4Address(packet[16:20]), port)


def _messages(told: bytes) -> Iterator[tuple[int, bytes]]:
    while len(told) >= _HEAD.size:
        length, kind = _HEAD.unpack_from(told)[:2]
        if length < _HEAD.size:
            return
        yield kind, told[_HEAD.size : length]
        told = told[_aligned(length) :]


def _attributes(told: bytes) -> Iterator[tuple[int, bytes]]:
    while len(told) >= 4:
        length, name = struct.unpack_from("=HH", told)
        if length < 4:
            return
        yield name, told[4:length]
        told = told[_aligned(length) :]


def _attribute(name: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, name) + value + bytes(_aligned(length) - length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
