"""Which ports there are to expose, and what their URLs are made of."""

from __future__ import annotations

import base64
import os

from sandcell_container.errors import ErrorCode, error

__all__ = ["RESERVED_PORTS", "check_port", "label_of", "new_token", "port_in"]

_FIRST_PORT, _LAST_PORT = 1024, 65535

# The daemons of containers. An engine that does not isolate shares its network with the machine, and whoever reaches such a
# daemon owns that. Source: IANA's registry of ports; docs/ports.md has the list.
RESERVED_PORTS = frozenset({2375, 2376, 2377, 10250, 10255})


def check_port(given: object) -> int:
    """Return `given` when it is a port that may be reached.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is none, privileged (below 1024), or reserved.
    """
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= _LAST_PORT:
        raise _refusal(given, "no port")
    if given < _FIRST_PORT:
        raise _refusal(given, "privileged")
    if given in RESERVED_PORTS:
        raise _refusal(given, "reserved")
    return given


def port_in(text: str) -> int:
    """Return the port that a text names. Raises as `check_port`."""
    return check_port(int(text) if text.isascii() and text.isdigit() and len(text) < 6 else text)


def new_token() -> str:
    """Return 128 random bits in base32: 26 letters and digits, in lower case as names of hosts are."""
    return base64.b32encode(os.urandom(16)).decode().rstrip("=").lower()


def label_of(port: int, token: str) -> str:
    """Return the first label of an exposure's own host: at most 32 characters, a DNS label has up to 63."""
    return f"{port}-{token}"


def _refusal(given: object, what: str) -> Exception:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"port {repr(given)[:40]} is {what}",
        hint=f"one from {_FIRST_PORT} to {_LAST_PORT}; docs/ports.md lists those that are reserved",
        details={"field": "port"},
    )
