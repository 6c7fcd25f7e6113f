"""What a client asks of a proxy, and what it is told: HTTP/1.1 heads, pure, and strict where two readers might differ.

Source: RFC 9112, section 3.2 (forms of targets); RFC 9110, sections 7.6.1 (what is of one connection) and 9.3.6 (CONNECT).
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from sandcell_container.errors import ErrorCode, error
from sandcell_container.network import normal_host

__all__ = ["CONNECTED", "LONGEST_HEAD", "Refusal", "Wish", "not_allowed", "not_public", "read_wish"]

LONGEST_HEAD = 32 * 2**10
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_AUTHORITY = rb"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z_.-]{1,254})"
_HEADERS = rb"((?:\r\n" + _TOKEN + rb"+:[^\r\n\0]*)*)\r\n\r\n"
_CONNECT = re.compile(rb"CONNECT " + _AUTHORITY + rb":([0-9]{1,5}) HTTP/1\.[01]" + _HEADERS)
_PLAIN = re.compile(
    rb"(" + _TOKEN + rb"{1,32}) http://" + _AUTHORITY + rb"(?::([0-9]{1,5}))?"
    rb"((?:[/?][!-~\x80-\xff]*)?) (HTTP/1\.[01])" + _HEADERS
)
_OF_ONE_CONNECTION = frozenset({b"connection", b"keep-alive", b"host", b"te"})
_REASONS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}
_LONGEST_REASON = 300


class Refusal(Exception):
    """Why a client is not served: `status` of the answer, `code`, and words. `host` where it is the host's fault."""

    def __init__(self, status: int, code: ErrorCode, message: str, *, hint: str = "", host: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.host = host

    def answer(self) -> bytes:
        """Return it as HTTP. Of a refused CONNECT most clients show the line alone, so that says it all."""
        body = json.dumps(error(self.code, self.message, hint=self.hint).to_dict()).encode()
        words = f"{_REASONS[self.status]}: {self.code}: {self.message}" + (
            f" ({self.hint})" if self.hint else ""
        )
        line = words.encode("ascii", "replace")[:_LONGEST_REASON]
        return (
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (
                self.status,
                line,
                len(body),
                body,
            )
        )


class Wish(NamedTuple):
    """Where a client wants to go: `host` is normal. `head` is what the server there is to be sent first; empty for a
    tunnel, of which nothing is known."""

    host: str
    port: int
    head: bytes = b""


def read_wish(head: bytes) -> Wish:
    """Return what a whole head asks for.

    Raises:
        Refusal: 400, it is none that a proxy is asked, or the host is neither a name nor an address.
    """
    if (tunnel := _CONNECT.fullmatch(head)) is not None:
        return Wish(_host(tunnel[1]), _port(tunnel[2]))
    plain = _PLAIN.fullmatch(head)
    if plain is None:
        raise _bad("this is a proxy: ask for http://HOST/..., or CONNECT HOST:PORT")
    method, authority, port, target, version, headers = plain.groups()
    if method == b"CONNECT":
        raise _bad("CONNECT takes HOST:PORT")
    origin = target if target.startswith(b"/") else b"/" + target
    lines = [method + b" " + origin + b" " + version]
    lines.append(b"Host: " + authority + (b":" + port if port else b""))
    lines += _passed_on(headers)
    return Wish(_host(authority), _port(port or b"80"), b"\r\n".join(lines) + b"\r\n\r\n")


def not_allowed(host: str, port: int) -> Refusal:
    """Return the answer to a host that the list has not."""
    item = host if port in (80, 443) else f"{_bracketed(host)}:{port}"
    return Refusal(
        403,
        ErrorCode.HOST_NOT_ALLOWED,
        f"the sandbox may not reach {_bracketed(host)}:{port}",
        hint=f'allow it from outside: update(network=[..., "{item}"])',
        host=host,
    )


def not_public(host: str, port: int, address: str) -> Refusal:
    """Return the answer to a host of the list that stands for an address that is not public, or this machine's."""
    item = address if port in (80, 443) else f"{_bracketed(address)}:{port}"
    return Refusal(
        403,
        ErrorCode.HOST_NOT_ALLOWED,
        f"the sandbox may not reach {_bracketed(host)}:{port}: it is {address}, which is not public, or this machine's own",
        hint=f'allow the address too: update(network=[..., "{item}"])',
        host=host,
    )


def _passed_on(headers: bytes) -> list[bytes]:
    """Return the lines of headers that the server gets. It answers one request: the next may be another host's."""
    pairs = [line.partition(b":") for line in headers.split(b"\r\n") if line]
    named = [(name.lower(), value.strip()) for name, _, value in pairs]
    words = {
        word.strip().lower() for name, value in named if name == b"connection" for word in value.split(b",")
    }
    is_upgrade = b"upgrade" in words
    dropped = _OF_ONE_CONNECTION | (words - {b"upgrade"})
    lines = [
        name + b": " + value
        for name, value in named
        if name not in dropped and not name.startswith(b"proxy-") and (is_upgrade or name != b"upgrade")
    ]
    return [*lines, b"Connection: upgrade" if is_upgrade else b"Connection: close"]


def _host(authority: bytes) -> str:
    host = normal_host(authority.decode("ascii"))
    if host is None:
        raise _bad("the host is neither a name nor an address as they are written")
    return host


def _port(digits: bytes) -> int:
    if not 0 < int(digits) < 65536:
        raise _bad("there is no such port")
    return int(digits)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bad(message: str) -> Refusal:
    return Refusal(400, ErrorCode.INVALID_ARGUMENT, message)
