"""Users of this machine that are nobody's, for sandboxes that a root host program makes."""

from __future__ import annotations

import pwd
import secrets
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path

__all__ = ["free_uid", "owner_of"]


def free_uid(uids: range, taken: AbstractSet[int | None]) -> int:
    """Return a uid that no sandbox of a table has and no account, from a random place on: other tables of this machine
    draw from the same range, and do not know of each other.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): none is left.
    """
    start = secrets.randbelow(len(uids))
    for at in range(len(uids)):
        uid = uids[(start + at) % len(uids)]
        if uid not in taken and not _has_account(uid):
            return uid
    raise error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"all {len(uids)} uids from {uids.start} on are taken by sandboxes",
        hint="remove some: sandcell ps, sandcell rm; or widen the range: SANDCELL_UID_COUNT",
    )


def owner_of(path: Path) -> int | None:
    """Return whose `path` is: of a sandbox without a readable record this alone tells the uid."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
