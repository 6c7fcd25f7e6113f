"""Objects on their way into and out of an interpreter, as plain data in a file: nothing is ever pickled.

Which forms there are, by MIME type: JSON, bytes, arrays as .npy without objects, tables as an Arrow IPC stream.
Libraries are imported when one of their objects is met, and only then.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sandcell_runtime.formatters import NotPlain, plain_value
from sandcell_runtime.libraries import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

__all__ = ["ARROW", "BYTES", "JSON", "NPY", "ExchangeRefused", "load_object", "save_object"]

JSON = "application/json"
BYTES = "application/octet-stream"
NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"

_MAX_JSON = 2**30
_SERIES = b"sandcell.series"  # in the schema of a table that was a Series: its name as JSON


class ExchangeRefused(Exception):
    """An object cannot be taken or given; `code` names why, `hint` what to do."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def load_object(names: MutableMapping[str, Any], name: str, path: str, form: str) -> None:
    """Bind `name` to what the file at `path` holds in the form `form`.

    Raises:
        ExchangeRefused: UNSUPPORTED: a library is missing here; INVALID_ARGUMENT: the file is not what `form` says.
    """
    load = _LOADERS.get(form)
    if load is None:
        raise ExchangeRefused("UNSUPPORTED", f"objects of the form {form!r} are not known here")
    with open(path, "rb") as file:
        try:
            names[name] = load(file)
        except ExchangeRefused:
            raise
        except Exception as problem:
            raise ExchangeRefused(
                "INVALID_ARGUMENT", f"{name} is not valid as {form}: {problem}"
            ) from problem


def save_object(names: MutableMapping[str, Any], name: str, path: str) -> str:
    """Write what `name` is bound to into a new file at `path`, and return its form.

    Raises:
        ExchangeRefused: NOT_FOUND: there is no such name; INVALID_ARGUMENT: it has no form that can leave; UNSUPPORTED: a
            library is missing here.
    """
    if name not in names:
        raise ExchangeRefused("NOT_FOUND", f"there is no variable {name!r}")
    form, save = _form_of(name, names[name])
    with open(path, "xb") as file:
        save(file)
    return form


def _form_of(name: str, value: object) -> tuple[str, Callable[[BinaryIO], None]]:
    if isinstance(value, (bytes, bytearray)):
        return BYTES, lambda file: _write(file, value)
    if is_a(value, "numpy", "ndarray"):
        return NPY, lambda file: _save_array(name, value, file)
    if is_a(value, "numpy", "generic"):
        return _form_of(name, cast("Any", value).item())
    for module, kind in (
        ("pandas", "DataFrame"),
        ("pandas", "Series"),
        ("pyarrow", "Table"),
        ("pyarrow", "RecordBatch"),
    ):
        if is_a(value, module, kind):
            return ARROW, lambda file: _save_table(name, value, file)
    return JSON, lambda file: _save_json(name, value, file)


# --- one form each


def _load_json(file: BinaryIO) -> Any:
    return json.load(file)


def _save_json(name: str, value: object, file: BinaryIO) -> None:
    try:
        plain = plain_value(value, limit=_MAX_JSON)
    except NotPlain:
        raise ExchangeRefused(
            "INVALID_ARGUMENT",
            f"{name} is of {type(value).__name__!r} and has no form that can leave the sandbox",
            "what can: values as JSON has them all through, without NaN; bytes; numpy arrays; pandas and Arrow tables",
        ) from None
    file.write(json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode())


def _load_bytes(file: BinaryIO) -> bytes:
    return file.read()


def _write(file: BinaryIO, data: bytes | bytearray) -> None:
    file.write(data)


def _load_array(file: BinaryIO) -> Any:
    # Not `numpy.load`, which opens archives too.
    return _need("numpy.lib.format", "arrays").read_array(file, allow_pickle=False)


def _save_array(name: str, value: Any, file: BinaryIO) -> None:
    if value.dtype.hasobject:
        raise ExchangeRefused(
            "INVALID_ARGUMENT",
            f"{name} is an array of Python objects, which could only be pickled",
            "give it another dtype, or pull name.tolist()",
        )
    numpy = _need("numpy", "arrays")
    numpy.save(file, value, allow_pickle=False)


def _load_table(file: BinaryIO) -> Any:
    """Return a DataFrame where the table was one and pandas is here, else a pyarrow.Table."""
    pyarrow = _need_arrow()
    with pyarrow.ipc.open_stream(file) as reader:
        table = reader.read_all()
    if b"pandas" not in (table.schema.metadata or {}):
        return table
    _need("pandas", "data frames")
    frame = table.to_pandas()
    series = table.schema.metadata.get(_SERIES)
    return frame if series is None else frame.iloc[:, 0].rename(json.loads(series))


def _save_table(name: str, value: Any, file: BinaryIO) -> None:
    pyarrow = _need_arrow()
    try:
        table = _table_of(pyarrow, value)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as problem:
        raise ExchangeRefused(
            "INVALID_ARGUMENT",
            f"{name} holds what no table can: {problem}",
            "give its columns types of their own",
        ) from problem
    with pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def _table_of(pyarrow: Any, value: Any) -> Any:
    if is_a(value, "pyarrow", "RecordBatch"):
        return pyarrow.Table.from_batches([value])
    if is_a(value, "pandas", "DataFrame"):
        return pyarrow.Table.from_pandas(value)
    if not is_a(value, "pandas", "Series"):
        return value
    table = pyarrow.Table.from_pandas(value.to_frame(name="0"))
    name = value.name if isinstance(value.name, (str, int)) else None
    return table.replace_schema_metadata({**table.schema.metadata, _SERIES: json.dumps(name)})


def _need(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        name = module.partition(".")[0]
        raise ExchangeRefused(
            "UNSUPPORTED",
            f"{what} need {name} in the sandbox, which cannot be imported: {problem}",
            f"install {name} in the environment that user code gets",
        ) from problem


def _need_arrow() -> Any:
    _need("pyarrow.ipc", "tables")
    return _need("pyarrow", "tables")


_LOADERS: dict[str, Callable[[BinaryIO], Any]] = {
    JSON: _load_json,
    BYTES: _load_bytes,
    NPY: _load_array,
    ARROW: _load_table,
}
