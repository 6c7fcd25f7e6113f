"""The environment of user code: what may stand in it, and how changes are applied. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_env", "merge_env"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def check_env(changes: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Return changes that can be made to an environment.

    Raises:
        InvalidRequest (INVALID_ENV_NAME): a name is none, or its value holds a NUL.
    """
    for name, value in changes.items():
        if _NAME.fullmatch(name) is None or "\0" in (value or ""):
            raise error(
                ErrorCode.INVALID_ENV_NAME,
                f"{name[:80]!r} cannot be a variable",
                hint="letters, digits and _, not beginning with a digit; no NUL in the value",
                details={"name": name[:80]},
            )
    return changes


def merge_env(base: Mapping[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return `base` with `changes`; None takes a variable away. Raises as `check_env`."""
    merged = {**base, **check_env(changes or {})}
    return {name: value for name, value in merged.items() if value is not None}
