"""A table that a run displayed, as data: the first rows, with the shape of the whole.

Source of the shape: `sandcell_runtime.frames`, and docs/results.md.
"""

from __future__ import annotations

import base64
import datetime
import importlib
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Table", "TableIndex", "table_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIndex:
    """The labels of the rows: a list for each row, as long as `names`."""

    names: list[Any]
    types: list[str]
    dtypes: list[str]
    rows: list[list[Any]] = field(default_factory=list[list[Any]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The head of a table: `rows` as lists, each as long as `columns`; `shape` is that of the whole, rows and columns.

    `types` are integer number boolean string datetime date time timedelta decimal binary other, `dtypes` the library's own
    names. What is missing is None; integers of 2**53 and more, infinite numbers, dates, times, durations, decimals
    and bytes (base64) are text. `index` is None where rows are only counted.
    """

    library: str
    kind: Literal["frame", "series"]
    shape: tuple[int, int]
    columns: list[Any]
    types: list[str]
    dtypes: list[str]
    rows: list[list[Any]]
    index: TableIndex | None = None
    column_names: list[Any] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the table was left out."""
        return self.shape == (len(self.rows), len(self.columns))

    def to_pandas(self) -> Any:
        """Return the head as a pandas DataFrame, or Series, with the types that it had.

        Raises:
            InvalidRequest (UNSUPPORTED): pandas is not installed here.
        """
        pandas = _pandas()
        of_polars = self.library == "polars"
        series = [
            _series(pandas, [row[at] for row in self.rows], kind, dtype, of_polars=of_polars)
            for at, (kind, dtype) in enumerate(zip(self.types, self.dtypes, strict=True))
        ]
        frame = pandas.DataFrame(dict(enumerate(series)), index=range(len(self.rows)))
        frame.columns = self._column_index(pandas)
        if self.index is not None:
            frame.index = _index(pandas, self.index)
        return frame.iloc[:, 0] if self.kind == "series" else frame

    def _column_index(self, pandas: Any) -> Any:
        if not self.columns:
            return pandas.RangeIndex(0)
        names = [_name(name) for name in self.columns]
        levels = [_name(name) for name in self.column_names or ()]
        if all(isinstance(name, tuple) for name in names):
            return pandas.MultiIndex.from_tuples(names, names=levels or None)
        return pandas.Index(names, name=levels[0] if levels else None, tupleize_cols=False)


def table_from(raw: object) -> Table | None:
    """Return the table that a bundle holds; None where it is none, as code in the sandbox can put there what it likes."""
    try:
        table = msgspec.convert(raw, Table)
    except msgspec.ValidationError:
        return None
    width, index = len(table.columns), table.index
    fits = len(table.types) == len(table.dtypes) == width and all(len(row) == width for row in table.rows)
    if table.kind == "series":
        fits = fits and width == 1
    if index is not None:
        depth = len(index.names)
        fits = fits and depth > 0 and len(index.types) == len(index.dtypes) == depth
        fits = fits and len(index.rows) == len(table.rows) and all(len(row) == depth for row in index.rows)
    return table if fits else None


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as problem:
        raise error(
            ErrorCode.UNSUPPORTED,
            f"pandas cannot be imported here: {problem}",
            hint="pip install pandas, or use columns and rows as they are",
        ) from problem


# --- values back from JSON

_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "integer": int,
    "number": float,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "decimal": Decimal,
    "binary": base64.b64decode,
}
# Types of numpy and pandas that are taken by name. Others come from code that nobody trusts, and could ask for any
# memory: "U1000000000" is a type too.
_DTYPE = re.compile(
    r"str|u?int(8|16|32|64)|float(16|32|64)|bool|complex(64|128)|U?Int(8|16|32|64)|Float(32|64)|boolean|category|string"
    r"|datetime64\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,40})?\]|timedelta64\[(s|ms|us|ns)\]|period\[[A-Za-z-]{1,12}\]"
)
_POLARS_DTYPE = re.compile(r"(U?Int(?:8|16|32|64)|Float(?:32|64))")
_POLARS_TIME = re.compile(
    r"(Datetime|Duration)\(time_unit='(ms|us|ns)'(?:, time_zone='([A-Za-z0-9_+:/-]{1,40})')?"
)


def _series(pandas: Any, values: list[Any], kind: str, dtype: str, *, of_polars: bool = False) -> Any:
    """Return the values of one column with the type `dtype`, or what pandas makes of them where that does not fit."""
    try:
        plain = [None if value is None else _value(value, kind, dtype) for value in values]
        name = _of_polars(dtype, has_gaps=None in plain) if of_polars else dtype
        return _typed(pandas, plain, kind, name if name and _DTYPE.fullmatch(name) else None)
    except (TypeError, ValueError, ArithmeticError, LookupError, OSError):
        return pandas.Series(values, dtype=object)  # forged, or a zone of time that is not known here


def _value(value: Any, kind: str, dtype: str) -> Any:
    if dtype.startswith("complex"):
        return complex(value)
    read = _FROM_JSON.get(kind)
    return value if read is None else read(value)


def _typed(pandas: Any, values: list[Any], kind: str, name: str | None) -> Any:
    if kind == "datetime":
        return _times(pandas, values, name)
    if kind == "timedelta":
        spans = pandas.Series(pandas.to_timedelta(values))
        return spans.astype(name) if name else spans
    if name == "str" and not _has_str(pandas):
        name = None
    series = pandas.Series(values, dtype=object)
    return series if name is None else series.astype(name)


def _has_str(pandas: Any) -> bool:
    """Whether "str" is a type that knows what is missing, as from pandas 3 on; before, it makes text of everything."""
    return str(pandas.Series(["a"]).dtype) == "str"


def _times(pandas: Any, values: list[Any], name: str | None) -> Any:
    if name is None or not name.startswith("datetime64"):
        stamps = [None if value is None else pandas.Timestamp(value) for value in values]
        return pandas.Series(stamps, dtype=object)
    zoned = "," in name
    series = pandas.Series(pandas.to_datetime(values, utc=zoned, format="ISO8601"))
    return series.astype(name)


def _of_polars(dtype: str, *, has_gaps: bool) -> str | None:
    """Return the type of pandas' for one of polars', None for one that pandas has not."""
    number, moment = _POLARS_DTYPE.fullmatch(dtype), _POLARS_TIME.match(dtype)
    if number:
        return dtype if has_gaps and not dtype.startswith("Float") else dtype.lower()
    if moment:
        kind = "datetime64" if moment[1] == "Datetime" else "timedelta64"
        return f"{kind}[{moment[2]}, {moment[3]}]" if moment[3] else f"{kind}[{moment[2]}]"
    return (
        "category"
        if dtype.startswith(("Categorical", "Enum"))
        else {"Boolean": "boolean", "String": "str"}.get(dtype)
    )


def _index(pandas: Any, index: TableIndex) -> Any:
    levels = [
        _series(pandas, [row[at] for row in index.rows], kind, dtype)
        for at, (kind, dtype) in enumerate(zip(index.types, index.dtypes, strict=True))
    ]
    names = [_name(name) for name in index.names]
    if len(levels) == 1:
        return pandas.Index(levels[0], name=names[0])
    return pandas.MultiIndex.from_arrays(levels, names=names)


def _name(name: Any) -> Any:
    """Return the name of a column as Python has it: several levels as a tuple; what cannot be one as text."""
    if isinstance(name, list):
        return tuple(_name(part) for part in cast("Sequence[Any]", name))
    return name if name is None or isinstance(name, str | int | float) else str(name)
