"""Linux rights of one process, by way of libc: what the fork server holds, and what no kernel of it may hold."""

from __future__ import annotations

import ctypes
import os
import struct

__all__ = ["become_subreaper", "drop_all", "keep_to_self", "may_mark", "take_mark"]

_CLONE_NEWUTS = 0x04000000
_CAP_SYS_ADMIN = 21
_CAP_VERSION_3 = 0x20080522
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 4, 36, 47, 4

_libc = ctypes.CDLL(None, use_errno=True)


def keep_to_self() -> None:
    """Hand no capability on to a program that this process starts, and let no process of its user trace it."""
    _libc.prctl(
        _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0
    )  # an old kernel has no ambient set to clear
    effective, permitted, _ = _capabilities()
    _set_capabilities(effective, permitted, 0)
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def may_mark() -> bool:
    """Tell whether this process may give its children a mark, which takes CAP_SYS_ADMIN."""
    return bool(_capabilities()[0] & 1 << _CAP_SYS_ADMIN)


def take_mark() -> int:
    """Enter a UTS namespace of this process's own, which all that descends from it carries; return it open."""
    _call("unshare", _CLONE_NEWUTS)
    return os.open("/proc/self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)


def drop_all() -> None:
    """Give up every capability for good, and be as traceable as any process of the user."""
    _set_capabilities(0, 0, 0)
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _capabilities() -> tuple[int, int, int]:
    """Return the effective, permitted and inheritable sets as bits."""
    data = ctypes.create_string_buffer(24)
    _call("capget", struct.pack("Ii", _CAP_VERSION_3, 0), data)
    low, high = struct.unpack("6I", data.raw)[:3], struct.unpack("6I", data.raw)[3:]
    effective, permitted, inheritable = (low[at] | high[at] << 32 for at in range(3))
    return effective, permitted, inheritable


def _set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    sets = (effective, permitted, inheritable)
    words = [each & 0xFFFFFFFF for each in sets] + [each >> 32 for each in sets]
    _call("capset", struct.pack("Ii", _CAP_VERSION_3, 0), struct.pack("6I", *words))


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
