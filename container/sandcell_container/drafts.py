"""What a file or a folder is called while it is on its way to its place, beside that: one name for all who make such, and for
who passes over them. Standard library only, and without `re`, which costs the worker milliseconds."""

from __future__ import annotations

import os

__all__ = ["draft_name", "is_draft"]

_HEADS = (b".sandcell", b".sandcell-new", b".sandcell-old")  # the last two: folders whose content is swapped
_RANDOM_BYTES = 8
_HEX = frozenset(b"0123456789abcdef")


def draft_name(head: bytes = _HEADS[0]) -> bytes:
    """Return a name that nothing has yet."""
    return head + b"-" + os.urandom(_RANDOM_BYTES).hex().encode()


def is_draft(name: bytes) -> bool:
    """Tell whether this is such a name."""
    head, _, mark = name.rpartition(b"-")
    return head in _HEADS and len(mark) == 2 * _RANDOM_BYTES and _HEX.issuperset(mark)
