"""The JSON of a kernel's own messages, which no code of the user's changes.

Code that puts something else in place of `json.dumps`, as libraries and tests do, would otherwise leave its run without a
reply, and the next without its request: what is needed is taken out of the module before any such code runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from jupyter_client.jsonutil import json_clean, json_default

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["pack", "unpack"]

# Of C where there is C; no type knows them. Each is a function of its own, with nothing to look up in a module.
_encoder: Any = cast("Any", json.encoder).c_make_encoder
_text: Any = cast("Any", json.encoder).c_encode_basestring
_scan: Callable[[str, int], tuple[Any, int]] = cast("Any", json.JSONDecoder()).scan_once
_PLAIN = (None, ": ", ", ", False, False, False)  # indent, separators, and no sorted keys, skipped keys, NaN


def pack(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8; what JSON has no form for, as jupyter_client cleans it.

    Raises:
        TypeError, ValueError, RecursionError: there is no such form.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError):
        return _encode(json_clean(value))


def unpack(data: bytes | str) -> Any:
    """Return what a message says. Raises ValueError where it is no JSON."""
    text = (data.decode("utf-8", "replace") if isinstance(data, bytes) else data).strip()
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("it is no JSON") from None
    if end != len(text):
        raise ValueError("something follows the JSON")
    return value


def _encode(value: Any) -> bytes:
    pieces: list[str] = _encoder({}, json_default, _text, *_PLAIN)(value, 0)
    return "".join(pieces).encode("utf-8", "surrogateescape")
