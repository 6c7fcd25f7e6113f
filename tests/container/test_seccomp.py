from __future__ import annotations

import errno
import struct

import pytest

from sandcell_container.engines.seccomp import filter_program

_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_EAFNOSUPPORT = 0x00050000 | errno.EAFNOSUPPORT
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {
    "x86_64": {
        "read": 0,
        "unshare": 272,
        "mount": 165,
        "clone3": 435,
        "clone": 56,
        "keyctl": 250,
        "bpf": 321,
        "open_by_handle_at": 304,
        "prlimit64": 302,
        "socket": 41,
        "socketpair": 53,
    },
    "aarch64": {
        "read": 63,
        "unshare": 97,
        "mount": 40,
        "clone3": 435,
        "clone": 220,
        "keyctl": 219,
        "bpf": 280,
        "open_by_handle_at": 265,
        "prlimit64": 261,
        "socket": 198,
        "socketpair": 199,
    },
}


def run(program: bytes, *, architecture: int, number: int, first: int = 0) -> int:
    """Run classic BPF over one struct seccomp_data, as the kernel does."""
    data = struct.pack("<IIQQ", number, architecture, 0, first)
    at, accumulator = 0, 0
    instructions = list(struct.iter_unpack("=HBBI", program))
    while True:
        code, yes, no, value = instructions[at]
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
                at += 1
            case 0x15:
                at += 1 + (yes if accumulator == value else no)
            case 0x35:
                at += 1 + (yes if accumulator >= value else no)
            case 0x45:
                at += 1 + (yes if accumulator & value else no)
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("call", "first", "verdict"),
    [
        ("read", 0, _ALLOW),
        ("clone", 0, _ALLOW),
        ("keyctl", 0, _EPERM),
        ("bpf", 0, _EPERM),
        ("open_by_handle_at", 0, _EPERM),
        ("prlimit64", 0, _ALLOW),
        ("prlimit64", 1, _EPERM),
        ("prlimit64", 1 << 32, _ALLOW),  # the kernel looks at the low half of a pid
        ("socket", 1, _ALLOW),  # AF_UNIX
        ("socket", 2, _ALLOW),  # AF_INET
        ("socket", 10, _ALLOW),  # AF_INET6
        ("socket", 16, _ALLOW),  # AF_NETLINK
        ("socket", 40, _EAFNOSUPPORT),  # AF_VSOCK
        ("socket", 38, _EAFNOSUPPORT),  # AF_ALG
        ("socket", (1 << 32) | 40, _EAFNOSUPPORT),  # and at the low half of a family
        ("socketpair", 1, _ALLOW),
        ("socketpair", 40, _EAFNOSUPPORT),
    ],
)
def test_calls_are_judged(machine: str, call: str, first: int, verdict: int) -> None:
    program = filter_program(machine)
    assert program is not None
    number = _NUMBERS[machine][call]
    assert run(program, architecture=_ARCHITECTURE[machine], number=number, first=first) == verdict


def test_numbers_of_another_architecture_mean_nothing() -> None:
    program = filter_program("x86_64")
    assert program is not None
    assert run(program, architecture=0x40000003, number=0) == _ENOSYS  # i386
    assert run(program, architecture=_ARCHITECTURE["x86_64"], number=0x40000000 | 250) == _ENOSYS  # x32


def test_a_machine_without_a_table_has_no_filter() -> None:
    assert filter_program("sparc64") is None


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("call", "first", "closed", "open_"),
    [
        ("unshare", 0, _EPERM, _ALLOW),
        ("mount", 0, _EPERM, _ALLOW),
        ("clone3", 0, _ENOSYS, _ALLOW),
        ("clone", 0x10000000 | 17, _EPERM, _ALLOW),  # CLONE_NEWUSER
        ("clone", 0x20000 | 17, _EPERM, _ALLOW),  # CLONE_NEWNS
        ("clone", 0x4111, _ALLOW, _ALLOW),  # as posix_spawn does
        ("clone", 0x3D0F00, _ALLOW, _ALLOW),  # a thread
        ("keyctl", 0, _EPERM, _EPERM),
        ("read", 0, _ALLOW, _ALLOW),
    ],
)
def test_namespaces_can_be_closed(machine: str, call: str, first: int, closed: int, open_: int) -> None:
    where = {"architecture": _ARCHITECTURE[machine], "number": _NUMBERS[machine][call], "first": first}
    for namespaces, verdict in ((False, closed), (True, open_)):
        program = filter_program(machine, namespaces=namespaces)
        assert program is not None
        assert run(program, **where) == verdict
