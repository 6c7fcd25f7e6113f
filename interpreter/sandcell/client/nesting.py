"""Which run's host tool is being called where the caller stands: what it asks of the sandbox says so.

Else a tool that runs code in the context that waits for it would wait for ever.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["INSIDE", "inside", "run_of_caller"]

INSIDE = "Sandcell-Inside"
"""The header that says so, with the id of the run."""

_run: ContextVar[str] = ContextVar("sandcell_inside", default="")


def run_of_caller() -> str:
    """Return the id of the run that waits for what the caller does, "" where none does."""
    return _run.get()


@contextmanager
def inside(run_id: str) -> Generator[None]:
    """Be a tool of the run, in the block and in the tasks and threads that asyncio starts from it."""
    token = _run.set(run_id)
    try:
        yield
    finally:
        _run.reset(token)
