"""Names of things: what a client may give, what is made when it gives none."""

from __future__ import annotations

import base64
import os
import re
from typing import Literal, TypeGuard

from sandcell_container.errors import ErrorCode, error

__all__ = ["Prefix", "check_id", "is_id", "new_id"]

Prefix = Literal["ctx", "ses", "prc", "trm", "run", "frt", "sbx", "exe", "cal", "cli", "wch", "git"]

_ID = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII)


def new_id(prefix: Prefix) -> str:
    """Return `prefix_` and 16 base32 characters (80 random bits)."""
    return f"{prefix}_{base64.b32encode(os.urandom(10)).decode().lower()}"


def is_id(given: object) -> TypeGuard[str]:
    """Whether `given` may be an id or a name."""
    return isinstance(given, str) and _ID.fullmatch(given) is not None


def check_id(given: object, *, what: str) -> str:
    """Return `given` when it may be an id or a name.

    Raises:
        InvalidRequest (INVALID_NAME): it does not match `[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?`.
    """
    if not is_id(given):
        raise error(
            ErrorCode.INVALID_NAME,
            f"{repr(given)[:80]} cannot be the {what}",
            hint="1 to 63 of a-z, 0-9, _ and -, beginning and ending with a letter or digit",
        )
    return given
