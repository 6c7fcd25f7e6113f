"""What callers ask of processes."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from sandcell.client.process_options import (
    ProcessCallbacks,
    check_grace,
    check_pattern,
    check_scope,
    check_signal,
    check_status,
    make_process,
    page_query,
    seconds_of,
)
from sandcell_container.errors import ErrorCode, SandcellError


def test_a_process_is_asked_for_as_it_was_given() -> None:
    body = make_process(["a", "b"], id="one", cwd="x", env={"A": None}, timeout=3, stdin=True, memory="1MiB")
    assert (body.command, body.id, body.cwd, body.env) == (("a", "b"), "one", "x", {"A": None})
    assert (body.timeout, body.stdin, body.memory) == (3.0, True, 2**20)
    plain = make_process("a | b")
    assert plain.command == "a | b"
    assert plain.id is not None and plain.id.startswith("prc_")
    assert (plain.timeout, plain.on_full, plain.keep_record) == (None, "drop_oldest", True)
    assert make_process("a", on_full="block").on_full == "block"


def test_callbacks_are_there_or_not() -> None:
    assert not ProcessCallbacks()
    assert ProcessCallbacks(on_exit=print)
    with pytest.raises(SandcellError):
        ProcessCallbacks(on_output=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- on purpose


def test_a_page_asks_for_what_was_given_alone() -> None:
    assert page_query(None, limit=None, stream=None, tail=None) == {"follow": "false"}
    assert page_query("c", limit=2, stream="stderr", tail=None) == {
        "follow": "false",
        "cursor": "c",
        "limit": "2",
        "stream": "stderr",
    }


def test_what_can_be_is_returned() -> None:
    pattern = re.compile("x")
    assert check_pattern(pattern) is pattern
    assert check_pattern("a.c").search("abc")
    assert (check_grace(0), check_grace(2)) == (0.0, 2.0)
    assert (check_scope("tree"), check_status("ended")) == ("tree", "ended")
    assert (check_signal("HUP"), check_signal(9), check_signal(signal.SIGHUP)) == ("HUP", 9, 1)
    assert (seconds_of(None), seconds_of(1)) == (None, 1.0)


def on_full(given: Any) -> object:
    return make_process("a", on_full=given)


def both_cursor_and_tail(given: Any) -> object:
    return page_query(given, limit=None, stream=None, tail=1)


def page_of_stream(given: Any) -> object:
    return page_query(None, limit=None, stream=given, tail=None)


@pytest.mark.parametrize(
    ("check", "given"),
    [
        (check_pattern, "("),
        (check_pattern, 3),
        (check_pattern, re.compile(b"x")),
        (check_grace, -1),
        (check_grace, float("nan")),
        (check_grace, "2"),
        (check_scope, "all"),
        (check_status, ["ended"]),
        (check_signal, 1.5),
        (check_signal, True),
        (seconds_of, 0),
        (make_process, ""),
        (make_process, 3),
        (on_full, "explode"),
        (both_cursor_and_tail, "c"),
        (page_of_stream, "stdin"),
    ],
)
def test_what_cannot_be_is_refused(check: Any, given: Any) -> None:
    with pytest.raises(SandcellError) as caught:
        check(given)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
