"""What hostile code tries in a sandbox whose network is open: run inside, prints as JSON what came of each try.

`None` is success, a name such as "EHOSTUNREACH" the error; it stands alone, with the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import struct
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Option = tuple[int, int, bytes | int]

PUBLIC, PRIVATE, LISTED, METADATA = "93.184.215.14", "10.9.8.7", "10.9.8.6", "169.254.169.254"
MACHINE, PUBLIC_6 = "93.184.215.1", "2606:2800::14"
GATEWAY, RESOLVER = "10.0.2.2", "10.0.2.3"
TAP = b"tap0\0"
IP_UNICAST_IF, SO_DONTROUTE, MPTCP, UDPLITE, SCTP = 50, 5, 262, 136, 132

found: dict[str, object] = {}


def attempt(name: str, do: Callable[[], object]) -> None:
    try:
        found[name] = do()
    except OSError as problem:
        found[name] = errno.errorcode.get(problem.errno or 0, str(problem))


def connect(
    host: str,
    port: int,
    *options: Option,
    family: int = socket.AF_INET,
    protocol: int = 0,
) -> Callable[[], object]:
    def do() -> object:
        with socket.socket(family, socket.SOCK_STREAM, protocol) as line:
            line.settimeout(10)
            for option in options:
                line.setsockopt(*option)
            line.connect((host, port))
            line.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return line.makefile("rb").read().rpartition(b"\r\n")[2].decode()

    return do


def send(
    host: str,
    port: int,
    *options: Option,
    protocol: int = 0,
    family: int = socket.AF_INET,
) -> Callable[[], object]:
    def do() -> object:
        with socket.socket(family, socket.SOCK_DGRAM, protocol) as line:
            for option in options:
                line.setsockopt(*option)
            line.sendto(b"hello", (host, port))
            return None

    return do


def make(family: int, kind: int, protocol: int = 0) -> Callable[[], object]:
    def do() -> object:
        socket.socket(family, kind, protocol).close()
        return None

    return do


def run(*command: str, text: str = "") -> Callable[[], object]:
    def do() -> object:
        return (
            subprocess.run(command, input=text, text=True, capture_output=True, check=False).returncode
            and "refused"
        )

    return do


def echo() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(10)
        line.sendto(b"hello", (PUBLIC, 9999))
        return line.recv(100).decode()


def rebound() -> object:
    """Look a name up twice: first it is public."""
    return [connect("rebind.wild.example.org", 80)(), tried(connect("rebind.wild.example.org", 80))]


def tried(do: Callable[[], object]) -> object:
    try:
        return do()
    except OSError as problem:
        return errno.errorcode.get(problem.errno or 0, str(problem))


def unshare() -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000 | 0x40000000):  # a user and a network namespace
        raise OSError(ctypes.get_errno(), "unshare")
    return None


def ping() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as line:
        line.sendto(b"\x08\0\0\0\0\0\0\1hello", (PUBLIC, 0))
        return None


def delete_tables() -> object:
    """Ask the kernel to delete every table of nftables. Source: linux/netfilter/nfnetlink.h, nf_tables.h"""
    head, family = struct.Struct("=IHHII"), struct.Struct(">BBH")
    parts = ((0x10, 10), ((10 << 8) | 2, 0), (0x11, 10))  # begin of a batch, delete, end
    batch = b"".join(head.pack(20, kind, 1, 0, 0) + family.pack(0, 0, about) for kind, about in parts)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as line:  # NETLINK_NETFILTER
        line.settimeout(10)
        line.sendto(batch, (0, 0))
        number = -struct.unpack("=i", line.recv(4096)[16:20])[0]
    if number:
        raise OSError(number, "nfnetlink")
    return None


def take_down() -> object:
    with socket.socket() as line:
        fcntl.ioctl(line, 0x8914, struct.pack("16sh22x", TAP, 0))  # SIOCSIFFLAGS
        return None


DEVICE = (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, TAP)
BY_INDEX = (socket.IPPROTO_IP, IP_UNICAST_IF, struct.pack("!I", socket.if_nametoindex("tap0")))
LOCAL = (socket.SOL_SOCKET, SO_DONTROUTE, 1)
BROAD = (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
# Loose source route: by the public address to the private one.
ROUTE = (
    socket.IPPROTO_IP,
    socket.IP_OPTIONS,
    b"\x01\x83\x07\x04" + socket.inet_aton(PRIVATE),
)

# What is to work
attempt("public", connect(PUBLIC, 80))
attempt("by name", connect("site.example.org", 80))
attempt("listed", connect(LISTED, 80))
attempt("datagram", echo)
# What is not
for name, host in {
    "private": PRIVATE,
    "metadata": METADATA,
    "gateway": GATEWAY,
    "resolver": RESOLVER,
    "decimal": str(int.from_bytes(socket.inet_aton(PRIVATE), "big")),
    "hexadecimal": "0xa.0x9.0x8.0x7",
    "octal": "012.011.010.07",
    "inside.wild.example.org": "inside.wild.example.org",
    "metadata.wild.example.org": "metadata.wild.example.org",
}.items():
    attempt(name, connect(host, 80))
attempt("listed, another port", connect(LISTED, 81))
attempt("loopback by the gateway", connect(GATEWAY, 7000))
attempt("loopback", connect("127.0.0.1", 7000))
attempt("loopback from the device", connect("127.0.0.1", 7000, DEVICE))
attempt("zero", connect("0.0.0.0", 7001))
attempt("machine", connect(MACHINE, 7001))
attempt("rebound", rebound)
WAYS: dict[str, Option] = {"device": DEVICE, "index": BY_INDEX, "local": LOCAL, "route": ROUTE}
for name, option in WAYS.items():
    attempt(f"private by {name}", connect(PRIVATE, 80, option))
    attempt(f"datagram by {name}", send(PRIVATE, 9, option))
attempt("public by a route", connect(PUBLIC, 80, ROUTE))
attempt("datagram", echo)
attempt("datagram to private", send(PRIVATE, 9))
attempt("multicast", send("224.0.0.251", 5353))
attempt("multicast by the device", send("239.255.255.250", 1900, DEVICE))
attempt("broadcast", send("255.255.255.255", 9, BROAD, DEVICE))
attempt("broadcast there", send("10.0.2.255", 9, BROAD))
attempt("mptcp to private", connect(PRIVATE, 80, protocol=MPTCP))
attempt("udplite", send(PUBLIC, 9, protocol=UDPLITE))
attempt("sctp", connect(PUBLIC, 80, protocol=SCTP))
attempt("version 6", connect(PUBLIC_6, 80, family=socket.AF_INET6))
attempt("version 6 by the device", connect(PUBLIC_6, 80, DEVICE, family=socket.AF_INET6))
attempt("mapped", connect(f"::ffff:{PRIVATE}", 80, family=socket.AF_INET6))
attempt("link-local", send("fe80::1%tap0", 9, family=socket.AF_INET6))
attempt("all nodes", send("ff02::1%tap0", 9, family=socket.AF_INET6))
attempt("raw", make(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
attempt("ping", ping)
attempt("packet", make(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("vsock", make(socket.AF_VSOCK, socket.SOCK_STREAM))
attempt("tun", lambda: os.open("/dev/net/tun", os.O_RDWR))
attempt("namespace", unshare)
attempt("rules by hand", delete_tables)
attempt("device down by hand", take_down)
attempt("rules", run("/usr/sbin/nft", "flush", "ruleset"))
attempt("rules by another table", run("/usr/sbin/nft", "-f", "-", text="table inet mine { }"))
attempt("device down", run("/usr/sbin/ip", "link", "set", "tap0", "down"))
attempt("address", run("/usr/sbin/ip", "address", "add", "10.9.8.1/24", "dev", "tap0"))
attempt(
    "neighbour", run("/usr/sbin/ip", "neigh", "add", PRIVATE, "lladdr", "52:55:0a:00:02:02", "dev", "tap0")
)
attempt("private, after all that", connect(PRIVATE, 80))
print(json.dumps(found))  # noqa: T201 -- what it is for
