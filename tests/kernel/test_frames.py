"""Tables of pandas and polars as data, and back."""

from __future__ import annotations

import datetime
import decimal
import importlib
import json
import time
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandcell.table import Table, table_from
from sandcell_runtime.frames import MAX_ROWS, table_of

pd: Any = pandas
pl: Any = importlib.import_module("polars")


def read(value: object) -> Table:
    """Return the table as a client has it, by way of JSON."""
    told = table_of(value)
    text = json.dumps(told, allow_nan=False, ensure_ascii=False)
    assert len(text.encode()) < 2**20
    table = table_from(json.loads(text))
    assert table is not None
    return table


FRAMES: dict[str, Any] = {
    "numbers": pd.DataFrame({"i": [1, 2**62], "f": [1.5, float("nan")], "u": numpy.array([1, 2**64 - 1], "uint64")}),
    "infinite": pd.DataFrame({"f": [float("inf"), float("-inf")], "g": numpy.array([1, 2], "float32")}),
    "nullable": pd.DataFrame({"i": pd.array([1, None], "Int64"), "b": pd.array([True, None], "boolean")}),
    "text": pd.DataFrame({"s": ["a", None], "c": pd.Categorical(["x", "y"]), "o": pd.Series(["a", "b"], dtype=object)}),
    "moments": pd.DataFrame(
        {
            "ns": pd.Series(pd.to_datetime(["2020-01-01T00:00:00.123456789", None])),
            "zoned": pd.date_range("2020-03-29", periods=2, tz="Europe/Berlin"),
            "span": pd.to_timedelta(["1D", None]),
        }
    ),
    "python": pd.DataFrame(
        {
            "date": pd.Series([datetime.date(2020, 1, 1), None], dtype=object),
            "time": pd.Series([datetime.time(1, 2), None], dtype=object),
            "decimal": pd.Series([decimal.Decimal("1.10"), None], dtype=object),
            "bytes": pd.Series([b"\xff", None], dtype=object),
            "list": pd.Series([[1, 2], None], dtype=object),
        }
    ),
    "period": pd.DataFrame({"p": pd.period_range("2020-01", periods=2, freq="M"), "z": [1j, 2 + 1j]}),
    "twice the same name": pd.DataFrame([[1, "a"], [2, "b"]], columns=["x", "x"]),
    "levels": pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["u", None])),
    "an index": pd.DataFrame({"v": [1, 2]}, index=pd.Index(["p", "q"], name="key")),
    "an index of two levels": pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "v": [3, 4]}).set_index(["a", "b"]),
    "an index of moments": pd.DataFrame({"v": [1, 2]}, index=pd.date_range("2020", periods=2, freq="D", tz="UTC")),
    "names that are numbers": pd.DataFrame([[1, 2]], columns=[7, 8]),
    "nothing": pd.DataFrame(),
    "no rows": pd.DataFrame({"i": pd.Series([], dtype="int64"), "t": pd.Series([], dtype="datetime64[us]")}),
    "no columns": pd.DataFrame(index=["a", "b"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_back_with_its_types(name: str) -> None:
    frame = FRAMES[name]
    table = read(frame)
    assert (table.library, table.kind, table.shape) == ("pandas", "frame", frame.shape)
    pd.testing.assert_frame_equal(table.to_pandas(), frame, check_freq=False)


def test_a_series_comes_back_as_one() -> None:
    series = pd.Series([1.5, None], index=["a", "b"], name="s")
    table = read(series)
    assert (table.kind, table.columns, table.shape) == ("series", ["s"], (2, 1))
    pd.testing.assert_series_equal(table.to_pandas(), series)


def test_cells_are_plain_and_columns_say_what_they_are() -> None:
    table = read(FRAMES["moments"])
    assert table.types == ["datetime", "datetime", "timedelta"]
    assert table.rows[0] == ["2020-01-01T00:00:00.123456789", "2020-03-29T00:00:00+01:00", "P1DT0H0M0S"]
    assert table.rows[1][0] is None


POLARS = pl.DataFrame(
    {
        "i": [1, None],
        "u": pl.Series([1, 2**64 - 1], dtype=pl.UInt64),
        "f": [float("nan"), float("inf")],
        "s": ["a", None],
        "b": [True, None],
        "t": [datetime.datetime(2020, 1, 1, 2), None],
        "ns": pl.Series([1, None]).cast(pl.Datetime("ns", "Europe/Berlin")),
        "d": [datetime.timedelta(days=1, microseconds=3), None],
        "date": [datetime.date(2020, 1, 1), None],
        "dec": [decimal.Decimal("1.5"), None],
        "bin": [b"\xff", None],
        "list": [[1], [2, 3]],
        "struct": [{"a": 1}, {"a": None}],
        "cat": pl.Series(["x", "y"], dtype=pl.Categorical),
    }
)


def test_a_frame_of_polars_comes_back_as_one_of_pandas() -> None:
    table = read(POLARS)
    assert (table.library, table.shape, table.is_whole) == ("polars", (2, 14), True)
    assert table.types == [
        *("integer", "integer", "number", "string", "boolean", "datetime", "datetime", "timedelta"),
        *("date", "decimal", "binary", "other", "other", "string"),
    ]
    back = table.to_pandas()
    assert [str(dtype) for dtype in back.dtypes[:5]] == ["Int64", "uint64", "float64", "str", "boolean"]
    assert back["u"].tolist() == [1, 2**64 - 1]
    assert back["f"].tolist()[1] == float("inf")
    assert str(back["ns"].dtype) == "datetime64[ns, Europe/Berlin]"
    assert back["ns"][0].value == 1
    assert str(back["d"].dtype) == "timedelta64[us]"
    assert back["d"][0] == datetime.timedelta(days=1, microseconds=3)
    assert back["date"][0] == datetime.date(2020, 1, 1)
    assert back["dec"][0] == decimal.Decimal("1.5")
    assert back["bin"][0] == b"\xff"
    assert back["struct"][1] == {"a": None}
    assert str(back["cat"].dtype) == "category"


def test_a_series_of_polars_is_a_table() -> None:
    assert read(pl.Series("a", [1, 2])).rows == [[1], [2]]


def test_a_huge_frame_is_its_head_and_takes_no_longer_than_a_large_one() -> None:
    rows = 10_000_000
    for frame in (pd.DataFrame({"x": numpy.arange(rows)}), pl.DataFrame({"x": numpy.arange(rows)})):
        begin = time.perf_counter()
        table = read(frame)
        assert time.perf_counter() - begin < 5  # copied whole it would be minutes
        assert (table.shape, len(table.rows), table.is_whole) == ((rows, 1), MAX_ROWS, False)
        assert table.to_pandas()["x"].tolist() == list(range(MAX_ROWS))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(numpy.zeros((10, 50_000))),
        pd.DataFrame({"s": ["x" * 5_000_000] * 3}),
        pd.DataFrame({"s": ["\x00" * 1000] * 1000}),
        pd.DataFrame({"s": ["é" * 1000] * 1000}),
        pd.DataFrame({"a": [numpy.zeros(10**7)]}),
        pd.DataFrame([[1]], columns=["n" * 5_000_000]),
        pd.DataFrame([[1]], index=pd.Index(["n" * 5_000_000])),
    ],
    ids=["wide", "long text", "escapes", "not ASCII", "arrays", "long name", "long label"],
)
def test_what_does_not_fit_is_left_out_and_the_shape_tells(frame: Any) -> None:
    table = read(frame)
    assert table.shape == frame.shape
    assert not table.is_whole
    table.to_pandas()


def test_what_is_no_table_is_none() -> None:
    for value in (1, "a", None, pl.DataFrame({"a": [1]}).lazy(), numpy.zeros(3)):
        assert table_of(value) is None


CELLS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.lists(st.integers())
    | st.dictionaries(st.text(), st.floats())
)
NAMES = st.none() | st.text() | st.integers() | st.floats() | st.tuples(st.text(), st.integers()) | st.dates()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_frame_is_json_and_comes_back(data: st.DataObject) -> None:
    width = data.draw(st.integers(0, 4))
    rows = data.draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=5))
    names = data.draw(st.lists(NAMES, min_size=width, max_size=width))
    labels = data.draw(st.lists(NAMES, min_size=len(rows), max_size=len(rows)))
    columns = [pd.Series([row[at] for row in rows], dtype=object) for at in range(width)]
    frame = pd.DataFrame(dict(enumerate(columns)), index=range(len(rows)))
    frame.columns = pd.Index(names, tupleize_cols=data.draw(st.booleans()))
    frame.index = pd.Index(labels, tupleize_cols=data.draw(st.booleans()))
    table = read(frame)
    assert table.shape == frame.shape
    assert table.to_pandas().shape == frame.shape
    read(frame.convert_dtypes())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_forged_table_is_none_or_a_table(data: st.DataObject) -> None:
    """Code in the sandbox puts into a bundle what it likes."""
    told = json.loads(json.dumps(table_of(FRAMES["moments"])))
    name = data.draw(st.sampled_from(sorted(told)))
    forged: list[Any] = [
        ["U1000000000"] * 3,
        ["datetime64[ns, ../etc]"] * 3,
        [None],
        {},
        "x",
        [[1]],
        [["x"] * 3],
    ]
    told[name] = data.draw(st.sampled_from(forged))
    table = table_from(told)
    if table is not None:
        table.to_pandas()
