"""The system calls that user code is refused: a classic BPF program, as bubblewrap takes it."""

from __future__ import annotations

import errno
import platform
import socket
import struct
import sys
from typing import NamedTuple

__all__ = ["filter_program"]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# Offsets in struct seccomp_data. Source: linux/seccomp.h
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32_BIT = 0x40000000
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW*, but for time, which clone does not take
# A network namespace does not hold the others: by AF_VSOCK one talks to the machine's own host, by AF_ALG to its kernel.
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)


class _Table(NamedTuple):
    architecture: int  # AUDIT_ARCH_*
    refused: tuple[int, ...]
    prlimit64: int
    sockets: tuple[int, int]  # socket, socketpair
    namespaces: tuple[int, ...]  # unshare setns mount umount2 pivot_root
    clone: int
    clone3: int


class _Instruction(NamedTuple):
    """One of the program; `yes` and `no` name the mark a comparison goes to, "" is the next one."""

    code: int
    value: int
    yes: str = ""
    no: str = ""
    mark: str = ""


# keyctl add_key request_key bpf perf_event_open userfaultfd io_uring_{setup,enter,register} {init,finit,delete}_module
# kexec_load kexec_file_load open_by_handle_at. Source: the kernel's syscall tables.
_TABLES = {
    "x86_64": _Table(
        0xC000003E,
        (250, 248, 249, 321, 298, 323, 425, 426, 427, 175, 313, 176, 246, 320, 304),
        302,
        (41, 53),
        (272, 308, 165, 166, 155),
        56,
        435,
    ),
    "aarch64": _Table(
        0xC00000B7,
        (219, 217, 218, 280, 241, 282, 425, 426, 427, 105, 273, 106, 104, 294, 265),
        261,
        (198, 199),
        (97, 268, 40, 39, 41),
        220,
        435,
    ),
}


def filter_program(machine: str, *, namespaces: bool = True) -> bytes | None:
    """Return the program for `machine` (as `platform.machine()` says it), None where we have no table.

    Refused with EPERM: keys, bpf, perf events, userfaultfd, io_uring, modules, kexec, file handles, and limits of another
    process (prlimit64 with a pid: user code could stop the spawner from starting anything). Sockets of other families than
    Unix, IPv4, IPv6 and netlink get EAFNOSUPPORT. Calls of a foreign architecture, whose numbers mean something else, get
    ENOSYS. Without `namespaces` none can be made or entered and nothing mounted: Podman's own filter allows both in a user
    namespace. clone3, whose flags no filter can see, is ENOSYS then, and programs use clone.
    """
    table = _TABLES.get(machine)
    return None if table is None else _assemble(_program(table, () if namespaces else _closed(table)))


def _closed(table: _Table) -> tuple[_Instruction, ...]:
    return (
        *(_Instruction(_EQUAL, number, yes="refused") for number in table.namespaces),
        _Instruction(_EQUAL, table.clone3, yes="foreign"),
        _Instruction(_EQUAL, table.clone, yes="flags"),
    )


def _program(table: _Table, closed: tuple[_Instruction, ...]) -> list[_Instruction]:
    # An argument of 32 bits, as a pid and a family are, is the low half of its field: the first, little endian.
    return [
        _Instruction(_LOAD, _ARCHITECTURE),
        _Instruction(_EQUAL, table.architecture, no="foreign"),
        _Instruction(_LOAD, _NUMBER),
        _Instruction(_AT_LEAST, _X32_BIT, yes="foreign"),
        *(_Instruction(_EQUAL, number, yes="refused") for number in table.refused),
        *closed,
        *(_Instruction(_EQUAL, number, yes="family") for number in table.sockets),
        _Instruction(_EQUAL, table.prlimit64, no="allowed"),
        _Instruction(_LOAD, _FIRST_ARGUMENT),
        _Instruction(_EQUAL, 0, yes="allowed", no="refused"),
        _Instruction(_LOAD, _FIRST_ARGUMENT, mark="family"),
        *(_Instruction(_EQUAL, family, yes="allowed") for family in _FAMILIES),
        _Instruction(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
        _Instruction(_LOAD, _FIRST_ARGUMENT, mark="flags"),
        _Instruction(_ANY_BIT, _NEW_NAMESPACES, yes="refused", no="allowed"),
        _Instruction(_RETURN, _ALLOW, mark="allowed"),
        _Instruction(_RETURN, _ERRNO | errno.EPERM, mark="refused"),
        _Instruction(_RETURN, _ERRNO | errno.ENOSYS, mark="foreign"),
    ]


def _assemble(program: list[_Instruction]) -> bytes:
    marks = {each.mark: at for at, each in enumerate(program) if each.mark}

    def skipped(at: int, target: str) -> int:
        return marks[target] - at - 1 if target else 0

    return b"".join(
        struct.pack("=HBBI", each.code, skipped(at, each.yes), skipped(at, each.no), each.value)
        for at, each in enumerate(program)
    )


def main() -> None:
    """Write the program that the entry of a container takes; nothing for a machine of which there is none."""
    sys.stdout.buffer.write(filter_program(platform.machine(), namespaces=False) or b"")


if __name__ == "__main__":
    main()
