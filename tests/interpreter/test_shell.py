"""What `sandcell shell` is made of, without a sandbox: keys that detach, modes that are put back, the terminal itself."""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.cli import options
from sandcell.cli.detach import DetachKeys, parse_keys
from sandcell.cli.own_terminal import OwnTerminal, open_terminal
from sandcell.cli.replayed import Replayed
from sandcell.cli.screen_modes import ScreenModes
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.short

KEYS = b"\x10\x11"


# --- options


def test_all_from_the_first_word_on_is_the_command() -> None:
    parsed = options.parse(["shell", "--sandbox", "lab", "--id", "work", "vim", "--", "-n", "--id"])
    assert (parsed.sandbox, parsed.id, parsed.cwd) == ("lab", "work", None)
    assert (parsed.command, parsed.rest) == (["vim", "--", "-n", "--id"], [])
    assert options.parse(["shell"]).command == []


# --- keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ctrl-p,ctrl-q", KEYS),
        ("ctrl-a,d", b"\x01d"),
        ("ctrl-]", b"\x1d"),
        ("ctrl-@", b"\0"),
        ("~,.", b"~."),
        ("none", b""),
    ],
)
def test_keys_have_names(text: str, keys: bytes) -> None:
    assert parse_keys(text) == keys


@pytest.mark.parametrize("text", ["", "ctrl-", "ctrl-P", "ctrl-1", "pq", "é", "a,", "ctrl-p ctrl-q"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(SandcellError) as caught:
        parse_keys(text)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_the_beginning_of_the_keys_is_held_back_until_it_is_known() -> None:
    keys = DetachKeys(KEYS)
    assert keys.feed(b"a\x10") == (b"a", False)
    assert keys.feed(b"b") == (b"\x10b", False)
    assert keys.feed(b"\x10") == (b"", False)
    assert keys.feed(b"\x10") == (b"\x10", False)
    assert keys.feed(b"\x11rest") == (b"", True)


def test_without_keys_all_goes_through() -> None:
    assert DetachKeys(b"").feed(b"\x10\x11") == (b"\x10\x11", False)


@given(
    keys=st.lists(st.sampled_from(b"abc"), min_size=1, max_size=4).map(bytes),
    chunks=st.lists(st.lists(st.sampled_from(b"abc"), max_size=6).map(bytes), max_size=8),
)
def test_the_keys_are_found_however_they_are_cut(keys: bytes, chunks: list[bytes]) -> None:
    machine, passed, is_detached = DetachKeys(keys), b"", False
    for chunk in chunks:
        if not is_detached:
            typed = machine.feed(chunk)
            passed, is_detached = passed + typed.data, typed.is_detached
    whole = b"".join(chunks)
    before, found, _ = whole.partition(keys)
    assert is_detached == bool(found)
    assert before.startswith(passed)
    assert found == b"" or passed == before
    assert is_detached or keys.startswith(whole[len(passed) :])


# --- modes


def test_what_was_switched_on_is_switched_off_the_latest_first() -> None:
    modes = ScreenModes()
    modes.feed(b"\x1b[?1049h\x1b[?25l\x1b[?1000;1006hx\x1b[?2004h\x1b[?2004l\x1b[?12h")
    assert modes.undo() == b"\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[?1049l\x1b[0m"
    modes.feed(b"\x1b[?1049l\x1b[?25h\x1b[?1006;1000l")
    assert modes.undo() == b"\x1b[0m"


def test_a_plain_text_leaves_nothing_to_undo() -> None:
    modes = ScreenModes()
    modes.feed("text\r\n漢字".encode())
    assert modes.undo() == b""


def test_numbers_beyond_all_reason_are_no_modes() -> None:
    modes = ScreenModes()
    modes.feed(b"\x1b[?" + b"9" * 60 + b"h\x1b[?" + b"1" * 2**20)
    modes.feed(b"h\x1b[?;;h\x1b[?1049h")
    assert modes.undo() == b"\x1b[?1049l\x1b[0m"


@given(cuts=st.lists(st.integers(0, 40), max_size=6))
def test_a_change_is_seen_however_it_is_cut(cuts: list[int]) -> None:
    text = b"a\x1b[?1049h\x1b\x1b[?25lb\x1b[?1;1000hc"
    modes = ScreenModes()
    places = [0, *sorted(cuts), len(text)]
    for start, end in pairwise(places):
        modes.feed(text[start:end])
    assert modes.undo() == b"\x1b[?1000l\x1b[?1l\x1b[?25h\x1b[?1049l\x1b[0m"


# --- what is shown again

QUESTIONS = (
    b"\x05",
    b"\x1bZ",
    b"\x1b[6n",
    b"\x1b[?6n",
    b"\x1b[c",
    b"\x1b[>c",
    b"\x1b[0c",
    b"\x1b[>0q",
    b"\x1b[?2026$p",
    b"\x1b[18t",
    b"\x1b[?u",
    b"\x1b]11;?\x07",
    b"\x1b]4;1;?\x1b\\",
    b"\x1b]52;c;?\x07",
    b"\x1bP+q544e\x1b\\",
    b"\x1bP$qm\x1b\\",
)
HARMLESS = (
    b"a\x1b[31mred\x1b[0m\x1b[2J\x1b[?1049h\x1b]0;is it?\x07\x1b]2;title\x07\x1b[22;0;0t\x1b[4q\x1b(B\x1b="
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_is_asked_again(question: bytes) -> None:
    replayed = Replayed()
    shown = replayed.feed(b"x" + question + b"y") + replayed.rest()
    assert shown == b"xy"


@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_all_else_is_shown_however_it_is_cut(cuts: list[int]) -> None:
    text = b"".join(question + HARMLESS for question in QUESTIONS)
    replayed, shown = Replayed(), b""
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(places):
        shown += replayed.feed(text[start:end])
    assert shown + replayed.rest() == HARMLESS * len(QUESTIONS)


def test_what_only_begins_like_a_question_is_shown_in_the_end() -> None:
    replayed = Replayed()
    assert replayed.feed(b"a\x1b[") == b"a"
    assert replayed.feed(b"6") == b""
    assert replayed.rest() == b"\x1b[6"
    assert len(replayed.feed(b"\x1b]52;c;" + b"x" * 2**16)) > 2**15


# --- the terminal itself


class Pair:
    """A PTY: the terminal that a program runs on, and the hands and eyes of the person before it."""

    def __init__(self) -> None:
        self.person, self.program = os.openpty()
        os.set_blocking(self.program, False)
        self.own = OwnTerminal(self.program)

    def modes(self) -> object:
        return termios.tcgetattr(self.program)

    def close(self) -> None:
        os.close(self.person)
        os.close(self.program)


@pytest.fixture
def pair() -> Generator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_it_is_raw_inside_and_as_before_behind(pair: Pair) -> None:
    before = pair.modes()
    with pytest.raises(KeyboardInterrupt), pair.own.raw():
        assert pair.modes() != before
        os.write(pair.person, b"\x03\x1a")
        assert pair.own.read() == b"\x03\x1a"
        assert pair.own.read() is None
        raise KeyboardInterrupt
    assert pair.modes() == before


async def test_what_a_program_switched_on_is_put_back(pair: Pair) -> None:
    with pair.own.raw():
        await pair.own.write(b"\x1b[?1049hx")
    expected, seen = b"\x1b[?1049hx\x1b[?1049l\x1b[0m", b""
    while len(seen) < len(expected):
        seen += os.read(pair.person, 100)
    assert seen == expected


async def test_a_terminal_that_is_slow_is_waited_for(pair: Pair) -> None:
    data = bytes(range(1, 256)) * 4096
    loop = asyncio.get_running_loop()
    seen = bytearray()
    with pair.own.raw():
        writing = asyncio.ensure_future(pair.own.write(data))
        loop.add_reader(pair.person, lambda: seen.extend(os.read(pair.person, 2**16)))
        await writing
        loop.remove_reader(pair.person)
        while len(seen) < len(data):
            seen += os.read(pair.person, 2**16)
    assert seen == data


async def test_a_terminal_that_is_stopped_can_be_left(pair: Pair) -> None:
    before = pair.modes()
    with pair.own.raw():
        writing = asyncio.ensure_future(pair.own.write(bytes(2**20)))
        await asyncio.wait({writing}, timeout=0.01)
        assert not writing.done()
        pair.own.tell("a line")
        writing.cancel()
    assert pair.modes() == before


async def test_a_terminal_that_is_gone_is_no_error() -> None:
    pair = Pair()
    with pair.own.raw():
        os.close(pair.person)
        await pair.own.write(b"x")
        pair.own.make_raw()
        assert pair.own.read() == b""
    os.close(pair.program)


def test_a_shell_that_made_it_its_own_is_answered(pair: Pair) -> None:
    with pair.own.raw():
        raw = pair.modes()
        tty.setcbreak(pair.program)
        pair.own.make_raw()
        assert pair.modes() == raw


def test_the_size_is_the_terminals(pair: Pair) -> None:
    termios.tcsetwinsize(pair.program, (33, 111))
    assert pair.own.size == (111, 33)
    termios.tcsetwinsize(pair.program, (0, 0))
    assert pair.own.size == (80, 24)


def test_without_a_terminal_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing, pytest.raises(SandcellError) as caught:
        monkeypatch.setattr("sys.stdin", nothing)
        with open_terminal():
            pass
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "sandcell exec" in caught.value.hint
