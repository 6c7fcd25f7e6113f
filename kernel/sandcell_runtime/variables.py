"""What the variables of an interpreter are, told without running any of the user's code.

Only objects whose class is exactly one of those named here are looked into; of all others the class is named. So no
`__repr__`, `__len__`, `__class__` or property of the user's is ever called, whatever it would do. What is told has a
bound in size and in time, and is safe to ask for from another thread while a cell runs.
"""

from __future__ import annotations

import itertools
import sys
import time
import types
from collections import deque
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["describe_variables"]

MAX_VARIABLES = 1000
MAX_PREVIEW = 120  # characters
_MAX_ITEMS = 6
_MAX_DEPTH = 3
_MAX_BITS = 2000  # of an integer that is written out
_TIME_S = 0.5  # then variables are only named

# Descriptors of C, which no metaclass of the user's can come before.
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
_module_of: Callable[[type], object] = type.__dict__["__module__"].__get__


def describe_variables(names: Mapping[str, object], hidden: Mapping[str, object]) -> dict[str, Any]:
    """Return `{"variables": [{name, type, shape, size, preview}], "total": n}`, in the order of their making.

    Left out: names that begin with an underscore, modules, and what is in `hidden` as it is there. `shape` is a list of
    numbers or None; `size` is bytes, without those of the parts, or None. At most MAX_VARIABLES are told, of `total`.
    """
    found = [(name, value) for name, value in list(names.items()) if _is_shown(name, value, hidden)]
    deadline = time.monotonic() + _TIME_S
    told = [_describe(name, value, deadline) for name, value in found[:MAX_VARIABLES]]
    return {"variables": told, "total": len(found)}


def _is_shown(name: object, value: object, hidden: Mapping[str, object]) -> bool:
    if type(name) is not str or name.startswith("_") or type(value) is types.ModuleType:
        return False
    return not (name in hidden and hidden[name] is value)


def _describe(name: str, value: object, deadline: float) -> dict[str, Any]:
    shape, size, preview = None, None, ""
    if time.monotonic() < deadline:
        try:
            shape, size, preview = _look_into(value)
        except Exception:  # noqa: BLE001 -- a library, or a container that changes meanwhile: then only its name is told
            preview = ""
    return {
        "name": _plain_text(name),
        "type": _plain_text(_type_name(type(value))),
        "shape": shape,
        "size": size,
        "preview": _shorten(_plain_text(preview)),
    }


def _class_of(value: object) -> type[Any]:
    return type(value)


def _type_name(kind: type) -> str:
    """Return the name of a class, with its module where that is not builtins or the user's own."""
    module = _module_of(kind)
    name = _name_of(kind)
    if type(module) is not str or module in {"builtins", "__main__"}:
        return name
    return f"{module}.{name}"


def _look_into(value: object) -> tuple[list[int] | None, int | None, str]:
    """Return shape, size and preview."""
    kind = _class_of(value)
    if kind in _SIZED:
        return [len(cast("Any", value))], sys.getsizeof(value), _preview(value, 0)
    if kind in _PLAIN:
        return None, sys.getsizeof(value), _preview(value, 0)
    for module, name, look in _LIBRARIES:
        if kind is getattr(sys.modules.get(module), name, None):
            return look(value)
    if kind is getattr(sys.modules.get("numpy"), _name_of(kind), None):
        return [], None, _preview(cast("Any", value).item(), 0)
    return None, None, _preview(value, 0)


# --- previews


def _preview(value: object, depth: int) -> str:
    kind = _class_of(value)
    write = _WRITERS.get(kind)
    if write is not None:
        return write(value, depth)
    if _makes_classes(kind):
        return f"<class {_name_of(cast('type', value))}>"
    return f"<{_name_of(kind)}>"


def _makes_classes(kind: type) -> bool:
    """Whether instances of `kind` are classes. By the order of bases itself: `issubclass` asks the metaclass."""
    bases: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return any(base is type for base in bases)


def _write_int(value: Any, _depth: int) -> str:
    bits = value.bit_length()
    return repr(value) if bits <= _MAX_BITS else f"<int of {bits} bits>"


def _write_text(value: Any, _depth: int) -> str:
    return repr(value if len(value) <= MAX_PREVIEW else value[:MAX_PREVIEW])


def _write_bytes(value: Any, _depth: int) -> str:
    return repr(bytes(value[:MAX_PREVIEW]))


def _write_range(value: Any, depth: int) -> str:
    parts = (value.start, value.stop, value.step)
    return f"{_name_of(_class_of(value))}({', '.join(_preview(part, depth + 1) for part in parts)})"


def _write_items(value: Any, depth: int) -> str:
    opening, closing = _BRACKETS.get(_class_of(value), (f"{_name_of(_class_of(value))}([", "])"))
    return f"{opening}{_some((_preview(item, depth + 1) for item in value), len(value), depth)}{closing}"


def _write_table(value: Any, depth: int) -> str:
    pairs = (f"{_preview(key, depth + 1)}: {_preview(item, depth + 1)}" for key, item in value.items())
    return f"{{{_some(pairs, len(value), depth)}}}"


def _write_function(value: Any, _depth: int) -> str:
    code = value.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    return f"<function {code.co_name}({', '.join(code.co_varnames[:count])})>"


def _some(texts: Iterator[str], count: int, depth: int) -> str:
    if depth >= _MAX_DEPTH:
        return "..." if count else ""
    shown = list(itertools.islice(texts, _MAX_ITEMS))
    return ", ".join([*shown, "..."] if count > len(shown) else shown)


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_WRITERS: dict[type, Callable[[Any, int], str]] = {
    type(None): lambda value, _: "None",
    type(Ellipsis): lambda value, _: "Ellipsis",
    type(NotImplemented): lambda value, _: "NotImplemented",
    bool: lambda value, _: repr(value),
    int: _write_int,
    float: lambda value, _: repr(value),
    complex: lambda value, _: repr(value),
    str: _write_text,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    range: _write_range,
    slice: _write_range,
    list: _write_items,
    tuple: _write_items,
    set: _write_items,
    frozenset: _write_items,
    deque: _write_items,
    dict: _write_table,
    types.FunctionType: _write_function,
    types.BuiltinFunctionType: lambda value, _: f"<built-in function {value.__name__}>",
}
_SIZED = frozenset({str, bytes, bytearray, range, list, tuple, set, frozenset, dict, deque})
_PLAIN = frozenset({bool, int, float, complex, type(None)})


# --- libraries, where they are in memory: each of these reads what the object holds ready


def _look_at_array(value: Any) -> tuple[list[int], int, str]:
    items: list[object] = value.flat[:_MAX_ITEMS].tolist() if value.dtype.kind in "biufcSU" else []
    shown = _some((_preview(item, 1) for item in items), value.size, 0) if items else ""
    return list(value.shape), value.nbytes, f"{value.dtype} [{shown}]" if shown else str(value.dtype)


def _look_at_frame(value: Any) -> tuple[list[int], int | None, str]:
    columns = value.columns
    names = _some((_preview(name, 1) for name in columns[:_MAX_ITEMS].tolist()), len(columns), 0)
    size = int(value.memory_usage(index=False).sum()) if len(columns) <= MAX_VARIABLES else None
    return list(value.shape), size, f"columns: {names}"


def _look_at_series(value: Any) -> tuple[list[int], int, str]:
    return list(value.shape), int(value.nbytes), str(value.dtype)


def _look_at_arrow(value: Any) -> tuple[list[int], int, str]:
    return (
        list(value.shape),
        value.nbytes,
        f"columns: {_some(map(repr, value.column_names), value.num_columns, 0)}",
    )


def _look_at_polars(value: Any) -> tuple[list[int], int, str]:
    return (
        list(value.shape),
        int(value.estimated_size()),
        f"columns: {_some(map(repr, value.columns), value.width, 0)}",
    )


def _look_at_tensor(value: Any) -> tuple[list[int], int, str]:
    return list(value.shape), value.element_size() * value.nelement(), f"{value.dtype} on {value.device}"


def _look_at_moment(value: Any) -> tuple[None, None, str]:
    if getattr(value, "tzinfo", None) is None:
        return None, None, str(value)
    return None, None, f"{value.replace(tzinfo=None)} in a timezone"  # which may be of a class of the user's


def _look_at_number(value: Any) -> tuple[None, None, str]:
    return None, None, str(value) if sys.getsizeof(value) < MAX_PREVIEW else ""


_LIBRARIES: tuple[tuple[str, str, Callable[[Any], tuple[list[int] | None, int | None, str]]], ...] = (
    ("numpy", "ndarray", _look_at_array),
    ("pandas", "DataFrame", _look_at_frame),
    ("pandas", "Series", _look_at_series),
    ("pandas", "Index", _look_at_series),
    ("pandas", "RangeIndex", _look_at_series),
    ("pandas", "DatetimeIndex", _look_at_series),
    ("pyarrow", "Table", _look_at_arrow),
    ("polars", "DataFrame", _look_at_polars),
    ("torch", "Tensor", _look_at_tensor),
    ("datetime", "date", _look_at_moment),
    ("datetime", "datetime", _look_at_moment),
    ("datetime", "time", _look_at_moment),
    ("datetime", "timedelta", _look_at_moment),
    ("decimal", "Decimal", _look_at_number),
    ("uuid", "UUID", _look_at_number),
    ("pathlib", "PosixPath", _look_at_number),
)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_PREVIEW else f"{text[: MAX_PREVIEW - 3]}..."


def _plain_text(text: str) -> str:
    """Return text that JSON can carry."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
