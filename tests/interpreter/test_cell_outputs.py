"""Events of runs as outputs of cells: JupyterLab's rules, one by one."""

from __future__ import annotations

from typing import Any

from sandcell.cell_outputs import CellOutputs, NotebookOutputs, timing_of
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
from sandcell_container.end import Cause, End


def _cell(*events: Event, of: NotebookOutputs | None = None) -> CellOutputs:
    cell = (of or NotebookOutputs()).cell()
    for event in events:
        cell.add(event)
    return cell


def _shown(text: str, display_id: str | None = None, *, is_main: bool = False) -> ResultAdded:
    return ResultAdded(data={"text/plain": text}, display_id=display_id, is_main=is_main)


def _ended(cause: Cause = "exited", *, count: int | None = None) -> Ended:
    return Ended(end=End(cause=cause, code=0 if cause == "exited" else None), execution_count=count, time=2.5)


def _texts(cell: CellOutputs) -> list[str]:
    """What stands in each output."""
    return [each.get("text") or each.get("evalue") or each["data"]["text/plain"] for each in cell.outputs()]


def test_text_joins_the_output_before_it_of_the_same_stream() -> None:
    cell = _cell(Stdout(text="a"), Stdout(text="b"), Stderr(text="c"), Stdout(text="d"))
    assert cell.outputs() == [
        {"output_type": "stream", "name": "stdout", "text": "ab"},
        {"output_type": "stream", "name": "stderr", "text": "c"},
        {"output_type": "stream", "name": "stdout", "text": "d"},
    ]


def test_a_display_divides_text_and_a_progress_bar_is_one_line() -> None:
    cell = _cell(Stdout(text=" 1%\r"), Stdout(text="99%\n"), _shown("x"), Stdout(text="after"))
    assert _texts(cell) == ["99%\n", "x", "after"]


def test_a_result_has_the_number_of_its_cell_and_a_display_has_none() -> None:
    cell = _cell(Started(execution_count=7), _shown("seen"), _shown("value", is_main=True))
    assert cell.outputs() == [
        {"output_type": "display_data", "data": {"text/plain": "seen"}, "metadata": {}},
        {
            "output_type": "execute_result",
            "data": {"text/plain": "value"},
            "metadata": {},
            "execution_count": 7,
        },
    ]
    assert cell.execution_count == 7


def test_an_update_changes_every_display_of_its_id_and_adds_none() -> None:
    notebook = NotebookOutputs()
    first = _cell(_shown("old", "d"), _shown("other", "e"), of=notebook)
    second = _cell(_shown("old", "d"), of=notebook)
    update = ResultUpdated(data={"text/plain": "new"}, metadata={"m": 1}, display_id="d")
    third = _cell(update, ResultUpdated(data={}, display_id="nobody's"), ResultUpdated(data={}), of=notebook)
    assert (_texts(first), _texts(second), third.outputs()) == (["new", "other"], ["new"], [])
    assert first.outputs()[0]["metadata"] == {"m": 1}


def test_a_display_shown_again_changes_where_it_was_shown_before() -> None:
    notebook = NotebookOutputs()
    first, second = _cell(_shown("old", "d"), of=notebook), _cell(_shown("new", "d"), of=notebook)
    assert (_texts(first), _texts(second)) == (["new"], ["new"])


def test_clearing_takes_displays_away_from_later_updates() -> None:
    notebook = NotebookOutputs()
    cell = _cell(_shown("gone", "d"), OutputCleared(), _shown("here"), of=notebook)
    _cell(ResultUpdated(data={"text/plain": "lost"}, display_id="d"), of=notebook)
    assert _texts(cell) == ["here"]


def test_a_clear_that_waits_comes_with_the_next_output_or_not_at_all() -> None:
    before = _cell(Stdout(text="old"), OutputCleared(wait=True))
    assert _texts(before) == ["old"]
    before.add(Stdout(text="new"))
    assert _texts(before) == ["new"]
    updated = _cell(_shown("old", "d"), OutputCleared(wait=True), ResultUpdated(data={}, display_id="d"))
    assert len(updated.outputs()) == 1  # an update is no output


def test_an_error_is_an_output_and_one_without_a_traceback_says_itself() -> None:
    cell = _cell(ErrorRaised(name="ValueError", value="no", traceback=["line", "line"]))
    assert cell.outputs() == [
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["line", "line"]}
    ]
    died = _cell(ErrorRaised(name="ContextDied", value="signal 9"))
    assert died.outputs()[0]["traceback"] == ["ContextDied: signal 9"]


def test_every_end_that_is_none_of_the_code_is_told() -> None:
    ends: dict[Cause, list[str]] = {
        "exited": [],
        "timeout": ["its time was over"],
        "interrupted": ["it was interrupted"],
        "killed": ["it never ran"],
    }
    assert {cause: _texts(_cell(_ended(cause))) for cause in ends} == ends
    raised = _cell(ErrorRaised(name="KeyboardInterrupt", value="^C"), _ended("timeout"))
    assert _texts(raised) == ["^C", "[sandcell] its time was over\n"]
    refused: dict[str, Any] = {"error": {"code": "CWD_NOT_FOUND", "message": "no such folder"}}
    assert _texts(_cell(Failed(error=refused))) == ["no such folder"]


def test_what_was_left_out_and_a_state_that_was_lost_are_told() -> None:
    cell = _cell(
        Started(fresh_state="the interpreter was killed"),
        Truncated(stream="image/png", bytes=11_000_000),
        Truncated(stream="stdout", bytes=5),
        Gap(bytes=12),
    )
    assert _texts(cell) == [
        (
            "[sandcell] the interpreter was killed\n"
            "[sandcell] 11000000 bytes of image/png are left out\n"
            "[sandcell] 12 bytes of output were dropped\n"
        )
    ]


def test_nothing_of_ours_is_in_a_notebook() -> None:
    data: dict[str, Any] = {
        "text/plain": "t",
        "application/vnd.sandcell.data+json": {},
        "application/vnd.plotly.v1+json": {},
    }
    metadata: dict[str, Any] = {"sandcell": {"spilled": {}}, "image/png": {"width": 1}}
    cell = _cell(
        ResultAdded(data=data, metadata=metadata, display_id="d"),
        Truncated(stream="text/html", bytes=9, total_bytes=9, path="/x.html"),
    )
    shown, told = cell.outputs()
    plain: dict[str, Any] = {"text/plain": "t", "application/vnd.plotly.v1+json": {}}
    assert (shown["data"], shown["metadata"]) == (plain, {"image/png": {"width": 1}})
    assert told["text"] == "[sandcell] 9 bytes of text/html are left out: the whole is in /x.html\n"
    updated = _cell(
        ResultAdded(data={}, display_id="d"), ResultUpdated(data=data, metadata=metadata, display_id="d")
    )
    assert updated.outputs()[0]["data"] == plain


def test_a_notebook_that_is_full_takes_no_more_and_says_so() -> None:
    notebook = NotebookOutputs(most=5000)
    first = _cell(_shown(2000 * "x", "d"), *(Stdout(text=100 * "y") for _ in range(50)), of=notebook)
    second = _cell(
        _shown(2000 * "x"), ResultUpdated(data={"text/plain": 4000 * "z"}, display_id="d"), of=notebook
    )
    assert _texts(first)[0] == 2000 * "x"
    assert len(_texts(first)[1]) == 2000
    assert _texts(first)[2] == "[sandcell] 3000 bytes are left out: the notebook is full\n"
    assert _texts(second) == ["[sandcell] 7000 bytes are left out: the notebook is full\n"]
    first.add(OutputCleared())
    assert _texts(_cell(_shown(2000 * "x"), of=notebook)) == [2000 * "x"]


def test_what_is_shown_again_and_again_in_one_place_fills_no_notebook() -> None:
    notebook = NotebookOutputs(most=5000)
    cell = _cell(_shown("0", "d"), of=notebook)
    for number in range(100):
        cell.add(ResultUpdated(data={"text/plain": f"{number}" + 2000 * "x"}, display_id="d"))
        cell.add(Stdout(text=f"{number}\n"))
        cell.add(OutputCleared(wait=True))
        cell.add(_shown(2000 * "x", "d"))
    assert _texts(cell) == [2000 * "x"]


def test_output_that_comes_late_is_the_cell_s() -> None:
    cell = _cell(Stdout(text="in time, "), _ended(), Stdout(text="late", late=True))
    assert _texts(cell) == ["in time, late"]


def test_times_are_those_that_jupyter_notes() -> None:
    cell = _cell(Started(time=1.25), _ended())
    assert timing_of(cell) == {
        "iopub.status.busy": "1970-01-01T00:00:01.250000Z",
        "iopub.execute_input": "1970-01-01T00:00:01.250000Z",
        "iopub.status.idle": "1970-01-01T00:00:02.500000Z",
        "shell.execute_reply": "1970-01-01T00:00:02.500000Z",
    }
    assert timing_of(_cell(_ended("interrupted"))) == {}
