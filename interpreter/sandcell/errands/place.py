"""Where errands are done: one start of one sandbox, and what cells may do of this machine's."""

from __future__ import annotations

from dataclasses import dataclass

from sandcell.client.aio.sandbox import AsyncSandbox
from sandcell.errands.permission import Permission
from sandcell.guest_address import GuestAddress

__all__ = ["Place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """See the module. `is_own`: the sandbox was made for this kernel, by this process or the one before a restart."""

    sandbox: AsyncSandbox
    guest: GuestAddress
    permission: Permission
    is_own: bool
