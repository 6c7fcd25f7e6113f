"""Plain data that somebody else wrote: what has another type than it should is read as its empty value. Pure.

Neither a front end nor code inside the sandbox may break a front by what it writes.
"""

from __future__ import annotations

from typing import Any, cast

__all__ = ["list_of", "table_of", "text_of"]


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def table_of(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType] -- of JSON: anything
