"""What the kernel tells of packets, from bytes; that it tells them shows `tests/e2e/test_open_network.py`."""

from __future__ import annotations

import random
import socket
import struct
from ipaddress import IPv4Address

from sandcell_container.packet_log import Destination, read_destinations


def packet(address: str, port: int, *, protocol: int = 6, options: bytes = b"") -> bytes:
    head = bytes([0x40 | (5 + len(options) // 4), 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0])
    return head + bytes(4) + socket.inet_aton(address) + options + struct.pack("!HH", 40000, port)


def told(*attributes: tuple[int, bytes], kind: int = 0x0400) -> bytes:
    body = bytes(4)
    for name, value in attributes:
        body += struct.pack("=HH", 4 + len(value), name) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_each_packet_has_its_address_and_port() -> None:
    several = (
        told((1, b"head"), (9, packet("10.1.2.3", 5432)))
        + told((9, packet("10.1.2.4", 53, protocol=17, options=bytes(8))), (10, b"prefix\0"))
        + told((9, packet("10.1.2.5", 9, protocol=1)))
    )
    assert list(read_destinations(several)) == [
        Destination(IPv4Address("10.1.2.3"), 5432),
        Destination(IPv4Address("10.1.2.4"), 53),
        Destination(IPv4Address("10.1.2.5"), 0),
    ]


def test_what_is_something_else_is_passed_over() -> None:
    assert list(read_destinations(told((9, packet("10.1.2.3", 1)), kind=2))) == []
    assert list(read_destinations(told((9, b"\x60" + bytes(40))))) == []
    assert list(read_destinations(told((9, packet("10.1.2.3", 1)[:19])))) == []
    assert list(read_destinations(told((9, packet("10.1.2.3", 1)[:22])))) == [
        Destination(IPv4Address("10.1.2.3"), 0)
    ]


def test_no_bytes_make_it_fail_or_go_on_for_ever() -> None:
    chance = random.Random(7)
    whole = told((1, b"head"), (9, packet("10.1.2.3", 5432))) * 3
    for _ in range(2000):
        changed = bytearray(whole[: chance.randrange(1, len(whole) + 1)])
        for _ in range(chance.randrange(8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        assert len(list(read_destinations(bytes(changed)))) <= len(changed)
