"""The place where a page of a list has ended, as text that a client sends back. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import cast

import msgspec

from sandcell_container.errors import ErrorCode, error

__all__ = ["decode_place", "encode_place"]

_LONGEST = 2**16


def encode_place(place: tuple[int, str]) -> str:
    """Return the cursor behind an entry: its key, and its relative path, in which lone surrogates stand for bytes."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def decode_place(cursor: str) -> list[object]:
    """Return what `encode_place` was given.

    Raises:
        InvalidRequest (STALE_CURSOR): it is no such cursor.
    """
    try:
        if len(cursor) > _LONGEST:
            raise ValueError("too long")
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        number, path = msgspec.convert(cast("object", json.loads(text)), tuple[int, str])
        path.encode("utf-8", "surrogateescape")
        if "\0" in path:
            raise ValueError("no path")
    except (binascii.Error, msgspec.ValidationError, RecursionError, ValueError) as problem:
        raise error(
            ErrorCode.STALE_CURSOR,
            f"{cursor[:80]!r} is no cursor of a list: {problem}"[:200],
            hint="ask for the list again, without a cursor",
        ) from None
    return [number, path]
