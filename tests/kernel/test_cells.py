"""Single values as JSON has them."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_runtime.cells import Budget, Full, cell_of

NAN, INF = float("nan"), float("inf")


def cell(value: Any) -> Any:
    return cell_of(value, Budget(10**6))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (NAN, None),
        (INF, "Infinity"),
        (-INF, "-Infinity"),
        (2**53 - 1, 2**53 - 1),
        (-(2**53), "-9007199254740992"),
        (2**20000, hex(2**20000)),
        ("é\ud800", "é\\ud800"),
        (b"\xff", "/w=="),
        (datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), "2020-01-02T00:00:00+00:00"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.timedelta(days=1, hours=2, microseconds=5), "P1DT2H0M0.000005S"),
        (-datetime.timedelta(seconds=90), "-P0DT0H1M30S"),
        (decimal.Decimal("1.10"), "1.10"),
        (decimal.Decimal("nan"), None),
        ({1: {2}, "a": (1,)}, {"1": [2], "a": [1]}),
        (numpy.int64(5), 5),
        (numpy.float32("inf"), "Infinity"),
        (numpy.array([[1, 2]]), [[1, 2]]),
        (numpy.datetime64("NaT", "ns"), None),
        (numpy.datetime64("2020-01-01T00:00:00.123456789"), "2020-01-01T00:00:00.123456789"),
        (1j, "1j"),
    ],
    ids=lambda value: value.__class__.__name__,
)
def test_a_value_has_one_form_in_json(value: object, expected: object) -> None:
    assert cell(value) == expected
    json.dumps(cell(value), allow_nan=False).encode()


def test_what_does_not_fit_is_refused_before_it_is_copied() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    for value in ("x" * 1001, ["x"] * 1000, numpy.zeros(10**7), endless, "\x00" * 200):
        with pytest.raises(Full):
            cell_of(value, Budget(1000))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.decimals()
    | st.complex_numbers()
    | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.integers() | st.text(), inner) | st.tuples(inner),
    max_leaves=20,
)


@given(VALUES, st.integers(0, 2000))
def test_anything_is_json_and_within_its_budget(value: object, size: int) -> None:
    try:
        found = cell_of(value, Budget(size))
    except Full:
        return
    text = json.dumps(found, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    assert len(text) <= size + 25  # a float is counted as 16 bytes
