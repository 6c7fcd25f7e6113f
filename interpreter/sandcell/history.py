"""What has run in a context, as a notebook. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandcell.cell_outputs import timing_of
from sandcell.notebook import language_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell.api import ExecutionInfo
    from sandcell.cell_outputs import CellOutputs
    from sandcell.notebook import Notebook

__all__ = ["cell_of_run", "notebook_of"]

_KERNELS = {
    "python": {"name": "sandcell-python", "display_name": "Python (Sandcell)", "language": "python"},
}


def cell_of_run(run: ExecutionInfo, shown: CellOutputs) -> dict[str, Any]:
    """Return a run as a cell: its code, what it has shown, and in the metadata who ran it and how it ended."""
    about: dict[str, Any] = {"run": run.id, "origin": run.origin, "status": run.status}
    if run.end is not None:
        about |= {"cause": run.end.cause, "state": run.end.state}
    metadata: dict[str, Any] = {"sandcell": about}
    timing = timing_of(shown)
    if timing:
        metadata["execution"] = timing
    return {
        "cell_type": "code",
        "id": run.id,
        "execution_count": shown.execution_count,
        "metadata": metadata,
        "outputs": shown.outputs(),
        "source": run.code or "",
    }


def notebook_of(language: str, cells: Sequence[dict[str, Any]]) -> Notebook:
    """Return a notebook of these cells that Jupyter opens with our kernel, where we have one for the language."""
    metadata: dict[str, Any] = {"language_info": language_info(language)}
    if language in _KERNELS:
        metadata["kernelspec"] = _KERNELS[language]
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
