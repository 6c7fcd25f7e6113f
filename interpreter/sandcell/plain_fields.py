"""Records as plain data: what `dataclasses.asdict` does, for values of sandboxes, which may be nested as deep as they like."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance

__all__ = ["fields_of"]


def fields_of(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a record by name, with the records in them as dicts too; all containers are copies."""
    whole = dict[str, Any]()
    waiting: list[tuple[object, dict[Any, Any] | list[Any]]] = [(record, whole)]
    while waiting:  # no recursion: `asdict` ends at a third of the depth that JSON can be read with
        source, copy = waiting.pop()
        for name, value in _items_of(source):
            made = _emptied(value)
            if made is not value:
                waiting.append((value, made))
            if isinstance(copy, dict):
                copy[name] = made
            else:
                copy.append(made)
    return whole


def _emptied(value: Any) -> Any:
    """Return the container that a copy of `value` begins with, `value` itself where it is none."""
    if isinstance(value, dict) or is_dataclass(value):
        return {}
    return [] if isinstance(value, list | tuple) else value


def _items_of(source: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(source, dict):
        return cast("dict[str, Any]", source).items()
    if isinstance(source, list | tuple):
        return enumerate(cast("Iterable[Any]", source))
    return [(each.name, getattr(source, each.name)) for each in fields(cast("DataclassInstance", source))]
