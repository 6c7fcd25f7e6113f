"""A world for programs that run in a network and a mount namespace of their own: a second network namespace, in which every
address answers and all that arrives is written down. Run as a program it is the world itself.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple

from sandcell_container.engines.namespaces import drop_privileges

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PUBLIC, PRIVATE, LISTED, METADATA = "93.184.215.14", "10.9.8.7", "10.9.8.6", "169.254.169.254"
MACHINE, DNS, PUBLIC_6 = "93.184.215.1", "10.9.8.53", "2606:2800::14"
NAMES = {
    "site.example.org": PUBLIC,
    "a.wild.example.org": PUBLIC,
    "example.org": PUBLIC,
    "other.example.net": PUBLIC,
    "inside.wild.example.org": PRIVATE,
    "listed.wild.example.org": LISTED,
    "metadata.wild.example.org": METADATA,
    "loop.wild.example.org": "127.0.0.1",
    "machine.wild.example.org": MACHINE,
}
TURNING = "rebind.wild.example.org"  # public and private by turns
LOOPBACK_PORT, OWN_PORT = 7000, 7001  # of the machine
_END_PORT = 4321
_TCP, _UDP = 6, 17
_IP_4, _IP_6, _ALL = 0x0800, 0x86DD, 3  # ETH_P_*


class Seen(NamedTuple):
    """What came to the world: the destinations of packets, and the names that were looked up."""

    arrived: list[str]
    asked: list[str]


class World:
    """The other end of the cable."""

    def __init__(self, said: IO[str]) -> None:
        self._said = said

    def seen(self) -> Seen:
        """Return what has come until now. To be called once, at the end."""
        with socket.socket() as last:
            last.connect_ex((PUBLIC, _END_PORT))
        return Seen(**json.loads(self._said.readline()))


@contextmanager
def connect(folder: Path) -> Generator[World]:
    """Make the world and this machine's cable to it, with files in `folder`. Other rights than root's are given up then."""
    _ip("link set lo up")
    command = ["unshare", "--net", sys.executable, "-m", "tests.e2e.small_world"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        _ip(
            f"link add outer type veth peer name inner netns {other.pid}",
            f"address add {MACHINE}/24 dev outer",
            "-6 address add 2606:2800::1/64 dev outer nodad",
            "link set outer up",
            f"route add default via {PUBLIC}",
        )
        other.stdin.write("connected\n")
        other.stdin.flush()
        other.stdout.readline()
        _show_files(folder)
        _serve("127.0.0.1", LOOPBACK_PORT)
        for port in (80, 443, OWN_PORT):
            _serve("0.0.0.0", port)
        if os.geteuid():
            drop_privileges()  # bubblewrap wants none but root's
        try:
            yield World(other.stdout)
        finally:
            other.kill()


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = self.connection.getsockname()[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


class _Server(http.server.ThreadingHTTPServer):
    def server_bind(self) -> None:
        """Bind, without looking for a name of this host: nobody answers that yet."""
        socketserver.TCPServer.server_bind(self)


def _serve(host: str, port: int) -> None:
    server = _Server((host, port), _Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _ip(*lines: str) -> None:
    for line in lines:
        subprocess.run(["ip", *line.split()], check=True)


def _echo(port: int) -> None:
    """Answer datagrams at the public address with what they hold."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind((PUBLIC, port))
        while True:
            said, sender = ours.recvfrom(2048)
            ours.sendto(said, sender)


def _resolve(asked: set[str]) -> None:
    """Be a name server that knows `NAMES`; add the names that are looked up to `asked`."""
    turns = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind((DNS, 53))
        while True:
            query, sender = ours.recvfrom(2048)
            name, end = _name_of(query)
            asked.add(name)
            address = NAMES.get(name)
            is_version_4 = query[end : end + 2] == b"\0\x01"
            if name == TURNING:
                turns += is_version_4
                address = PUBLIC if turns % 2 else PRIVATE
            is_asked = address is not None and is_version_4
            answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(address or "0.0.0.0")
            counts = struct.pack(">HHHH", 1, int(is_asked), 0, 0)
            flags = b"\x81\x80" if address is not None else b"\x81\x83"
            ours.sendto(query[:2] + flags + counts + query[12 : end + 4] + answer * is_asked, sender)


def _name_of(query: bytes) -> tuple[str, int]:
    labels, at = list[str](), 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += query[at] + 1
    return ".".join(labels), at + 1


def _be() -> None:
    """Be the world: serve, note what arrives, and print that once somebody asks for `_END_PORT`."""
    _ip("link set lo up")
    _say("made")
    sys.stdin.readline()  # the cable is there
    _ip(
        f"address add {PUBLIC}/24 dev inner",
        f"-6 address add {PUBLIC_6}/64 dev inner nodad",
        "link set inner up",
    )
    for address in (PRIVATE, LISTED, METADATA, DNS):
        _ip(f"address add {address}/32 dev lo")
    asked = set[str]()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL)) as wire:
        wire.bind(("inner", _ALL))
        for port in (80, 81, 443):
            _serve("0.0.0.0", port)
        for run in (lambda: _echo(9999), lambda: _resolve(asked)):
            threading.Thread(target=run, daemon=True).start()
        _say("ready")
        arrived = _listen(wire)
        _say(json.dumps(Seen(sorted(arrived), sorted(asked))._asdict()))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _listen(wire: socket.socket) -> set[str]:
    """Return the destinations of all packets that come before the one to `_END_PORT`."""
    seen = set[str]()
    while True:
        packet, sender = wire.recvfrom(2**16)
        if sender[2] == socket.PACKET_OUTGOING:
            continue
        # Multicast is what a machine says to its neighbours all the time.
        if sender[1] == _IP_6 and packet[24] != 0xFF:
            seen.add(f"[{socket.inet_ntop(socket.AF_INET6, packet[24:40])}]")
        if sender[1] != _IP_4:
            continue
        after = packet[(packet[0] & 15) * 4 :]
        has_port = packet[9] in (_TCP, _UDP)
        port = struct.unpack(">H", after[2:4])[0] if has_port else packet[9]
        if port == _END_PORT:
            return seen
        seen.add(f"{socket.inet_ntoa(packet[16:20])}:{port}")


def _show_files(folder: Path) -> None:
    for name, text in {"hosts": "127.0.0.1 localhost\n", "resolv.conf": f"nameserver {DNS}\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
        subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)


if __name__ == "__main__":
    _be()
