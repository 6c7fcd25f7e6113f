from __future__ import annotations

from typing import Any

import pytest

from sandcell_kernel.cell_output import MAX_DISPLAYS, MAX_ERRORS, CellOutput, PastOutputs
from sandcell_kernel.wire import Message, RequestKey, new_message

LIMIT = 1000


def stream(text: str) -> Message:
    return new_message("stream", {"name": "stdout", "text": text}, session="s")


def display(kind: str = "display_data", **data: Any) -> Message:
    return new_message(kind, {"data": data, "metadata": {}, "transient": {"display_id": "d"}}, session="s")


def text_shown(output: CellOutput, *texts: str) -> str:
    taken = [output.take(stream(text)) for text in texts]
    return "".join(each.body()["text"] for each in taken if each is not None)


def test_little_is_passed_as_it_came() -> None:
    output, message = CellOutput(LIMIT), stream("words")
    assert output.take(message) is message
    assert (output.is_cut, output.describe_rest()) == (False, "")


def test_text_beyond_the_bound_is_counted() -> None:
    output = CellOutput(LIMIT)
    shown = text_shown(output, "x" * 600, "y" * 600, "z" * 600)
    assert 800 < len(shown) <= LIMIT
    assert shown.startswith("x" * 600)
    assert output.describe_rest() == f"{1800 - len(shown)} B more of output are not shown"


def test_what_overwrites_itself_counts_as_what_is_seen() -> None:
    output = CellOutput(LIMIT)
    steps = [f"\r{number:100}" for number in range(100)]
    assert text_shown(output, *steps[:5]).count("\r") == 5
    whole = "".join(f"{number:100}\r" for number in range(1000))
    assert text_shown(CellOutput(LIMIT), whole) == whole


def test_windows_line_ends_overwrite_nothing() -> None:
    output = CellOutput(LIMIT)
    text_shown(output, "x" * 2000 + "\r\n")
    assert output.is_cut


def test_displays_beyond_the_bound_are_counted() -> None:
    output = CellOutput(LIMIT)
    taken = [output.take(display(x=1)) for _ in range(MAX_DISPLAYS + 5)]
    assert taken.count(None) > 4
    assert output.describe_rest().endswith("more displays are not shown")


def test_a_display_that_is_too_large_leaves_its_place() -> None:
    output = CellOutput(LIMIT)
    shown = output.take(display(**{"image/png": "x" * 20_000}))
    assert shown is not None
    assert shown.body()["data"]["text/plain"].startswith("[19.6 KiB are not shown")
    assert shown.body()["transient"] == {"display_id": "d"}


def test_cleared_output_counts_no_more() -> None:
    output = CellOutput(LIMIT)
    text_shown(output, "x" * 2000)
    cleared = new_message("clear_output", {"wait": False}, session="s")
    assert output.take(cleared) is cleared
    assert (text_shown(output, "again"), output.is_cut) == ("again", False)


@pytest.mark.parametrize("kind", ["update_display_data", "comm_msg", "error", "execute_input"])
def test_what_adds_nothing_passes(kind: str) -> None:
    output = CellOutput(1)
    message = new_message(kind, {"data": {"x": "y" * 10_000}}, session="s")
    assert output.take(message) is message


@pytest.mark.parametrize("kind", ["error", "execute_reply"])
def test_an_error_is_bounded_and_its_last_lines_are_kept(kind: str) -> None:
    lines = [*(f"frame {number}" for number in range(500)), "E: " + "x" * 9000, "note"]
    error = new_message(kind, {"ename": "E", "evalue": "x" * 9000, "traceback": lines}, session="s")
    output = CellOutput(LIMIT)
    shown = output.take(error) if kind == "error" else output.bound(error)
    assert shown is not None
    body = shown.body()
    assert len(shown.content) < LIMIT
    assert (body["ename"], body["traceback"][-1], body["traceback"][-3]) == ("E", "note", "frame 499")
    assert body["evalue"].endswith("x [8875 more characters are not shown]")
    assert "more characters" in body["traceback"][-2]


def test_an_error_without_a_traceback_says_itself_what_it_is() -> None:
    error = new_message("error", {"ename": "E", "evalue": "why", "traceback": []}, session="s")
    shown = CellOutput(LIMIT).take(error)
    assert shown is not None
    assert shown.body() == {"ename": "E", "evalue": "why", "traceback": ["E: why"]}


def test_errors_without_end_are_forged_and_counted() -> None:
    output = CellOutput(LIMIT)
    error = new_message("error", {"ename": "E", "evalue": "", "traceback": []}, session="s")
    taken = [output.take(error) for _ in range(MAX_ERRORS + 2)]
    assert (taken.count(None), output.describe_rest()) == (2, "2 more displays are not shown")


def test_nonsense_breaks_nothing() -> None:
    broken = Message(stream("").header, content=b"{" + b"x" * 2000)
    output = CellOutput(LIMIT)
    assert output.take(broken) in {None, broken}


def test_what_a_cell_says_late_counts_as_its_own() -> None:
    past, output, key = PastOutputs(most=1), CellOutput(LIMIT), RequestKey("1", "execute_request")
    text_shown(output, "x" * 2000)
    past.add(key, output)
    assert past.take(key, stream("late")) is None
    other = stream("late")
    assert past.take(RequestKey("2", "execute_request"), other) is other
    past.add(RequestKey("3", "execute_request"), CellOutput(LIMIT))
    assert past.take(key, other) is other
