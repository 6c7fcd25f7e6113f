"""The C library's stdout, where `printf` of C code in this process leaves its text until somebody flushes it."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["CStdout"]

_LINES = 1  # _IOLBF, in glibc and musl


class CStdout:
    """Line-buffered from now on, as on a terminal: a pipe would make it wait for kilobytes."""

    def __init__(self) -> None:
        self._flush: Any = None
        try:
            library = ctypes.CDLL(None)
            self._stream = ctypes.c_void_p.in_dll(library, "stdout")
            library.setvbuf.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
            library.fflush.argtypes = (ctypes.c_void_p,)
            library.setvbuf(self._stream, None, _LINES, 0)
            self._flush = library.fflush
        except (OSError, ValueError, AttributeError):
            pass  # a C library without these names: its output comes when it sees fit

    def flush(self) -> None:
        """Write what an unfinished line has so far."""
        if self._flush is not None:
            self._flush(self._stream)
