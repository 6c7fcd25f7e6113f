"""What the caller asks of a run through a notebook, checked. Pure: the same for both clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandcell.client.checks import check_bytes_as_text, check_callbacks, check_file, check_timeout, wrong
from sandcell.client.options import NotGiven
from sandcell.notebook import NotebookProgress, OnError, check_parameters
from sandcell_container.ids import check_id

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping


__all__ = ["NotebookPlan", "make_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookPlan:
    """How a notebook is run: see `Sandbox.run_notebook`."""

    source: str
    out: str | None
    context: str | None
    fresh: bool
    cwd: str | None
    timeout: float | NotGiven | None
    on_error: OnError
    parameters: dict[str, Any]
    on_progress: Callable[[NotebookProgress], object] | None


def make_plan(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None,
    *,
    context: str | None,
    fresh: bool,
    cwd: str | None,
    timeout: float | NotGiven | None,
    on_error: OnError,
    parameters: Mapping[str, Any] | None,
    on_progress: Callable[[NotebookProgress], object] | None,
) -> NotebookPlan:
    """Return how the cells are to be run.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): something given cannot be meant.
    """
    check_callbacks(on_progress=on_progress)
    if on_error not in ("stop", "continue"):
        raise wrong("on_error", f"= {on_error!r} is no answer", hint='"stop" or "continue"')
    if fresh and context is not None:
        raise wrong("fresh", "makes a context of its own", hint="leave out context or fresh")
    return NotebookPlan(
        source=check_file(source, what="source"),
        out=None if out is None else check_file(out, what="out"),
        context=None if context is None else check_id(context, what="id of a context"),
        fresh=fresh,
        cwd=None if cwd is None else check_bytes_as_text(cwd, what="cwd"),
        timeout=check_timeout(timeout),
        on_error=on_error,
        parameters=check_parameters(parameters),
        on_progress=on_progress,
    )
