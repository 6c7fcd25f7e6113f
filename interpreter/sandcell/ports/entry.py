"""Who may come in at an exposure: by the token in the path, in the name of the host, or in the cookie that a browser gets.

Pure. Tokens are compared in constant time.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sandcell.ports.heads import COOKIE_PREFIX, RequestHead
from sandcell.ports.rules import label_of

__all__ = ["Admitted", "Lock", "Stopped", "Welcomed", "admit"]

_LOOKS_LIKE_A_TOKEN = re.compile(r"[a-z2-7]{26}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What opens one exposure. `listener` is its own port on this machine, `public_host` the name that hosts end with."""

    port: int
    token: str = field(repr=False)
    listener: int
    public_host: str | None = None

    @property
    def cookie(self) -> str:
        """The name of its cookie: names of hosts share theirs over ports."""
        return f"{COOKIE_PREFIX}{self.listener}"

    @property
    def host(self) -> str | None:
        """The name of its own host, without a port."""
        return f"{label_of(self.port, self.token)}.{self.public_host}" if self.public_host else None


class Admitted(NamedTuple):
    """Pass it on, for the path `target` of the app. `prefix` is the part of the path that is ours, `by_host` says that the name
    of the host had the token."""

    target: str
    prefix: str = ""
    by_host: bool = False


class Welcomed(NamedTuple):
    """A browser goes to a page with the token in the path: give it the cookie, and send it to `target`."""

    target: str


class Stopped(Enum):
    """It may not come in."""

    NO_TOKEN = "no token"
    WRONG_TOKEN = "wrong token"


def admit(head: RequestHead, lock: Lock) -> Admitted | Welcomed | Stopped:
    """Decide about a request."""
    if lock.host:
        host = head.get("host").lower().partition(":")[0]
        return Admitted(head.target, by_host=True) if _is_same(host, lock.host) else Stopped.WRONG_TOKEN
    path, question, query = head.target.partition("?")
    first, _, rest = path[1:].partition("/")
    if _is_same(first, lock.token):
        target = "/" + rest.lstrip("/\\") + question + query
        if _is_navigation(head):
            return Welcomed(target)
        return Admitted(target, prefix=f"/{lock.token}")
    given = head.cookie(lock.cookie)
    if _is_same(given, lock.token):
        return Admitted(head.target)
    has_one = bool(given) or _LOOKS_LIKE_A_TOKEN.fullmatch(first) is not None
    return Stopped.WRONG_TOKEN if has_one else Stopped.NO_TOKEN


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _is_navigation(head: RequestHead) -> bool:
    """Whether a person will see the answer, and keeps cookies: programs and pages that fetch get what they ask for at once."""
    return (
        head.method == "GET"
        and not head.is_upgrade
        and "text/html" in head.get("accept")
        and head.get("sec-fetch-dest") in {"", "document", "iframe", "frame"}
    )
