"""Events of a run folded into its result."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.formatters import DisplayFormatter

from sandcell.events import (
    Ended,
    ErrorRaised,
    Event,
    Failed,
    Gap,
    InputRequested,
    OutputCleared,
    ResultAdded,
    ResultUpdated,
    Started,
    Stderr,
    Stdout,
    ToolCalled,
    Truncated,
)
from sandcell.handle import Handle
from sandcell.results import ExecutionError, LogEntry, Result, RunBuilder, RunResult, ToolCall
from sandcell_container.end import Cause, End, Truncation
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n..."
OK = Ended(end=End(cause="exited", code=0), execution_count=4, duration=0.5, time=20.0)


def build(*events: Event, ended: Ended = OK, max_text: int = 10**6) -> RunResult:
    builder = RunBuilder("run_1", "python", "sdk", max_text=max_text)
    for event in [Started(execution_count=4, context_id="python"), *events, ended]:
        builder.add(event)
    return builder.result()


def ended_by(cause: Cause, **more: Any) -> Ended:
    return Ended(end=End(cause=cause, **more))


# --- the run


def test_results_beyond_their_bound_are_counted_and_not_kept() -> None:
    builder = RunBuilder("run_1", "python", "sdk", max_shown=3000)
    kept = ResultAdded(data={"text/plain": 2000 * "x"}, display_id="d")
    dropped = ResultAdded(data={"application/json": [1] * 900})
    builder.add(kept)
    assert builder.last_result(kept) is not None
    builder.add(dropped)
    assert builder.last_result(dropped) is None
    builder.add(ResultUpdated(data={"text/plain": 5000 * "y"}, display_id="d"))
    builder.add(OutputCleared())
    builder.add(kept)
    builder.add(OK)
    run = builder.result()
    assert [result.text for result in run.results] == [2000 * "x"]
    assert run.truncated["results"].bytes > 8000


def test_a_run_holds_what_its_events_told() -> None:
    run = build(
        Stdout(text="out\n", time=1.0),
        Stderr(text="err\n", time=2.0),
        ResultAdded(data={"text/plain": "2"}, is_main=True),
        ToolCalled(id="cal_1", name="fetch", state="called", arguments={"url": "x"}),
        ToolCalled(id="cal_1", name="fetch", state="done", result=[1], duration=0.5),
        InputRequested(prompt="?"),
        ended=Ended(end=OK.end, execution_count=4, duration=0.5, time=20.0, value=2, usage={"cpu": 0.1}),
    )
    assert (run.id, run.context_id, run.origin) == ("run_1", "python", "sdk")
    assert (run.text, run.value, run.stdout, run.stderr) == ("2", 2, "out\n", "err\n")
    assert run.logs == [
        LogEntry(stream="stdout", text="out\n", time=1.0),
        LogEntry(stream="stderr", text="err\n", time=2.0),
    ]
    assert (run.started_at, run.duration, run.execution_count, run.usage) == (19.5, 0.5, 4, {"cpu": 0.1})
    assert run.tool_calls == [
        ToolCall(id="cal_1", name="fetch", arguments={"url": "x"}, state="done", result=[1], duration=0.5)
    ]
    assert run.ok
    assert not run.timed_out
    assert repr(run) == "RunResult(id='run_1', ok=True, text='2')"


def test_a_run_without_a_result_has_neither_text_nor_value() -> None:
    run = build(ResultAdded(data={"text/plain": "shown"}))
    assert (run.text, run.value) == (None, None)


def test_events_without_an_end_are_no_result() -> None:
    builder = RunBuilder("run_1", "python", "sdk")
    builder.add(Stdout(text="x"))
    with pytest.raises(SandcellError, match="no end"):
        builder.result()


def test_a_run_that_could_not_be_made_raises() -> None:
    problem = error(ErrorCode.CWD_NOT_FOUND, "no /x", hint="name another", details={"a": 1})
    with pytest.raises(SandcellError) as raised:
        build(Failed(error=problem.to_dict()))
    assert raised.value.to_dict() == problem.to_dict()


def test_a_run_in_a_context_of_its_own_says_which() -> None:
    assert build(Started(context_id="ctx_fresh", fresh_state="restarted")).context_id == "ctx_fresh"
    assert build(Started(context_id="", fresh_state="restarted")).fresh_state == "restarted"


# --- output


def test_output_is_shown_collapsed_and_logged_raw() -> None:
    run = build(Stdout(text="10%\r"), Stdout(text="99%\n"))
    assert run.stdout == "99%\n"
    assert [entry.text for entry in run.logs] == ["10%\r", "99%\n"]


def test_cleared_output_is_gone_but_logged() -> None:
    run = build(Stdout(text="a"), ResultAdded(data={"text/plain": "1"}), OutputCleared(), Stdout(text="b"))
    assert (run.stdout, run.results) == ("b", [])
    assert len(run.logs) == 2


def test_clearing_may_wait_for_the_next_output() -> None:
    assert build(Stdout(text="a"), OutputCleared(wait=True)).stdout == "a"
    assert build(Stdout(text="a"), OutputCleared(wait=True), Stdout(text="b")).stdout == "b"
    shown = build(Stdout(text="a"), OutputCleared(wait=True), ResultAdded(data={"text/plain": "1"}))
    assert (shown.stdout, len(shown.results)) == ("", 1)


def test_a_flood_keeps_head_and_tail_and_tells_the_rest() -> None:
    run = build(*(Stdout(text=f"{n:07}\n") for n in range(10_000)), max_text=10_000)
    assert len(run.stdout) < 10_200
    assert run.stdout.startswith("0000000\n")
    assert run.stdout.endswith("0009999\n")
    assert run.truncated["stdout"].total_bytes == 80_000
    assert sum(len(entry.text) for entry in run.logs) < 10_000
    assert run.logs[-1].text == "0009999\n"


def test_what_the_guest_cut_is_told() -> None:
    run = build(
        Truncated(stream="image/png", bytes=9, total_bytes=9, path="/tmp/x"),
        Gap(entries=2, bytes=70),
        Gap(entries=1, bytes=30),
    )
    assert run.truncated == {
        "image/png": Truncation(bytes=9, lines=0, total_bytes=9, path="/tmp/x"),
        "output": Truncation(bytes=100, lines=0, total_bytes=100),
    }


def test_late_output_is_marked() -> None:
    builder = RunBuilder("r", "c", "sdk")
    for event in (OK, Stdout(text="late", late=True)):
        builder.add(event)
    assert builder.result().logs == [LogEntry(stream="stdout", text="late", time=0.0, late=True)]


# --- results


def test_a_display_is_updated_wherever_it_is_shown() -> None:
    run = build(
        ResultAdded(data={"text/plain": "1"}, display_id="d"),
        ResultAdded(data={"text/plain": "other"}),
        ResultAdded(data={"text/plain": "1"}, display_id="d", is_main=True),
        ResultUpdated(data={"text/plain": "2"}, display_id="d"),
        ResultUpdated(data={"text/plain": "3"}, display_id="of an earlier run"),
    )
    assert [result.text for result in run.results] == ["2", "other", "2"]
    assert run.text == "2"


def test_a_builder_gives_what_an_event_brought() -> None:
    builder = RunBuilder("r", "c", "sdk")
    added, updated = ResultAdded(data={"a": 1}, display_id="d"), ResultUpdated(data={"a": 2}, display_id="d")
    builder.add(added)
    assert builder.last_result(added) == Result(mime={"a": 1}, display_id="d")
    builder.add(updated)
    assert builder.last_result(updated) == Result(mime={"a": 2}, display_id="d")
    assert builder.last_result(Stdout(text="x")) is None


def test_formats_are_decoded() -> None:
    data = {
        "text/plain": "t",
        "text/html": "<b>",
        "text/markdown": "*m*",
        "text/latex": "$l$",
        "image/svg+xml": "<svg/>",
        "application/javascript": "j()",
        "application/json": {"a": [1]},
        "image/png": base64.b64encode(PNG).decode() + "\n",
        "image/jpeg": base64.b64encode(b"jpeg").decode(),
        "application/pdf": base64.b64encode(b"%PDF").decode(),
    }
    result = Result(mime=data)
    assert (result.text, result.html, result.markdown, result.latex) == ("t", "<b>", "*m*", "$l$")
    assert (result.svg, result.javascript, result.json) == ("<svg/>", "j()", {"a": [1]})
    assert (result.png, result.jpeg, result.pdf) == (PNG, b"jpeg", b"%PDF")
    assert set(result.formats()) == {
        *("text", "html", "markdown", "latex", "svg", "javascript", "json", "png", "jpeg", "pdf")
    }


def test_formats_that_are_not_there_are_none() -> None:
    result = Result(mime={})
    names = ("text", "html", "markdown", "latex", "svg", "javascript", "json", "png", "jpeg", "pdf")
    assert [getattr(result, name) for name in names] == [None] * 10
    assert (result.data, result.chart, result.spilled, result.formats()) == (None, None, None, [])


@pytest.mark.parametrize("forged", ["no base64!", 7, ["a"]])
def test_an_image_that_is_none_is_none(forged: object) -> None:
    run = build(ResultAdded(data={"image/png": forged}))
    assert run.results[0].png is None
    assert run.images == []


def test_images_in_order_with_their_type() -> None:
    run = build(
        ResultAdded(data={"image/png": base64.b64encode(PNG).decode()}),
        ResultAdded(data={"text/plain": "none"}),
        ResultAdded(data={"image/jpeg": base64.b64encode(b"j").decode()}),
    )
    assert [(bytes(image), image.mime) for image in run.images] == [(PNG, "image/png"), (b"j", "image/jpeg")]


@pytest.mark.parametrize(
    ("name", "content"), [("a.png", PNG), ("a.TXT", b"\xc3\xa9"), ("a.json", b'{"a": 1}'), ("b.html", b"<b>")]
)
def test_a_result_saves_the_format_of_the_suffix(tmp_path: Path, name: str, content: bytes) -> None:
    data = {
        "image/png": base64.b64encode(PNG).decode(),
        "text/plain": "é",
        "application/json": {"a": 1},
        "text/html": "<b>",
    }
    saved = Result(mime=data).save(tmp_path / name)
    assert saved.read_bytes() == content


@pytest.mark.parametrize("name", ["a.pdf", "a.xyz", "a"])
def test_a_result_does_not_save_what_it_has_not(tmp_path: Path, name: str) -> None:
    with pytest.raises(SandcellError, match="INVALID_ARGUMENT"):
        Result(mime={"text/plain": "t"}).save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_result_without_data_is_no_frame() -> None:
    with pytest.raises(SandcellError, match="UNSUPPORTED"):
        Result(mime={}).to_pandas()


# --- errors


def test_an_error_makes_the_run_fail() -> None:
    run = build(
        ErrorRaised(name="ValueError", value="no", traceback=["tb"], line=2),
        ended=ended_by("exited", code=1),
    )
    assert run.error == ExecutionError(name="ValueError", value="no", traceback=["tb"], line=2)
    assert str(run.error) == "ValueError: no"
    assert not run.ok
    with pytest.raises(SandcellError, match="CODE_FAILED: ValueError: no") as raised:
        run.raise_for_error()
    assert raised.value.details == {"cause": "exited", "line": 2}
    assert getattr(raised.value, "result") is run  # noqa: B009 -- the attribute of Failed alone


def test_a_good_run_raises_nothing() -> None:
    build().raise_for_error()


@pytest.mark.parametrize("cause", ["timeout", "interrupted", "signaled", "killed", "lost"])
def test_an_end_from_outside_is_no_success(cause: Cause) -> None:
    run = build(ended=ended_by(cause))
    assert not run.ok
    assert run.timed_out == (cause == "timeout")
    with pytest.raises(SandcellError, match=f"the run ended: {cause}"):
        run.raise_for_error()


# --- for others


def test_a_run_as_a_dict_is_json_and_comes_back() -> None:
    run = build(
        Stdout(text="x\n", time=1.0),
        ResultAdded(data={"text/plain": "2"}, metadata=SPILLED, is_main=True),
        ErrorRaised(name="E", traceback=["t"], line=1),
        Truncated(stream="image/png", bytes=9, total_bytes=9, path="/tmp/x"),
        ToolCalled(id="cal_1", name="fetch", state="failed", error={"name": "E", "message": "no"}),
    )
    told = json.loads(json.dumps(run.to_dict()))
    assert told["results"][0]["mime"] == {"text/plain": "2"}
    assert (told["ok"], told["end"]["cause"], told["error"]["name"]) == (False, "exited", "E")
    assert RunResult.from_dict(told) == run
    assert RunResult.from_dict({**told, "of a later version": 1}) == run
    assert Result.from_dict(told["results"][0]) == run.results[0]


SPILLED = {
    "sandcell": {
        "spilled": {"text/html": {"path": "/x.html", "size": 5}, "image/png": {"path": "/x.png", "size": 9}}
    }
}


def test_what_was_too_large_has_a_handle(tmp_path: Path) -> None:
    (result,) = build(ResultAdded(data={"text/plain": "t"}, metadata=SPILLED)).results
    assert result.spilled == Handle("/x.png", 9, "image/png")  # the richest
    with pytest.raises(SandcellError, match="too large to send") as raised:
        result.save(tmp_path / "a.png")
    assert "/x.png" in raised.value.hint


@pytest.mark.parametrize(
    "forged",
    [
        7,
        {"spilled": 7},
        {"spilled": {"a/b": 7}},
        {"spilled": {"a/b": {"path": 1, "size": 2}}},
        {"spilled": {"a/b": {"size": -1}}},
    ],
)
def test_a_forged_handle_is_none(forged: object) -> None:
    (result,) = build(ResultAdded(data={}, metadata={"sandcell": forged})).results
    assert result.spilled is None


def test_a_run_in_a_notebook_looks_as_it_was() -> None:
    formatter: Any = DisplayFormatter()
    assert formatter.format(build(Stdout(text="out")))[0] == {"text/plain": "out"}
    run = build(
        Stdout(text="<out>\n"),
        ResultAdded(data={"image/png": base64.b64encode(PNG).decode(), "text/plain": "f"}),
        ResultAdded(data={"image/svg+xml": "<svg onload='x()'/>"}),
        ResultAdded(data={"text/plain": "2", "text/html": "<b onclick='x()'>"}, is_main=True),
        ErrorRaised(name="E", traceback=["\x1b[31mE\x1b[0m: <v>"]),
    )
    shown = formatter.format(run)[0]
    assert set(shown) == {"text/plain", "text/html"}
    parts = shown["text/html"].splitlines()
    assert parts[0] == "<pre>&lt;out&gt;"
    assert parts[2].startswith('<img src="data:image/png;base64,')
    assert parts[3].startswith('<img src="data:image/svg+xml;base64,')
    assert 'sandbox="allow-scripts"' in parts[4]
    assert "<b" not in parts[4]
    assert parts[5] == "<pre>E: &lt;v&gt;</pre>"
    assert formatter.format(run.results[0])[0]["text/html"] == parts[2]


def test_formats_name_what_is_ours_and_others_as_they_are() -> None:
    plotly = Result(mime={"application/vnd.plotly.v1+json": {"data": [{}]}, "text/html": "h"})
    assert plotly.formats() == ["html", "chart", "application/vnd.plotly.v1+json"]


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_result_is_plain_data_however_deep_it_is_nested() -> None:
    depth = 900  # what is read as JSON has a hundred more
    deep = nested(depth)
    run = build(ResultAdded(data={"application/json": {"deep": deep}}, metadata={}, is_main=True))
    told = run.to_dict()["results"][0]["mime"]["application/json"]["deep"]
    assert run.results[0].to_dict()["mime"]["application/json"]["deep"] is not deep
    assert told is not deep
    while told:
        (told,) = told
        depth -= 1
    assert depth == 0


def test_what_to_dict_gives_is_the_callers_own() -> None:
    run = build(ResultAdded(data={"text/plain": "x"}, metadata={"a": [1]}, is_main=True))
    told = run.to_dict()
    told["results"][0]["metadata"]["a"].append(2)
    assert run.results[0].metadata == {"a": [1]}
