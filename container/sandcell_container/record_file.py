"""What engines write down of a sandbox: a small file of JSON, whole or not at all, for its user alone.

Values of variables are any bytes, as text with lone surrogates (PEP 383): msgspec refuses these both ways, the standard
library escapes them as JSON allows.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["encode_record", "open_plain", "read_plain", "read_record", "write_record"]

T = TypeVar("T")


def encode_record(record: object) -> bytes:
    return json.dumps(msgspec.to_builtins(record)).encode()


def read_record(path: Path, kind: type[T]) -> T | None:
    """Return what a record holds, None where there is none.

    Raises:
        ValueError: it cannot be read, or does not fit.
    """
    try:
        text = read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failed:
        raise ValueError(failed.strerror) from failed
    return msgspec.convert(json.loads(text), kind)


def read_plain(path: Path) -> bytes:
    """Return what a file holds. Errors: see `open_plain`."""
    with open(open_plain(path), "rb") as file:
        return file.read()


def open_plain(path: Path) -> int:
    """Open a file to read it: never a FIFO or a device, which might not end.

    Raises:
        OSError: it cannot be read, or is none.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is no file", str(path))


def write_record(path: Path, data: bytes) -> None:
    """Put `data` in the place of what was there."""
    draft = path.with_name(f".{path.name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600), "wb") as file:
        file.write(data)
    draft.rename(path)
