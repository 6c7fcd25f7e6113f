"""`%sandbox follow` and `%sandbox pull-history`: what programs run in the sandbox, for a person beside them."""

from __future__ import annotations

import asyncio
import html
import time
from typing import TYPE_CHECKING, Any

from sandcell.events import (
    Ended,
    ErrorRaised,
    Failed,
    Gap,
    ResultAdded,
    ResultUpdated,
    Stderr,
    Stdout,
    Truncated,
    event_of,
)
from sandcell.guest.stage import Outcome, Stopped
from sandcell_container.frames import Kind
from sandcell_container.journal import JournalReader
from sandcell_kernel.tables import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell.activity import Activity, Deed, Watch
    from sandcell.events import Event
    from sandcell.guest.stage import Stage

__all__ = ["follow_activity", "pull_history"]

_NOTEBOOK = "notebook:"
_MOST_AT_ONCE = 32  # runs whose output is shown; of those beside them only the code is
_NEWLINES = "\r\n"
_HEAD_STYLE = "border-left:3px solid #2d7ff9;padding-left:8px;margin:4px 0"


async def follow_activity(stage: Stage, activity: Activity, *, with_notebooks: bool) -> None:
    """Show what is run in the sandbox, with its output, until the cell is interrupted. What this notebook runs is left
    out, and that of others but `with_notebooks`."""
    stage.say("showing what programs run in this sandbox; interrupt the cell to end that")
    with activity.watch() as watch:
        try:
            await stage.unless_stopped(_follow(stage, watch, with_notebooks=with_notebooks))
        except Stopped:
            if watch.missed:
                stage.say(f"{watch.missed} more were not shown")


async def _follow(stage: Stage, watch: Watch, *, with_notebooks: bool) -> None:
    async with asyncio.TaskGroup() as group:
        shown = set[asyncio.Task[None]]()
        async for deed in watch.deeds():
            if deed.who == stage.origin or (deed.who.startswith(_NOTEBOOK) and not with_notebooks):
                continue
            stage.show(_announce(deed))
            if len(shown) < _MOST_AT_ONCE:
                task = group.create_task(_show_deed(stage, deed))
                shown.add(task)
                task.add_done_callback(shown.discard)


def _announce(deed: Deed) -> dict[str, str]:
    """Return who runs what, with the code itself; nothing in it is taken for markup."""
    where = " ".join(filter(None, [deed.kind, "in" if deed.where else "", deed.where]))
    head = (
        f"{time.strftime('%H:%M:%S', time.gmtime(deed.at))} UTC  {printable(deed.who)}: {where} ({deed.id})"
    )
    code = printable(deed.code.strip("\n"))
    return {
        "text/plain": f"{head}\n{code}",
        "text/html": f'<div style="{_HEAD_STYLE}"><strong>{html.escape(head)}</strong><pre>{html.escape(code)}</pre></div>',
    }


async def _show_deed(stage: Stage, deed: Deed) -> None:
    with JournalReader(deed.journal) as reader:
        while batch := await reader.next():
            for entry in batch:
                event = event_of(entry, deed.journal.epoch) if deed.kind == "run" else None
                if event is not None:
                    _show_event(stage, deed, event)
                elif deed.kind != "run":
                    _show_output(stage, deed, entry.kind, entry.data)
            await asyncio.sleep(0)  # others have a turn between two batches of what is there already


def _show_event(stage: Stage, deed: Deed, event: Event) -> None:
    match event:
        case Stdout(text=text):
            stage.write("stdout", text.encode("utf-8", "replace"))
        case Stderr(text=text):
            stage.write("stderr", text.encode("utf-8", "replace"))
        case ResultAdded(data=data, display_id=display_id):
            stage.show(data, display_id=_scoped(deed, display_id))
        case ResultUpdated(data=data, display_id=str(display_id)):
            stage.update(data, display_id=f"{deed.id}:{display_id}")
        case ErrorRaised(traceback=traceback, name=name, value=value):
            stage.write(
                "stderr", ("\n".join(traceback or [f"{name}: {value}"]) + "\n").encode("utf-8", "replace")
            )
        case Gap(bytes=count):
            stage.say(f"{deed.id}: {count} bytes are not shown")
        case Truncated(stream=stream, bytes=count):
            stage.say(f"{deed.id}: {count} bytes of {stream} are not shown")
        case Ended(end=end) if end.cause != "exited":
            stage.say(f"{deed.id} ended: {end.cause}")
        case Failed(error=body):
            stage.say(f"{deed.id} could not be run: {body.get('error', body).get('message', '')}")
        case _:
            pass


def _scoped(deed: Deed, display_id: str | None) -> str | None:
    """Return an id of a display that no other run has."""
    return None if display_id is None else f"{deed.id}:{display_id}"


def _show_output(stage: Stage, deed: Deed, kind: int, data: bytes) -> None:
    match kind:
        case Kind.STDOUT:
            stage.write("stdout", data)
        case Kind.STDERR:
            stage.write("stderr", data)
        case _:
            pass


def pull_history(stage: Stage, activity: Activity, *, last: int | None) -> Outcome:
    """Have the front end make a cell below of what programs have run, in its order; `last` takes the newest of it."""
    deeds = [each for each in activity.recent() if not each.who.startswith(_NOTEBOOK)]
    if not deeds:
        stage.say("no program has run anything here yet")
        return Outcome()
    first_line = _first_line_of(deeds[-1])
    alike = [each for each in deeds if _first_line_of(each) == first_line]
    chosen = alike[-last:] if last else alike
    stage.say(
        f"the cell below holds {len(chosen)} of {len(deeds)} runs: those that ran where the last one did"
    )
    return Outcome(payload=[_cell_of(first_line, chosen)])


def _cell_of(first_line: str, deeds: Sequence[Deed]) -> dict[str, Any]:
    """Return what makes a front end add a cell below. Of several they heed the first."""
    parts = [f"# {each.id} by {printable(each.who)}\n{each.code.strip(_NEWLINES)}" for each in deeds]
    text = "\n\n".join(parts)
    text = f"{first_line}\n{text}" if first_line else text
    return {"source": "set_next_input", "text": text, "replace": False}


def _first_line_of(deed: Deed) -> str:
    """Return the first line of a cell that runs where this ran, "" for the notebook's own interpreter."""
    match deed.kind:
        case "run":
            return "" if deed.where == deed.language else f"%%context {deed.where}"
        case "command":
            return f"%%shell {deed.where}" if deed.where else "%%exec"
        case "process":
            return "%%process"
