"""Objects as plain data on both sides: what goes in comes out the same, and nothing is unpickled."""

from __future__ import annotations

import importlib
import io
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.client.objects import ARROW, BYTES, JSON, NPY, Encoded, decode_object, encode_object
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_runtime.objects import ExchangeRefused, load_object, save_object

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

np: Any = importlib.import_module("numpy")
pd: Any = importlib.import_module("pandas")
pa: Any = importlib.import_module("pyarrow")

FRAME = pd.DataFrame(
    {
        "n": [1, 2],
        "f": [0.5, float("nan")],
        "s": ["é", None],
        "t": pd.to_datetime(["2020-01-01", "2021-02-03"]),
    },
    index=pd.Index(["a", "b"], name="i"),
)


def through(value: object, folder: Path) -> tuple[str, Any]:
    """Push a value, pull it again; return the form that it came back in, and the value."""
    encoded = encode_object("x", value)
    (folder / "in").write_bytes(encoded.data)
    names = dict[str, Any]()
    load_object(names, "x", str(folder / "in"), encoded.form)
    out = folder / "out"
    out.unlink(missing_ok=True)
    form = save_object(names, "x", str(out))
    return form, decode_object("x", Encoded(form, out.read_bytes()))


@pytest.mark.parametrize("value", [None, True, 2**70, 0.1, "é😀\n", [1, [2]], {"a": {"b": None}}])
def test_json_comes_back_as_it_was(value: object, tmp_path: Path) -> None:
    assert through(value, tmp_path) == (JSON, value)


@given(st.binary())
def test_bytes_come_back_as_they_were(data: bytes) -> None:
    assert decode_object("x", encode_object("x", data)) == data


def test_what_json_has_a_like_of_becomes_that(tmp_path: Path) -> None:
    assert through((1, (2,)), tmp_path) == (JSON, [1, [2]])
    assert through(bytearray(b"\0"), tmp_path) == (BYTES, b"\0")
    assert through(np.float64(1.5), tmp_path) == (JSON, 1.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(24).reshape(2, 3, 4),
        lambda: np.asfortranarray(np.random.default_rng(1).normal(size=(5, 7))),
        lambda: np.array(["é", "ab"]),
        lambda: np.array([], dtype="datetime64[ns]"),
        lambda: np.array(3 + 4j),
        lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "S3")]),
    ],
)
def test_arrays_come_back_as_they_were(make: Callable[[], Any], tmp_path: Path) -> None:
    value = make()
    form, back = through(value, tmp_path)
    assert form == NPY
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert np.array_equal(back, value)


def test_tables_come_back_as_they_were(tmp_path: Path) -> None:
    form, frame = through(FRAME, tmp_path)
    assert form == ARROW
    pd.testing.assert_frame_equal(frame, FRAME)
    for series in (FRAME["s"], FRAME["n"].rename(None), pd.Series([1.5], name=7)):
        pd.testing.assert_series_equal(through(series, tmp_path)[1], series)
    table = pa.table({"a": [1, None], "b": [[1], [2, 3]]})
    assert through(table, tmp_path)[1] == table
    assert through(table.to_batches()[0], tmp_path)[1] == table


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2, (3,): 4},
        float("nan"),
        {"a": {1, 2}},
        [b"x"],
        np.array([object()]),
        pd.DataFrame({"a": [1, "x"]}),
    ],
    ids=["object", "keys", "nan", "set", "bytes inside", "object array", "mixed column"],
)
def test_what_has_no_form_is_refused_by_name_on_both_sides(value: object, tmp_path: Path) -> None:
    with pytest.raises(SandcellError) as here:
        encode_object("x", value)
    assert here.value.code is ErrorCode.INVALID_ARGUMENT
    assert here.value.message.startswith("x ")
    with pytest.raises(ExchangeRefused) as there:
        save_object({"x": value}, "x", str(tmp_path / "out"))
    assert there.value.code == "INVALID_ARGUMENT"
    assert str(there.value).startswith("x ")


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(SandcellError):
        encode_object("x", cycle)
    with pytest.raises(ExchangeRefused):
        save_object({"x": cycle}, "x", str(tmp_path / "out"))


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExchangeRefused) as refused:
        save_object({}, "x", str(tmp_path / "out"))
    assert refused.value.code == "NOT_FOUND"


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("something was unpickled",))


def _pickled_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Bomb()], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("form", [NPY, ARROW, JSON])
@pytest.mark.parametrize(
    "data",
    [_pickled_array(), pickle.dumps(Bomb()), b"", b"\xff" * 100, b"PK\3\4" + b"\0" * 100],
    ids=["array of objects", "pickle", "nothing", "garbage", "zip"],
)
def test_what_is_not_what_it_is_said_to_be_is_an_error(form: str, data: bytes, tmp_path: Path) -> None:
    with pytest.raises(SandcellError) as here:
        decode_object("x", Encoded(form, data))
    assert here.value.code is ErrorCode.INTERNAL
    (tmp_path / "in").write_bytes(data)
    with pytest.raises(ExchangeRefused) as there:
        load_object({}, "x", str(tmp_path / "in"), form)
    assert there.value.code == "INVALID_ARGUMENT"


def test_a_form_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandcellError):
        decode_object("x", Encoded("application/x-pickle", b""))
    with pytest.raises(ExchangeRefused):
        load_object({}, "x", str(tmp_path), "application/x-pickle")


def test_a_missing_library_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(SandcellError) as here:
        encode_object("x", FRAME)
    assert (here.value.code, here.value.hint) == (ErrorCode.UNSUPPORTED, "pip install pyarrow")
    with pytest.raises(ExchangeRefused) as there:
        save_object({"x": FRAME}, "x", str(tmp_path / "out"))
    assert there.value.code == "UNSUPPORTED"
    assert "pyarrow" in there.value.hint


def test_an_old_pyarrow_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "__version__", "14.0.0")
    with pytest.raises(SandcellError) as caught:
        decode_object("x", Encoded(ARROW, b""))
    assert caught.value.code is ErrorCode.UNSUPPORTED


def test_pandas_metadata_of_a_stranger_runs_nothing() -> None:
    """A table may say what it likes of itself; the words are data for pandas, never code."""
    words = json.dumps(
        {"index_columns": [], "columns": [], "column_indexes": [{"name": "__import__('os')._exit(1)"}]}
    )
    table = pa.table({"a": [1]}).replace_schema_metadata({b"pandas": words.encode()})
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    try:
        decode_object("x", Encoded(ARROW, file.getvalue()))
    except SandcellError as problem:
        assert problem.code is ErrorCode.INTERNAL
