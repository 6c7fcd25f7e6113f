"""Arrow streams, judged before they are unpacked."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.client.arrow_stream import BadStream, is_compressed
from sandcell.client.objects import ARROW, Encoded, decode_object
from sandcell_container.errors import ErrorCode, SandcellError

pa: Any = importlib.import_module("pyarrow")

TABLES = {
    "plain": pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]}),
    "nested": pa.table({"a": [[1], [2, 3], None]}),
    "dictionary": pa.table({"c": pa.array(["u", "v", "u"]).dictionary_encode()}),
    "empty": pa.table({}),
    "of no rows": pa.table({"a": pa.array([], type=pa.int64())}),
}


def stream_of(table: Any, *, compression: str | None = None) -> bytes:
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize("name", TABLES)
def test_what_is_not_compressed_is_seen_as_that(name: str) -> None:
    assert not is_compressed(stream_of(TABLES[name]))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("name", ["plain", "nested", "dictionary"])
def test_a_compressed_table_is_not_unpacked(name: str, compression: str) -> None:
    stream = stream_of(TABLES[name], compression=compression)
    assert is_compressed(stream)
    with pytest.raises(SandcellError) as caught:
        decode_object("x", Encoded(ARROW, stream))
    assert caught.value.code is ErrorCode.TOO_LARGE


def test_cells_that_take_no_bytes_are_not_unpacked() -> None:
    nothing = pa.table({"a": pa.nulls(10_000_001)})
    with pytest.raises(SandcellError) as caught:
        decode_object("x", Encoded(ARROW, stream_of(nothing)))
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert decode_object("x", Encoded(ARROW, stream_of(pa.table({"a": pa.nulls(1000)})))).num_rows == 1000


@given(st.binary(max_size=200))
def test_garbage_is_no_stream_or_says_nothing(data: bytes) -> None:
    try:
        assert is_compressed(data) in (True, False)
    except BadStream:
        pass


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_stream_that_somebody_changed_is_judged_in_bounded_time(at: int, byte: int) -> None:
    stream = bytearray(stream_of(TABLES["plain"]))
    stream[at % len(stream)] = byte
    try:
        is_compressed(bytes(stream))
    except BadStream:
        pass
