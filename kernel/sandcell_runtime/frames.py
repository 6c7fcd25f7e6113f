"""Tables of pandas and polars as plain data: the first rows, with the shape of the whole, in bounded time.

A table is `{"library", "kind": "frame" or "series", "shape": [rows, columns], "columns": [name], "types": [type],
"dtypes": [text], "rows": [[cell]], "index", "column_names"}`. `rows` are the first ones that fit, each as long as
`columns`, which are all but where there are very many; see `cells` for what a cell can be. `type` is one of integer
number boolean string datetime date time timedelta decimal binary other; `dtype` is the library's own name of it.
`index` is None where rows are only counted, else `{"names", "types", "dtypes", "rows"}` in the same way. A name is
text or a number, or a list where names have several levels; `column_names` are those of the levels.

Neither library is imported here: who has an object of it has done so.
"""

from __future__ import annotations

import datetime
import decimal
import math
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sandcell_runtime.cells import Budget, Full, cell_of
from sandcell_runtime.libraries import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["DATA_MIME", "table_of"]

DATA_MIME = "application/vnd.sandcell.data+json"
MAX_ROWS = 1000
MAX_COLUMNS = 1000
MAX_CELLS = 50_000
MAX_BYTES = 900_000  # of JSON, below what a result in line may have

_NUMPY_TYPES = {
    "i": "integer",
    "u": "integer",
    "f": "number",
    "b": "boolean",
    "M": "datetime",
    "m": "timedelta",
}
_PYTHON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (datetime.datetime, "datetime"),
    (datetime.date, "date"),
    (datetime.time, "time"),
    (datetime.timedelta, "timedelta"),
    (decimal.Decimal, "decimal"),
    (bytes, "binary"),
)
_POLARS_TYPES = {
    "Boolean": "boolean",
    "String": "string",
    "Categorical": "string",
    "Enum": "string",
    "Datetime": "datetime",
    "Date": "date",
    "Time": "time",
    "Duration": "timedelta",
    "Decimal": "decimal",
    "Binary": "binary",
}


class Column(NamedTuple):
    """One column, or one level of an index: its first values."""

    name: Any
    type: str
    dtype: str
    values: Sequence[Any]


def table_of(value: object) -> dict[str, Any] | None:
    """Return the table that `value` is, None where it is none.

    Raises whatever the libraries, or objects of the user's in the table, raise when they are looked at.
    """
    for module, kind, describe in _KINDS:
        if is_a(value, module, kind):
            return describe(value)
    return None


def _table(
    columns: list[Column],
    index: list[Column],
    *,
    library: str,
    kind: str,
    shape: Sequence[int],
    levels: Sequence[Any] = (),
) -> dict[str, Any]:
    budget = Budget(MAX_BYTES)
    about: dict[str, Any] = {"library": library, "kind": kind, "shape": list(shape)}
    try:
        heads = _heads(columns, budget)
        labels = _heads(index, budget, "names") if index else None
        names = [cell_of(name, budget) for name in levels] or None
    except Full:  # names that are longer than all there may be
        return {
            **about,
            "columns": [],
            "types": [],
            "dtypes": [],
            "rows": [],
            "index": None,
            "column_names": None,
        }
    rows = _rows(columns, index, budget)
    if labels is not None:
        labels["rows"] = [row[len(columns) :] for row in rows]
    rows = [row[: len(columns)] for row in rows]
    return {**about, **heads, "rows": rows, "index": labels, "column_names": names}


def _heads(columns: list[Column], budget: Budget, title: str = "columns") -> dict[str, Any]:
    budget.spend(sum(len(each.type) + len(each.dtype) for each in columns))
    return {
        title: [cell_of(each.name, budget) for each in columns],
        "types": [each.type for each in columns],
        "dtypes": [each.dtype for each in columns],
    }


def _rows(columns: list[Column], index: list[Column], budget: Budget) -> list[list[Any]]:
    rows = list[list[Any]]()
    try:
        for row in zip(*(each.values for each in (*columns, *index)), strict=True):
            rows.append([cell_of(value, budget) for value in row])
    except Full:
        pass  # the shape tells how many there are
    return rows


def _row_count(columns: int) -> int:
    return max(min(MAX_ROWS, MAX_CELLS // max(columns, 1)), 1)


def _type_of_values(values: Iterable[Any]) -> str:
    """Return the type that all `values` have which are there, "other" where they differ or there are none."""
    found = {_python_type(value) for value in values if _is_there(value)}
    return found.pop() if len(found) == 1 else "other"


def _is_there(value: Any) -> bool:
    """Whether `value` stands for something and not for what is missing."""
    if value is None or isinstance(value, float):
        return value is not None and not math.isnan(value)
    return type(value).__name__ not in ("NAType", "NaTType")


def _python_type(value: object) -> str:
    return next((name for kind, name in _PYTHON_TYPES if isinstance(value, kind)), "other")


# --- pandas


def _pandas_frame(frame: Any) -> dict[str, Any]:
    width = min(frame.shape[1], MAX_COLUMNS)
    head = frame.iloc[: _row_count(width), :width]
    names = [name for name in head.columns.names if name is not None]
    return _table(
        [_pandas_column(head.columns[at], head.iloc[:, at]) for at in range(width)],
        _pandas_index(frame.index, head.index),
        library="pandas",
        kind="frame",
        shape=frame.shape,
        levels=[_label(name) for name in head.columns.names] if names else (),
    )


def _pandas_series(series: Any) -> dict[str, Any]:
    head = series.iloc[: _row_count(1)]
    return _table(
        [_pandas_column(series.name, head)],
        _pandas_index(series.index, head.index),
        library="pandas",
        kind="series",
        shape=(len(series), 1),
    )


def _pandas_column(name: Any, values: Any) -> Column:
    items = list(cast("Iterable[Any]", values.astype(object).array))
    return Column(_label(name), _pandas_type(values.dtype, items), str(values.dtype), items)


def _pandas_index(whole: Any, head: Any) -> list[Column]:
    """Return the levels of an index, none where it only counts from 0."""
    if is_a(whole, "pandas", "RangeIndex") and (whole.start, whole.step, whole.name) == (0, 1, None):
        return []
    levels = [head.get_level_values(at) for at in range(head.nlevels)]
    return [
        Column(_label(level.name), _pandas_type(level.dtype, items), str(level.dtype), items)
        for level in levels
        for items in [list(cast("Iterable[Any]", level.astype(object)))]
    ]


def _pandas_type(dtype: Any, values: list[Any]) -> str:
    known = _NUMPY_TYPES.get(getattr(dtype, "kind", "O"))
    return known or _type_of_values(values)


def _label(name: Any) -> Any:
    """Return the name of a column as it is where it is text or a number, else as text; several levels as a list."""
    if isinstance(name, tuple):
        return [_label(part) for part in cast("Sequence[Any]", name)]
    return name


# --- polars


def _polars_frame(frame: Any) -> dict[str, Any]:
    width = min(frame.width, MAX_COLUMNS)
    count = _row_count(width)
    columns = [_polars_column(series.head(count)) for series in islice(frame.iter_columns(), width)]
    return _table(columns, [], library="polars", kind="frame", shape=frame.shape)


def _polars_series(series: Any) -> dict[str, Any]:
    column = _polars_column(series.head(_row_count(1)))
    return _table([column], [], library="polars", kind="series", shape=(len(series), 1))


def _polars_column(series: Any) -> Column:
    dtype = series.dtype
    kind = str(dtype.base_type())
    name = "integer" if dtype.is_integer() else "number" if dtype.is_float() else _POLARS_TYPES.get(kind)
    if getattr(dtype, "time_unit", None) == "ns":  # which Python's own types would cut
        series = series.dt.to_string("iso:strict" if name == "datetime" else "iso")
    return Column(series.name, name or "other", str(dtype), series.to_list())


_KINDS: tuple[tuple[str, str, Callable[[Any], dict[str, Any]]], ...] = (
    ("pandas", "DataFrame", _pandas_frame),
    ("pandas", "Series", _pandas_series),
    ("polars", "DataFrame", _polars_frame),
    ("polars", "Series", _polars_series),
)
