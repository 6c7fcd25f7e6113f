"""Results as plain data: the value of a run, where it is safe as JSON. Only for requests that ask for it."""

from __future__ import annotations

import math
from json import dumps
from typing import cast

__all__ = ["VALUE_MIME", "NotPlain", "plain_value"]

VALUE_MIME = "application/vnd.sandcell.value+json"
MAX_VALUE_BYTES = 2**20
_MAX_DEPTH = 64


class NotPlain(Exception):
    """The value is not JSON-safe, or too large: it has no plain form, which is an answer and no fault."""


def plain_value(value: object, *, limit: int = MAX_VALUE_BYTES) -> object:
    """Return `value` as None, bool, int, finite float, str, list, or dict with str keys; tuples become lists.

    Raises:
        NotPlain: anything else is in it, it is deeper than 64 levels, or `limit` bytes or more as JSON.
    """
    budget = _Budget(limit)
    plain = _plain(value, 0, budget)
    if len(dumps(plain, allow_nan=False)) >= limit:
        raise NotPlain
    return plain


class _Budget:
    """Counts items so that a huge value is given up early instead of being copied whole first."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit // 2  # an item of a list is two bytes of JSON at least

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise NotPlain


def _plain(value: object, depth: int, budget: _Budget) -> object:
    budget.spend(1)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, str):
        budget.spend(len(value) // 2)
        return _encodable(str(value))
    if depth >= _MAX_DEPTH:
        raise NotPlain
    if isinstance(value, (list, tuple)):
        items = cast("list[object] | tuple[object, ...]", value)
        return [_plain(item, depth + 1, budget) for item in items]
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {_key(key): _plain(item, depth + 1, budget) for key, item in table.items()}
    raise NotPlain


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise NotPlain
    return float(value)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotPlain
    return _encodable(str(key))


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which no JSON text can carry
            raise NotPlain from None
    return text
