"""Single values of tables and charts as JSON has them, at a bounded cost.

Null stands for what is missing: None, NaN, NaT, NA. Infinite numbers are "Infinity" and "-Infinity"; integers that a
double cannot hold, decimals, dates, times and durations are text, in ISO 8601 where that has a form; bytes are base64.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Budget", "Full", "cell_of", "duration_text", "safe_text"]

_MISSING = ("NAType", "NaTType")
_EXACT = 2**53  # the first integer that a double, and so JSON in JavaScript, cannot tell from its neighbour
_MAX_DEPTH = 32
_COST = 2  # bytes of the shortest item of a list, with its comma


class Full(Exception):
    """The next value does not fit any more."""

    def __init__(self) -> None:
        super().__init__("it is too large")


class Budget:
    """Bytes of JSON that may still be made."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Raises Full where there is less left."""
        self.left -= cost
        if self.left < 0:
            raise Full


def cell_of(value: Any, budget: Budget, depth: int = 0) -> Any:
    """Return `value` as the module says; what has no form there as its `str`.

    Raises:
        Full: it does not fit. Whatever an object of the user's raises when it is looked at.
    """
    kind = cast("type[object]", type(value))
    if kind is float:  # as most are
        return _float(value, budget)
    if kind is str:
        return safe_text(value, budget)
    budget.spend(_COST)
    match value:
        case None | bool():
            return value
        case float():
            return _float(float(value), budget)
        case int():
            return _integer(int(value), budget)
        case str():
            return safe_text(value, budget)
        case bytes() | bytearray():
            budget.spend(len(value))
            return safe_text(base64.b64encode(value).decode(), budget)
        case datetime.date() | datetime.time() | datetime.timedelta() | decimal.Decimal():
            return None if _is_missing(value) else safe_text(_text_of(value), budget)
        case list() | tuple() | set() | frozenset() | dict() if depth < _MAX_DEPTH:
            return _container(value, budget, depth)
        case _:
            return None if _is_missing(value) else _other(value, budget, depth)


def safe_text(text: str, budget: Budget) -> str:
    """Return `text` with what UTF-8 cannot carry (lone surrogates) written as Python writes it. Raises Full."""
    if len(text) > budget.left:
        raise Full
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    budget.spend(len(encode_basestring(text).encode()) + 1)
    return str(text)


def duration_text(value: datetime.timedelta) -> str:
    """Return a duration in ISO 8601, in days, hours, minutes and seconds."""
    sign, whole = ("-", -value) if value < datetime.timedelta() else ("", value)
    minutes, seconds = divmod(whole.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{whole.microseconds:06}" if whole.microseconds else ""
    return f"{sign}P{whole.days}DT{hours}H{minutes}M{seconds}{fraction}S"


def _float(value: float, budget: Budget) -> float | str | None:
    budget.spend(18)
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _integer(value: int, budget: Budget) -> int | str:
    budget.spend(value.bit_length() // 3)
    return value if -_EXACT < value < _EXACT else _long_text(value)


def _long_text(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than this interpreter is told to write
        return hex(value)


def _text_of(value: datetime.date | datetime.time | datetime.timedelta | decimal.Decimal) -> str:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.timedelta):
        own = getattr(value, "isoformat", None)  # pandas', which knows nanoseconds
        return str(own()) if callable(own) else duration_text(value)
    return value.isoformat()


def _is_missing(value: object) -> bool:
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return type(value).__name__ in _MISSING


def _container(value: Any, budget: Budget, depth: int) -> Any:
    if isinstance(value, dict):
        table = cast("Mapping[Any, Any]", value)
        return {_key(key, budget): cell_of(item, budget, depth + 1) for key, item in table.items()}
    return [cell_of(item, budget, depth + 1) for item in cast("Iterable[Any]", value)]


def _key(key: object, budget: Budget) -> str:
    budget.spend(_COST)
    return safe_text(key if isinstance(key, str) else str(key), budget)


def _other(value: Any, budget: Budget, depth: int) -> Any:
    """A scalar or an array of numpy's, by what Python has for it; anything else by its text."""
    if type(value).__module__ == "numpy":
        if getattr(value, "ndim", 0) and depth < _MAX_DEPTH:
            return [cell_of(item, budget, depth + 1) for item in value]
        plain = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
        if type(plain).__module__ != "numpy" and type(value).__name__ not in ("datetime64", "timedelta64"):
            return cell_of(plain, budget, depth + 1)
        return _numpy_time(value, budget)
    if type(value).__module__.partition(".")[0] == "polars" and hasattr(value, "to_list"):
        return cell_of(value.to_list(), budget, depth + 1)
    return safe_text(str(value), budget)


def _numpy_time(value: Any, budget: Budget) -> str | None:
    text = str(value)
    return None if text == "NaT" else safe_text(text, budget)
