"""Links in notebooks that open something once: for the first browser that follows them, for a while. Pure.

Notebooks are saved, and shown to others: what stands in one must open nothing later.
"""

from __future__ import annotations

import base64
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Target", "Tickets", "Visit", "new_secret"]

_MOST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a link leads: to another URL of this machine, or to the page of a terminal."""

    url: str = ""
    terminal: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """Who may come in: `visitor` is the secret of a browser, which keeps it."""

    target: Target
    visitor: str = field(repr=False)


@dataclass(slots=True)
class _Ticket:
    target: Target
    until: float
    visitor: str = ""


class Tickets:
    """See the module. `clock` in seconds; a ticket that nobody has used is worth nothing after `life_s`."""

    def __init__(self, clock: Callable[[], float], *, life_s: float) -> None:
        self._clock = clock
        self._life_s = life_s
        self._tickets: OrderedDict[str, _Ticket] = OrderedDict()

    def issue(self, target: Target) -> str:
        """Return the secret part of a new link. The oldest is forgotten where there are too many."""
        secret = new_secret()
        self._tickets[secret] = _Ticket(target, self._clock() + self._life_s)
        if len(self._tickets) > _MOST:
            self._tickets.popitem(last=False)
        return secret

    def visit(self, secret: str, visitor: str) -> Visit | None:
        """Let in who comes first, and from then on nobody else; None where the link is worth nothing for this browser.

        `visitor` is what the browser says that it is, "" for one that is new.
        """
        ticket = self._tickets.get(secret)
        if ticket is None:
            return None
        if not ticket.visitor and self._clock() < ticket.until:
            ticket.visitor = visitor or new_secret()
            return Visit(ticket.target, ticket.visitor)
        return self.admit(secret, visitor)

    def admit(self, secret: str, visitor: str) -> Visit | None:
        """Let in who has come before."""
        ticket = self._tickets.get(secret)
        if ticket is None or not ticket.visitor or ticket.visitor != visitor:
            return None
        return Visit(ticket.target, visitor)


def new_secret() -> str:
    """Return 128 random bits, as ports have them."""
    return base64.b32encode(os.urandom(16)).decode().rstrip("=").lower()
