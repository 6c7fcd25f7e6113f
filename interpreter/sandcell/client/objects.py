"""Objects of the caller's as plain data, and back. Nothing is ever pickled or unpickled.

What comes out of a sandbox is hostile until it is data: JSON, raw bytes, arrays without objects, tables as Arrow has
them. Libraries are imported when one of their objects is met, and only then.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sandcell.client.arrow_stream import is_compressed
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ARROW", "BYTES", "JSON", "NPY", "Encoded", "decode_object", "encode_object"]

JSON = "application/json"
BYTES = "application/octet-stream"
NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"

_SERIES = b"sandcell.series"  # in the schema of a table that was a Series: its name as JSON
_OLDEST_PYARROW = (14, 0, 1)  # older ones unpickle a type that a stream may name (CVE-2023-47248)
# Cells of a table that need no bytes of their own, such as those of a column of nulls, become objects in memory.
_CELLS_FOR_BYTE, _FEW_CELLS = 64, 10_000_000


class Encoded(NamedTuple):
    """An object as bytes; `form` is their MIME type."""

    form: str
    data: bytes


def encode_object(name: str, value: object) -> Encoded:
    """Return `value` as bytes that an interpreter makes the same of.

    Raises:
        InvalidRequest: INVALID_ARGUMENT: it has no form that can be sent. UNSUPPORTED: a library is missing here.
    """
    if isinstance(value, (bytes, bytearray)):
        return Encoded(BYTES, bytes(value))
    if _is_a(value, "numpy", "ndarray"):
        return Encoded(NPY, _encode_array(name, value))
    if _is_a(value, "numpy", "generic"):
        return encode_object(name, cast("Any", value).item())
    for module, kind in _TABLES:
        if _is_a(value, module, kind):
            return Encoded(ARROW, _encode_table(name, value))
    return Encoded(JSON, _encode_json(name, value))


def decode_object(name: str, encoded: Encoded) -> Any:
    """Return what an interpreter had as `name`.

    Raises:
        InvalidRequest (UNSUPPORTED): a library is missing here. (TOO_LARGE): it is a table that would be of another size
            in memory than it came in, as no interpreter of ours sends one.
        InternalError: the bytes are not what they are said to be.
    """
    decode = _DECODERS.get(encoded.form)
    if decode is None:
        raise error(
            ErrorCode.INTERNAL, f"{name} came in the form {encoded.form[:80]!r}, which is not known here"
        )
    try:
        return decode(encoded.data)
    except SandcellError:
        raise
    except Exception as problem:  # what a program in the sandbox wrote may break a library in any way
        raise error(ErrorCode.INTERNAL, f"{name} is not valid as {encoded.form}: {problem}") from problem


_TABLES = (
    ("pandas", "DataFrame"),
    ("pandas", "Series"),
    ("pyarrow", "Table"),
    ("pyarrow", "RecordBatch"),
)


def _is_a(value: object, module: str, name: str) -> bool:
    """Whether `value` is of a class of a library, which has been imported where that is so."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _encode_json(name: str, value: object) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name} is of {type(value).__name__!r} and cannot be sent: {problem}",
            hint="what can: values as JSON has them, without NaN; bytes; numpy arrays; pandas and Arrow tables",
            details={"field": name},
        ) from problem


def _encode_array(name: str, value: Any) -> bytes:
    numpy = _need("numpy", "arrays")
    if value.dtype.hasobject:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name} is an array of Python objects, which could only be pickled",
            hint="give it another dtype, or push name.tolist()",
            details={"field": name},
        )
    file = io.BytesIO()
    numpy.save(file, value, allow_pickle=False)
    return file.getvalue()


def _decode_array(data: bytes) -> Any:
    # Not `numpy.load`, which opens archives too.
    return _need("numpy.lib.format", "arrays").read_array(io.BytesIO(data), allow_pickle=False)


def _encode_table(name: str, value: Any) -> bytes:
    pyarrow = _need_arrow()
    try:
        table = _table_of(pyarrow, value)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as problem:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"{name} holds what no table can: {problem}",
            hint="give its columns types of their own",
            details={"field": name},
        ) from problem
    file = io.BytesIO()
    with pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def _table_of(pyarrow: Any, value: Any) -> Any:
    if _is_a(value, "pyarrow", "RecordBatch"):
        return pyarrow.Table.from_batches([value])
    if _is_a(value, "pandas", "DataFrame"):
        return pyarrow.Table.from_pandas(value)
    if not _is_a(value, "pandas", "Series"):
        return value
    table = pyarrow.Table.from_pandas(value.to_frame(name="0"))
    name = value.name if isinstance(value.name, (str, int)) else None
    return table.replace_schema_metadata({**table.schema.metadata, _SERIES: json.dumps(name)})


def _decode_table(data: bytes) -> Any:
    """Return a DataFrame or a Series where it was one and pandas is here, else a pyarrow.Table."""
    pyarrow = _need_arrow()
    if is_compressed(data):
        raise _unfolds("it is compressed")
    with pyarrow.ipc.open_stream(data) as reader:
        table = reader.read_all()
    cells = table.num_rows * table.num_columns
    if cells > max(_FEW_CELLS, _CELLS_FOR_BYTE * len(data)):
        raise _unfolds(f"it has {cells} cells in {len(data)} bytes")
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    if b"pandas" not in metadata:
        return table
    _need("pandas", "data frames")
    frame = table.to_pandas()
    return frame.iloc[:, 0].rename(json.loads(metadata[_SERIES])) if _SERIES in metadata else frame


def _unfolds(how: str) -> SandcellError:
    return error(
        ErrorCode.TOO_LARGE,
        f"a table that came out of the sandbox would be much larger in memory: {how}",
        hint="code in the sandbox has changed how tables are written; download a file instead",
    )


def _need_arrow() -> Any:
    pyarrow = _need("pyarrow", "tables")
    version = tuple(int(part) for part in re.findall(r"\d+", pyarrow.__version__)[:3])
    if version < _OLDEST_PYARROW:
        raise error(
            ErrorCode.UNSUPPORTED,
            f"pyarrow {pyarrow.__version__} would run code that a table brings along",
            hint="install pyarrow 14.0.1 or newer",
        )
    _need("pyarrow.ipc", "tables")
    return pyarrow


def _need(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        name = module.partition(".")[0]
        raise error(
            ErrorCode.UNSUPPORTED,
            f"{what} need {name} in this program, which cannot be imported: {problem}",
            hint=f"pip install {name}",
        ) from problem


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    JSON: json.loads,
    BYTES: bytes,
    NPY: _decode_array,
    ARROW: _decode_table,
}
