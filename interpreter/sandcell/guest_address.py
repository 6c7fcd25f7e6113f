"""Where a guest is spoken to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sandcell_container.engine import Address

__all__ = ["GuestAddress"]


class GuestAddress(NamedTuple):
    """Where a guest listens, and its token. `connect_timeout` in seconds."""

    address: Address
    token: str
    connect_timeout: float
