"""What the cells of a notebook show, folded out of the events of their runs as JupyterLab folds messages. Pure.

Outputs are those of the notebook format 4. Source of the rules: JupyterLab's output area and kernel connection.

* Text joins the output before it where that is of the same stream; carriage returns and backspaces have done their work.
* A display with an id changes all displays of that id in the notebook, whatever cell made them; an update adds none.
* `clear_output(wait=True)` clears when the next output comes, and not at all where none does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from sandcell.content import size_of
from sandcell.events import (
    Ended,
    ErrorRaised,
    Event,
    Failed,
    Gap,
    OutputCleared,
    ResultAdded,
    ResultUpdated,
    Started,
    Stderr,
    Stdout,
    Truncated,
)
from sandcell.results import ExecutionError
from sandcell.screen import Screen

__all__ = ["CellOutputs", "NotebookOutputs", "Output", "timing_of"]

Output = dict[str, Any]
"""One output, as the notebook format has it."""

_Displays = dict[str, list[Output]]

_MAX_STREAM = (
    8 * 2**20
)  # characters of one output of text; of more, head and tail are kept with a note between
_MOST_SHOWN = (
    512 * 2**20
)  # of a whole notebook: what user code shows must not choose the memory of its caller
_OUTPUT_COST = 500
_OURS = "application/vnd.sandcell."
_LATE = "its time was over"
_ENDS = {
    "timeout": ExecutionError(name="TimeoutError", value=_LATE),
    "interrupted": ExecutionError(name="KeyboardInterrupt", value="it was interrupted"),
}


class NotebookOutputs:
    """The outputs of a notebook, at most `most` bytes of them, about. `cell` begins those of one more run."""

    def __init__(self, *, most: int = _MOST_SHOWN) -> None:
        self._displays: _Displays = {}
        self._room = _Room(most)

    def cell(self) -> CellOutputs:
        return CellOutputs(self._displays, self._room)


class _Room:
    """What all outputs together may still take in memory, in bytes, about."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


class CellOutputs:
    """The outputs of one cell. `error` is what it ended in, `started` and `ended` its events of that kind."""

    def __init__(self, displays: _Displays, room: _Room) -> None:
        self._displays = displays
        self._room = room
        self._left_out = 0
        self._items: list[Output | _Text] = []
        self._clear_next = False
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.error: ExecutionError | None = None

    @property
    def execution_count(self) -> int | None:
        """The number that the run has got, None where it never ran."""
        known = (each.execution_count for each in (self.ended, self.started) if each is not None)
        return next((count for count in known if count is not None), None)

    def add(self, event: Event) -> None:
        """Take the next event of the run; those that came late, too."""
        match event:
            case Stdout():
                self._write("stdout", event.text)
            case Stderr():
                self._write("stderr", event.text)
            case ResultAdded():
                self._display(event)
            case ResultUpdated():
                self._update(event.display_id, event)
            case OutputCleared():
                self._clear_next = event.wait
                if not event.wait:
                    self._clear()
            case ErrorRaised():
                self.fail(
                    ExecutionError(
                        name=event.name, value=event.value, traceback=event.traceback, line=event.line
                    )
                )
            case Started():
                self._start(event)
            case Ended():
                self._end(event)
            case Truncated() if "/" in event.stream:  # of text, the text itself tells
                where = f": the whole is in {event.path}" if event.path else ""
                self._note(f"{event.bytes} bytes of {event.stream} are left out{where}")
            case Gap():
                self._note(f"{event.bytes} bytes of output were dropped")
            case Failed():
                said: dict[str, Any] = event.error.get("error", {})
                self.fail(
                    ExecutionError(name=str(said.get("code", "Error")), value=str(said.get("message", "")))
                )
            case _:
                pass  # a question for input, which is answered or ends in an error

    def fail(self, problem: ExecutionError) -> None:
        """Add an error."""
        self.error = problem
        self._append(_error_output(problem))

    def outputs(self) -> list[Output]:
        """Return the outputs as they stand."""
        shown = [item.output() if isinstance(item, _Text) else item for item in self._items]
        if self._left_out:
            told = f"[sandcell] {self._left_out} bytes are left out: the notebook is full\n"
            shown.append({"output_type": "stream", "name": "stderr", "text": told})
        return shown

    def _start(self, event: Started) -> None:
        self.started = event
        if event.fresh_state:
            self._note(event.fresh_state)

    def _end(self, event: Ended) -> None:
        self.ended = event
        cause = event.end.cause
        if self.error is None and cause != "exited":
            self.fail(_ENDS.get(cause) or ExecutionError(name=cause.capitalize(), value="it never ran"))
        elif cause == "timeout":
            self._note(_LATE)

    def _note(self, text: str) -> None:
        """Tell on stderr what is ours to tell, as in a cell of the kernel's."""
        self._write("stderr", f"[sandcell] {text}\n")

    def _write(self, name: Literal["stdout", "stderr"], text: str) -> None:
        self._clear_if_asked()
        last = self._items[-1] if self._items else None
        if not isinstance(last, _Text) or last.name != name:
            if not self._room.take(_OUTPUT_COST):
                self._left_out += len(text)
                return
            last = _Text(name)
            self._items.append(last)
        if self._room.take(last.growth(text)):
            last.write(text)
        else:
            self._left_out += len(text)

    def _display(self, event: ResultAdded) -> None:
        output: Output = {
            "output_type": "execute_result" if event.is_main else "display_data",
            **_plain(event),
        }
        if event.is_main:
            output["execution_count"] = self.execution_count
        self._update(event.display_id, event)
        self._clear_if_asked()
        if not self._room.take(_size_of(output)):
            self._left_out += _size_of(output)
            return
        self._append(output)
        if event.display_id is not None:
            self._displays.setdefault(event.display_id, []).append(output)

    def _update(self, display_id: str | None, shown: ResultAdded | ResultUpdated) -> None:
        for output in self._displays.get(display_id or "", ()):
            news = _plain(shown)
            if self._room.take(_size_of(news) - _size_of(output)):
                output.update(news)
            else:
                self._left_out += _size_of(news)

    def _append(self, output: Output) -> None:
        self._clear_if_asked()
        self._items.append(output)

    def _clear_if_asked(self) -> None:
        if self._clear_next:
            self._clear_next = False
            self._clear()

    def _clear(self) -> None:
        cleared = {id(item) for item in self._items}
        for display_id, outputs in list(self._displays.items()):
            self._displays[display_id] = [each for each in outputs if id(each) not in cleared]
        self._room.left += sum(
            item.size if isinstance(item, _Text) else _size_of(item) for item in self._items
        )
        self._items.clear()


def _plain(shown: ResultAdded | ResultUpdated) -> Output:
    """Return data and metadata of a display, without what is made only for who asks for it."""
    data = {mime: part for mime, part in shown.data.items() if not mime.startswith(_OURS)}
    return {
        "data": data,
        "metadata": {key: told for key, told in shown.metadata.items() if key != "sandcell"},
    }


def _size_of(output: Output) -> int:
    """Return what an output takes in memory, about."""
    return _OUTPUT_COST + sum(size_of(part) for part in output.get("data", {}).values())


class _Text:
    """An output of text, as a terminal would show it. `size` is what it takes in memory, about."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self.name = name
        self.size = _OUTPUT_COST
        self._screen = Screen(_MAX_STREAM)

    def growth(self, text: str) -> int:
        """Return by how much `text` would make it larger."""
        return min(len(text), max(_MAX_STREAM + _OUTPUT_COST - self.size, 0))

    def write(self, text: str) -> None:
        self.size += self.growth(text)
        self._screen.write(text)

    def output(self) -> Output:
        return {"output_type": "stream", "name": self.name, "text": self._screen.finish()[0]}


def _error_output(problem: ExecutionError) -> Output:
    """Return the error as an output; without a traceback, one line is its traceback, as kernels have it."""
    return {
        "output_type": "error",
        "ename": problem.name,
        "evalue": problem.value,
        "traceback": problem.traceback or [str(problem)],
    }


def timing_of(cell: CellOutputs) -> dict[str, str]:
    """Return `metadata.execution` of a cell: when it began and when its reply came, as nbclient and JupyterLab note it.

    Nothing for a cell that never began.
    """
    if cell.started is None:
        return {}
    began = _moment(cell.started.time)
    timing = {"iopub.status.busy": began, "iopub.execute_input": began}
    if cell.ended is not None:
        ended = _moment(cell.ended.time)
        timing |= {"iopub.status.idle": ended, "shell.execute_reply": ended}
    return timing


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
