"""What user code wrote, to this process's own streams, byte for byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

from sandcell.screen import strip_colours

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Unwritten", "table", "write_stderr", "write_stdout", "write_traceback"]


class Unwritten(OSError):
    """One of this process's own streams takes nothing more, and somebody still reads it: a full disk."""


def write_stdout(data: str | bytes) -> None:
    _write(sys.stdout.buffer, data)


def write_stderr(data: str | bytes) -> None:
    _write(sys.stderr.buffer, data)


def write_traceback(lines: Iterable[str]) -> None:
    """Write the traceback of an error in user code to standard error, in colours on a terminal only."""
    text = "\n".join(lines) + "\n"
    write_stderr(text if sys.stderr.isatty() else strip_colours(text))


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return `rows`, of the same length each, as lines with their columns under each other."""
    held = list(rows)
    widths = [max(map(len, column)) for column in zip(*held, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in held
    )


def _write(stream: BinaryIO, data: str | bytes) -> None:
    try:
        stream.write(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise Unwritten(problem.errno, problem.strerror) from problem
