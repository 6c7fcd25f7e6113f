"""The system calls that user code is refused: a classic BPF program, as bubblewrap takes it."""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

__all__ = ["filter_program"]

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# Offsets in struct seccomp_data. Source: linux/seccomp.h
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32_BIT = 0x40000000


class _Table(NamedTuple):
    architecture: int  # AUDIT_ARCH_*
    refused: tuple[int, ...]
    prlimit64: int


# keyctl add_key request_key bpf perf_event_open userfaultfd io_uring_{setup,enter,register} {init,finit,delete}_module
# kexec_load kexec_file_load open_by_handle_at. Source: the kernel's syscall tables.
_TABLES = {
    "x86_64": _Table(
        0xC000003E, (250, 248, 249, 321, 298, 323, 425, 426, 427, 175, 313, 176, 246, 320, 304), 302
    ),
    "aarch64": _Table(
        0xC00000B7, (219, 217, 218, 280, 241, 282, 425, 426, 427, 105, 273, 106, 104, 294, 265), 261
    ),
}


def filter_program(machine: str) -> bytes | None:
    """Return the program for `machine` (as `platform.machine()` says it), None where we have no table.

    Refused with EPERM: keys, bpf, perf events, userfaultfd, io_uring, modules, kexec, file handles, and limits of another
    process (prlimit64 with a pid: user code could stop the spawner from starting anything). Calls of a foreign
    architecture, whose numbers mean something else, get ENOSYS.
    """
    table = _TABLES.get(machine)
    if table is None:
        return None
    checks = len(table.refused) + 1  # the instructions between the first number check and the allowing return
    program = [
        _instruction(_LOAD, value=_ARCHITECTURE),
        _instruction(_EQUAL, value=table.architecture, yes=1),
        _instruction(_RETURN, value=_ERRNO | errno.ENOSYS),
        _instruction(_LOAD, value=_NUMBER),
        _instruction(_AT_LEAST, value=_X32_BIT, yes=checks + 4),
        *(_instruction(_EQUAL, value=number, yes=checks + 2 - at) for at, number in enumerate(table.refused)),
        _instruction(_EQUAL, value=table.prlimit64, no=2),
        _instruction(_LOAD, value=_FIRST_ARGUMENT),  # a pid has 32 bits: the low half, little endian
        _instruction(_EQUAL, value=0, no=1),
        _instruction(_RETURN, value=_ALLOW),
        _instruction(_RETURN, value=_ERRNO | errno.EPERM),
        _instruction(_RETURN, value=_ERRNO | errno.ENOSYS),
    ]
    return b"".join(program)


def _instruction(code: int, *, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
