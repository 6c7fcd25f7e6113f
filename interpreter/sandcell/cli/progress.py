"""A line on a terminal while something takes longer than a second; on anything but a terminal, nothing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress"]

_ERASE = "\r\x1b[K"


class Progress:
    """Shows what is going on and for how many seconds, from `patience` seconds on. Leaving it erases the line.

    Its thread ends when it is left, or by `hush`.
    """

    def __init__(self, label: str, stream: TextIO, *, patience: float = 1.0) -> None:
        self._label = label
        self._stream = stream
        self._patience = patience
        self._hushed = threading.Event()
        self._lock = threading.Lock()
        self._shown = False
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hush()
        if self._thread.is_alive():
            self._thread.join()

    def label(self, text: str) -> None:
        """Say something else from the next second on."""
        self._label = text

    def hush(self) -> None:
        """Erase the line for good: output of the user's is coming."""
        with self._lock:
            self._hushed.set()
            if self._shown:
                self._write(_ERASE)
                self._shown = False

    def _show(self) -> None:
        start = time.monotonic()
        wait = self._patience
        while not self._hushed.wait(wait):
            wait = 1.0
            with self._lock:
                if not self._hushed.is_set():
                    self._write(f"{_ERASE}sandcell: {self._label}, {time.monotonic() - start:.0f} s")
                    self._shown = True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
