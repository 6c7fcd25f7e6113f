"""Objects of libraries that the user may have imported: recognised without importing anything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_a"]

# A descriptor of C, which no metaclass of the user's can come before.
_bases_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def is_a(value: object, module: str, name: str) -> bool:
    """Whether `value` is of a class of a library, which has been imported where that is so.

    By its type alone: what `isinstance` asks beyond that, a property of the user's may answer.
    """
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and any(base is kind for base in _bases_of(type(value)))
