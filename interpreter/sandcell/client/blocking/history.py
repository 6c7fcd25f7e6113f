# Made from ../aio/history.py by `python -m sandcell.client.generate`: change that file, not this one.
"""The runs of a context, written as a notebook."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from sandcell.api import ExecutionInfo
from sandcell.cell_outputs import NotebookOutputs
from sandcell.client.blocking.channel import in_thread
from sandcell.client.blocking.execution import past_events
from sandcell.client.protocol import Request, path_of
from sandcell.history import cell_of_run, notebook_of
from sandcell.notebook_file import check_target, write_notebook
from sandcell_container.errors import NotFound

if TYPE_CHECKING:
    from sandcell.client.blocking.transport import Transport

__all__ = ["write_history"]


def write_history(
    transport: Transport, context_id: str, language: str, path: str, *, origin: str | None
) -> int:
    """Write the runs of a context as a notebook and return how many there are; see `Context.to_notebook`."""
    in_thread(check_target, path)
    query = {"context": context_id} | ({} if origin is None else {"origin": origin})
    listing = Request(method="GET", path=path_of("executions"), query=query)
    outputs, cells = NotebookOutputs(), list[dict[str, Any]]()
    for listed in transport.call(listing, list[ExecutionInfo]):
        shown = outputs.cell()
        try:
            asking = Request(method="GET", path=path_of("executions", listed.id))
            run = transport.call(asking, ExecutionInfo)
            with closing(past_events(transport, run.id)) as events:
                for event in events:
                    shown.add(event)
        except NotFound:
            continue  # forgotten meanwhile: the oldest are, when new ones come
        cells.append(cell_of_run(run, shown))
    in_thread(write_notebook, notebook_of(language, cells), path)
    return len(cells)
