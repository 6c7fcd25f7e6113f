"""A command's frames become its result."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sandcell.command import CommandOutput, ExecResult, command_failed
from sandcell_container.end import CommandEnd, End, Truncation
from sandcell_container.errors import ErrorCode, Failed
from sandcell_container.frames import Entry, Kind


def entry(kind: Kind, data: bytes) -> Entry:
    return Entry(1, len(data), kind, 0, 0.0, data)


def ended(**facts: Any) -> Entry:
    given: dict[str, Any] = {
        "end": End(cause="exited", code=0),
        "exit_code": 0,
        "signal": None,
        "duration": 0.1,
    }
    return entry(Kind.ENDED, msgspec.json.encode(CommandEnd(**given | facts)))


def result_of(*entries: Entry, max_output: int = 1000) -> ExecResult:
    output = CommandOutput(max_output=max_output)
    for each in entries:
        output.add(each)
    return output.result()


def test_streams_are_apart_and_whole() -> None:
    result = result_of(entry(Kind.STDOUT, b"a"), entry(Kind.STDERR, b"e"), entry(Kind.STDOUT, b"b"), ended())
    assert (result.stdout, result.stderr, result.ok) == ("ab", "e", True)


def test_bytes_that_are_no_text_are_kept() -> None:
    result = result_of(entry(Kind.STDOUT, b"\xff\x00"), ended())
    assert result.stdout_bytes == b"\xff\x00"
    assert result.stdout == "\N{REPLACEMENT CHARACTER}\x00"


def test_a_callback_never_sees_half_a_character() -> None:
    output = CommandOutput(max_output=100)
    euro = "€".encode()
    assert output.add(entry(Kind.STDOUT, euro[:2])) == ("stdout", "")
    assert output.add(entry(Kind.STDOUT, euro[2:])) == ("stdout", "€")
    output.add(entry(Kind.STDERR, euro[:1]))
    assert output.rest() == [("stderr", "\N{REPLACEMENT CHARACTER}")]


def test_what_the_guest_cut_is_told_in_text_and_facts() -> None:
    gap = entry(Kind.GAP, json.dumps({"entries": 0, "bytes": 70, "stream": "stdout", "lines": 7}).encode())
    cut = {"stdout": Truncation(bytes=70, lines=7, total_bytes=74, path="/tmp/whole")}
    result = result_of(
        entry(Kind.STDOUT, b"a\n"), gap, entry(Kind.STDOUT, b"z\n"), ended(truncated=cut), max_output=4
    )
    assert result.stdout == "a\n[... 70 bytes, 7 lines left out; the whole is in /tmp/whole ...]\nz\n"
    assert result.stdout_bytes == b"a\nz\n"
    assert result.truncated == cut


def test_uncut_output_is_bounded_here_with_head_and_tail() -> None:
    lines = [f"line {number:04}\n".encode() for number in range(1000)]
    result = result_of(*(entry(Kind.STDOUT, line) for line in lines), ended(), max_output=200)
    cut = result.truncated["stdout"]
    assert len(result.stdout_bytes) <= 200
    assert result.stdout.startswith("line 0000\n")
    assert result.stdout.endswith("line 0999\n")
    assert cut.total_bytes == 10_000
    assert cut.bytes == 10_000 - len(result.stdout_bytes)
    assert cut.lines * 10 == cut.bytes


def test_one_long_line_is_cut_between_characters() -> None:
    result = result_of(entry(Kind.STDOUT, ("é" * 500).encode()), ended(), max_output=101)
    assert len(result.stdout_bytes) <= 101
    assert "\N{REPLACEMENT CHARACTER}" not in result.stdout


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"exit_code": 3, "end": End(cause="exited", code=3)}, "exit code 3: last words"),
        ({"exit_code": None, "signal": 9, "end": End(cause="signaled", signal=9)}, "signal 9"),
        ({"exit_code": None, "signal": 9, "end": End(cause="timeout", signal=9)}, "timeout, signal 9"),
    ],
)
def test_a_failed_command_says_how(facts: dict[str, Any], words: str) -> None:
    result = result_of(entry(Kind.STDERR, b"first\nlast words\n"), ended(**facts))
    problem = command_failed(result, "make")
    assert isinstance(problem, Failed)
    assert problem.code is ErrorCode.COMMAND_FAILED
    assert problem.result is result
    assert words in problem.message
    assert not result.ok


def test_a_result_shows_how_it_ended_and_the_beginning_of_what_was_said() -> None:
    result = result_of(entry(Kind.STDOUT, b"x" * 1000), ended())
    assert repr(result).startswith("ExecResult(exited, exit_code=0, stdout='xxx")
    assert len(repr(result)) < 100


def test_text_is_made_only_of_streams_that_somebody_hears() -> None:
    output = CommandOutput(max_output=10, heard=["stderr"])
    assert output.add(entry(Kind.STDOUT, b"out")) is None
    assert output.add(entry(Kind.STDERR, b"err\xc3")) == ("stderr", "err")
    assert output.rest() == [("stderr", "\ufffd")]
