"""The keys that leave a terminal without ending it. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from sandcell_container.errors import ErrorCode, error

__all__ = ["DetachKeys", "Typed", "parse_keys"]

_KEY = re.compile(r"ctrl-([a-z@\[\\\]^_])|([ -~])")
_NONE = "none"


class Typed(NamedTuple):
    """What of it is for the terminal, and whether the keys were among it: what comes after them is for nobody."""

    data: bytes
    is_detached: bool


class DetachKeys:
    """Looks for a sequence of keys in what is typed. The beginning of one is held back until the next key tells."""

    def __init__(self, keys: bytes) -> None:
        self._keys = keys
        self._held = b""

    def feed(self, data: bytes) -> Typed:
        """Take what was typed."""
        if not self._keys:
            return Typed(data, is_detached=False)
        typed = self._held + data
        before, found, _ = typed.partition(self._keys)
        if found:
            return Typed(before, is_detached=True)
        begun = max((n for n in range(1, len(self._keys)) if typed.endswith(self._keys[:n])), default=0)
        cut = len(typed) - begun
        self._held = typed[cut:]
        return Typed(typed[:cut], is_detached=False)


def parse_keys(text: str) -> bytes:
    """Return what the keys send that `text` names: `ctrl-p,ctrl-q`, single characters too; `none` is no key.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one is no such key.
    """
    if text == _NONE:
        return b""
    return b"".join(map(_parse_key, text.split(",")))


def _parse_key(name: str) -> bytes:
    found = _KEY.fullmatch(name)
    if found is None:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name[:40]!r} is no key that detaches",
            hint="such as ctrl-p,ctrl-q; a to z, @ [ \\ ] ^ _ after ctrl-, or one character; none for no keys",
            details={"field": "detach_keys"},
        )
    control, plain = found.groups()
    return bytes([ord(control.upper()) & 0x1F]) if control else plain.encode()
