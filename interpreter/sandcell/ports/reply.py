"""What callers of `sandbox.ports` get and give: a `Port`, an answer of an app, and the bytes of a request to one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandcell_container.errors import ErrorCode, error

__all__ = ["Port", "PortReply", "PortStatus", "encode_request", "encode_target"]

_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}", re.ASCII)
_PATH = re.compile(r"/[!-~]*", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port that this program serves at `url`, which holds the `token`: whoever has it is let in."""

    url: str
    port: int
    token: str = field(repr=False)
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortStatus:
    """An exposed port. `url` is None where another program has exposed it; `listening`: whether something listens on it."""

    port: int
    name: str | None
    url: str | None
    listening: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReply:
    """What an app answered: also a status of 400 and more is an answer. Names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def text(self) -> str:
        """The body as UTF-8; what is none becomes U+FFFD."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return what the body says as JSON. Raises ValueError."""
        return json.loads(self.body)


def encode_request(
    port: int, method: str, path: str, *, headers: Mapping[str, str] | None, body: bytes | str
) -> bytes:
    """Return the bytes of a request to an app.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): no request can say this.
    """
    if not _fits(_METHOD, method):
        raise _invalid("method", method, "a word such as GET")
    data = body.encode() if isinstance(body, str) else body
    lines = [f"{method} {encode_target(path)} HTTP/1.1", f"Host: localhost:{port}", "Connection: close"]
    for name, value in (headers or {}).items():
        if not _fits(_METHOD, name) or not _fits(_VALUE, value) or name.lower() in _OURS:
            raise _invalid("headers", f"{name}: {value}", f"not {', '.join(sorted(_OURS))}, and in one line")
        lines.append(f"{name}: {value}")
    if data or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(data)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data


def encode_target(path: str) -> str:
    """Return `path` when it may stand in a request. Raises InvalidRequest (INVALID_ARGUMENT)."""
    if not _fits(_PATH, path):
        raise _invalid(
            "path", path, "one such as /items?page=2, what is no ASCII or a blank in percent signs"
        )
    return path


def _fits(pattern: re.Pattern[str], given: object) -> bool:
    return isinstance(given, str) and pattern.fullmatch(given) is not None


def _invalid(field_name: str, given: object, hint: str) -> Exception:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"{field_name}={repr(given)[:80]} cannot be sent",
        hint=hint,
        details={"field": field_name},
    )
