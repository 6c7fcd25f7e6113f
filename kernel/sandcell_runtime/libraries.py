"""Objects of libraries that the user may have imported: recognised without importing anything."""

from __future__ import annotations

import sys

__all__ = ["is_a"]


def is_a(value: object, module: str, name: str) -> bool:
    """Whether `value` is of a class of a library, which has been imported where that is so."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
