"""Which ports somebody listens on: the kernel's own word, and its form."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from sandcell_container.guest.listening import listening_ports

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "  sl  local_address rem_address   st tx_queue\n"


def row(address: str, port: int, state: str = "0A") -> str:
    return f"   0: {address}:{port:04X} {'0' * len(address)}:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 1\n"


def test_who_listens_here_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert port in listening_ports()
    assert port not in listening_ports()


def test_only_what_the_loopback_reaches_counts(tmp_path: Path) -> None:
    table = tmp_path / "1" / "net"
    table.mkdir(parents=True)
    four = [
        row("0100007F", 1),
        row("00000000", 2),
        row("0200000A", 3),
        row("0100007F", 4, "01"),
        row("0500007F", 5),
    ]
    (table / "tcp").write_text(HEAD + "".join(four))
    six = [row("0" * 32, 6), row("0" * 24 + "01000000", 7), row("0" * 24 + "02000000", 8)]
    six += [row("0" * 16 + "FFFF0000" + "0100007F", 9)]
    (table / "tcp6").write_text(HEAD + "".join(six))
    assert listening_ports(tmp_path) == {1, 2, 6, 7, 9}


def test_where_the_kernel_says_nothing_nobody_listens(tmp_path: Path) -> None:
    assert listening_ports(tmp_path) == frozenset()
