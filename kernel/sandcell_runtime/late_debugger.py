"""A debugger that is made when somebody first asks for one: its import takes a fifth of a kernel's start."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["LateDebugger", "no_debugger_yet"]

_MODULE = "ipykernel.debugger"


class LateDebugger:
    """Stands in for ipykernel's `Debugger` until it is asked for something; `make` makes the real one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None
        self._is_made = asyncio.Event()

    @property
    def is_attached(self) -> bool:
        """Whether a front end debugs the kernel now."""
        return self._made is not None and bool(self._made.is_started)

    async def handle_stopped_event(self) -> None:
        """Handle what a debugger that nobody has asked for has no more of. The kernel calls this for ever."""
        await self._is_made.wait()
        await self._made.handle_stopped_event()

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
            self._is_made.set()
        return getattr(self._made, name)


@contextmanager
def no_debugger_yet() -> Generator[None]:
    """Have ipykernel believe, in the block, that its module is there, where that was not imported yet."""
    if _MODULE in sys.modules:
        yield
        return
    stand_in = ModuleType(_MODULE)
    stand_in._is_debugpy_available = True  # type: ignore[attr-defined]  # what a kernel looks at when it is made
    sys.modules[_MODULE] = stand_in
    try:
        yield
    finally:
        del sys.modules[_MODULE]
