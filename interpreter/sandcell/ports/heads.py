"""Heads of HTTP/1.1, of requests and of answers, as they are passed on: pure, and strict where two readers might differ.

Source: RFC 9110, section 7.6 (what is of one connection), RFC 7239 (Forwarded), RFC 6265 (cookies).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["LONGEST_HEAD", "AnswerHead", "BadHead", "RequestHead", "Via", "read_answer", "read_request"]

LONGEST_HEAD = 2**16
COOKIE_PREFIX = "sandcell-port-"

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_HEADERS = rb"((?:\r\n" + _TOKEN + rb"+:[^\r\n\0]*)*)\r\n\r\n"
_REQUEST = re.compile(rb"(" + _TOKEN + rb"{1,32}) (/[!-~\x80-\xff]*) HTTP/1\.[01]" + _HEADERS)
_ANSWER = re.compile(rb"HTTP/1\.[01] (([1-5]\d\d)(?: [^\r\n\0]*)?)" + _HEADERS)

_OF_ONE_CONNECTION = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "upgrade",
    }
)
_TOLD_ANEW = frozenset(
    {
        "host",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-prefix",
        "x-forwarded-proto",
        "x-forwarded-server",
        "x-real-ip",
    }
)

Headers = tuple[tuple[str, str], ...]


class BadHead(Exception):
    """What came is no head, or one that two readers might read in two ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Via:
    """Which way a request comes. `port` is the app's; `origin` ("http://HOST:PORT") and `client` (an address) are those of who
    asks. `prefix`: what stands before the app's own paths.

    `secret` is a token that the app is not to see in any header. `told_host` and `told_prefix` are what it is told of origin and
    prefix. `hides_url`: the token is in what the browser takes for the URL, which it then tells nobody else.
    `drops`: names of headers, in lower case, that are for us alone.
    """

    port: int
    origin: str
    client: str = ""
    prefix: str = ""
    secret: str = ""
    told_host: str = ""
    told_prefix: str = ""
    hides_url: bool = False
    drops: frozenset[str] = frozenset()

    @property
    def app_origin(self) -> str:
        """What the app knows itself by."""
        return f"http://localhost:{self.port}"


class RequestHead(NamedTuple):
    """The head of a request; names of headers in lower case, values as they came."""

    method: str
    target: str
    headers: Headers

    def get(self, name: str) -> str:
        """Return the values of this header, joined; "" where there is none."""
        return ", ".join(value for key, value in self.headers if key == name)

    @property
    def is_upgrade(self) -> bool:
        """Whether it asks for another protocol, as WebSockets do."""
        return "upgrade" in _words(self.get("connection")) and bool(self.get("upgrade"))

    def cookie(self, name: str) -> str:
        """Return the cookie of this name, "" where there is none."""
        for pair in self.get("cookie").replace(", ", "; ").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
        return ""

    def body_headers(self) -> dict[str, str]:
        """Return what says where its body ends. Raises BadHead where that is said twice."""
        return _body_headers(self.headers)

    def passed_on(self, via: Via, target: str) -> bytes:
        """Return the head that the app is sent, for the path `target` of its own."""
        kept = [f"{self.method} {target} HTTP/1.1", f"Host: localhost:{via.port}"]
        dropped = _words(self.get("connection")) | _OF_ONE_CONNECTION | _TOLD_ANEW | via.drops
        for key, given in self.headers:
            value = _for_app(key, given, via)
            if key not in dropped and (value or not given) and not (via.secret and via.secret in value):
                kept.append(f"{key}: {value}")
        kept += [*_forwarding(via), *_of_this_connection(self.get("upgrade") if self.is_upgrade else "")]
        return _joined(kept)


class AnswerHead(NamedTuple):
    """The head of an answer: `line` from its status on."""

    status: int
    line: str
    headers: Headers

    def body_headers(self) -> dict[str, str]:
        """Return what says where its body ends. Raises BadHead where that is said twice."""
        return _body_headers(self.headers)

    def passed_on(self, via: Via) -> bytes:
        """Return the head that is answered. The connection ends with the answer, but for an upgrade."""
        kept = [f"HTTP/1.1 {self.line}"]
        for key, value in self.headers:
            if key not in _OF_ONE_CONNECTION and not _is_ours(key, value, via):
                kept.append(f"{key}: {_placed(value, via) if key == 'location' else value}")
        if via.hides_url and self.status >= 200:
            kept.append("referrer-policy: same-origin")
        if self.status >= 200 or self.status == 101:
            upgrades = [value for key, value in self.headers if key == "upgrade" and self.status == 101]
            kept += _of_this_connection(", ".join(upgrades))
        return _joined(kept)


def read_request(data: bytes) -> RequestHead:
    """Read the head of a request, with the empty line behind it. Raises BadHead."""
    found = _REQUEST.fullmatch(data)
    if found is None:
        raise BadHead(f"what came is no request of HTTP/1.1: {data[:80]!r}")
    return RequestHead(found[1].decode(), found[2].decode("latin-1"), _headers(found[3]))


def read_answer(data: bytes) -> AnswerHead:
    """Read the head of an answer, with the empty line behind it. Raises BadHead."""
    found = _ANSWER.fullmatch(data)
    if found is None:
        raise BadHead(f"what came is no answer of HTTP/1.1: {data[:80]!r}")
    return AnswerHead(int(found[2]), found[1].decode("latin-1"), _headers(found[3]))


def _headers(lines: bytes) -> Headers:
    pairs = (line.partition(":") for line in lines.decode("latin-1").split("\r\n")[1:])
    return tuple((name.lower(), value.strip(" \t")) for name, _, value in pairs)


def _body_headers(headers: Headers) -> dict[str, str]:
    found = [(key, value) for key, value in headers if key in {"content-length", "transfer-encoding"}]
    if len(found) > 1:
        raise BadHead("the length of the body is told twice")
    return dict(found)


def _words(value: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in value.split(","))


def _without_ours(cookies: str) -> str:
    """Return the cookies but for those that are ours, of whichever exposure: names of hosts share them over ports."""
    kept = [each.strip() for each in cookies.split(";")]
    return "; ".join(each for each in kept if not each.startswith(COOKIE_PREFIX))


def _moved(url: str, origin: str, to: str) -> str:
    """Return `url` with `to` in the place of its origin, where that is `origin`."""
    rest = url.removeprefix(origin)
    is_there = url.startswith(origin) and (not rest or rest[0] in "/?#")
    return (to + rest or "/") if is_there else url


def _for_app(key: str, value: str, via: Via) -> str:
    """Return the value of a header as the app may see it."""
    if key == "cookie":
        return _without_ours(value)
    return _moved(value, via.origin, via.app_origin) if key in {"origin", "referer"} else value


def _is_ours(key: str, value: str, via: Via) -> bool:
    """Whether an answer says something that is not the app's to say."""
    return (key == "set-cookie" and value.strip().startswith(COOKIE_PREFIX)) or (
        key == "referrer-policy" and via.hides_url
    )


def _placed(location: str, via: Via) -> str:
    """Return where an answer leads as who asks can go there."""
    path = _moved(location, via.app_origin, "")
    return via.prefix + path if path.startswith("/") and not path.startswith("//") else path


def _forwarding(via: Via) -> list[str]:
    scheme, _, host = via.origin.partition("://")
    host = via.told_host or host
    client = via.client or "unknown"
    quoted = f'"[{client}]"' if ":" in client else client
    told = [f'forwarded: for={quoted};host="{host}";proto={scheme}', f"x-forwarded-for: {client}"]
    told += [f"x-forwarded-host: {host}", f"x-forwarded-proto: {scheme}"]
    return told + ([f"x-forwarded-prefix: {via.told_prefix}"] if via.told_prefix else [])


def _of_this_connection(upgrade: str) -> list[str]:
    return ["connection: Upgrade", f"upgrade: {upgrade}"] if upgrade else ["connection: close"]


def _joined(lines: list[str]) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
