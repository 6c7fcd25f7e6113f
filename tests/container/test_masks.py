"""Secrets are taken out of what is shown, whatever its pieces are."""

from __future__ import annotations

import itertools
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_container.guest.masks import (
    MaskingFormatter,
    Masks,
    StreamMask,
    StreamMasks,
    masks_of,
    warnings_of,
)
from sandcell_container.journal import Kind

TOKEN = "sk-live-4242"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n}\n-----END KEY-----\n"


def _masks(*secrets: str) -> Masks:
    masks = masks_of({f"S{number}": secret for number, secret in enumerate(secrets)})
    assert masks is not None
    return masks


def _pieces(mask: StreamMask, pieces: list[bytes]) -> bytes:
    return b"".join(map(mask.feed, pieces)) + mask.finish()


def test_a_secret_is_masked_wherever_it_stands() -> None:
    masks = _masks(TOKEN)
    assert masks.text(f"a{TOKEN}b{TOKEN}") == "a***b***"
    assert masks.text("nothing here") == "nothing here"
    assert masks.data(TOKEN.encode() + b"\xff") == b"***\xff"


def test_it_is_known_as_json_and_repr_write_it() -> None:
    secret = "quo\"te 'n' back\\slash é\ttab"
    masks = _masks(secret)
    for shown in (repr(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        assert "slash" not in masks.text(f"it is {shown}!"), shown


def test_of_a_secret_with_lines_each_line_is_masked() -> None:
    shown = _masks(KEY).text(f"cat key\r\n{KEY}".replace("\n", "\r\n"))
    assert "MII" not in shown
    assert "kqh" not in shown
    assert "}" in shown


def test_what_is_too_short_is_left_alone() -> None:
    assert masks_of({"A": "abc", "B": "", "C": "a\nb\n", "D": "{\n}\n"}) is None
    assert warnings_of({"A": "abc", "B": "a\nb", "C": "abcd", "D": KEY, "E": ""}) == [
        "the secret A is not masked: it is too short",
        "the secret B is not masked: it is too short",
    ]


def test_json_stays_json() -> None:
    masks = _masks('","a":"', "12345678", TOKEN)
    data = json.dumps({"x": TOKEN, TOKEN: [f"<{TOKEN}>", 12345678, None], "q": '","a":"'}).encode()
    assert json.loads(masks.json(data)) == {"x": "***", "***": ["<***>", 12345678, None], "q": "***"}
    assert masks.json(b'{"x": 1}') == b'{"x": 1}'
    assert masks.json(b"no json " + TOKEN.encode()) == b"no json ***"


def test_json_of_what_repr_wrote_is_masked() -> None:
    secret = "both \"kinds\" of 'quotes'"
    data = json.dumps({"message": f"no folder {secret!r}", "lines": [repr([secret])]}).encode()
    assert b"kinds" not in _masks(secret).json(data)


def test_a_secret_in_two_pieces_is_masked_and_nothing_else_waits() -> None:
    mask = StreamMask(_masks(TOKEN))
    assert mask.feed(b"it is sk-li") == b"it is "
    assert mask.feed(b"ve-4242 done\n") == b"*** done\n"
    assert mask.feed(b"sk-li") == b""
    assert mask.feed(b"on\n") == b"sk-lion\n"
    assert mask.feed(b"s") == b""
    assert mask.finish() == b"s"


def test_one_that_begins_as_another_waits_for_the_longer_one() -> None:
    mask = StreamMask(_masks("abcd", "abcdefgh"))
    assert mask.feed(b"abcd") == b""
    assert mask.feed(b"efgh.") == b"***."
    assert mask.feed(b"abcd") + mask.finish() == b"***"
    assert mask.feed(b"abcdx") == b"***x"


def test_at_a_terminal_a_few_letters_are_shown_at_once() -> None:
    mask = StreamMask(_masks(TOKEN), least=4)
    assert [mask.feed(letter.encode()) for letter in "sk-"] == [b"s", b"k", b"-"]
    assert mask.feed(b"l") == b""
    assert mask.feed(b"ive-4242 ") == b"*** "
    assert mask.feed(b"sk") == b"sk"
    assert mask.feed(b"y\r\n") == b"y\r\n"
    assert mask.feed(b"s") == b"s"
    assert mask.finish() == b""


@given(
    st.lists(st.sampled_from([TOKEN, "aaab", "aab-aaab", "sk-", "a", "b", "\n", "-live"]), max_size=12),
    st.lists(st.integers(0, 60), max_size=8),
    st.sampled_from([0, 4]),
)
def test_however_it_is_cut_no_secret_comes_through_and_nothing_else_is_lost(
    parts: list[str], cuts: list[int], least: int
) -> None:
    whole = "".join(parts).encode()
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:end] for start, end in itertools.pairwise(places)]
    masks = _masks(TOKEN, "aaab", "aab-aaab")
    shown = _pieces(StreamMask(masks, least=least), pieces)
    assert not masks.is_in(shown)
    if least == 0:
        assert shown == masks.data(whole)


def test_each_stream_is_masked_for_itself() -> None:
    got = list[tuple[Kind, bytes]]()
    streams = StreamMasks(_masks(TOKEN), lambda kind, data: got.append((kind, data)))
    streams.take(Kind.STDOUT, b"sk-live")
    streams.take(Kind.STDERR, b"error\n")
    streams.take(Kind.STDOUT, b"-4242")
    streams.take(Kind.STDERR, b"sk-")
    streams.finish()
    assert got == [(Kind.STDERR, b"error\n"), (Kind.STDOUT, b"***"), (Kind.STDERR, b"sk-")]


def test_a_line_of_a_log_is_masked_with_its_traceback() -> None:
    formatter = MaskingFormatter("%(message)s", _masks(TOKEN))
    try:
        raise ValueError(TOKEN)
    except ValueError:
        record = logging.LogRecord("name", logging.ERROR, __file__, 1, "of %s", (TOKEN,), sys.exc_info())
    shown = formatter.format(record)
    assert shown.startswith("of ***\n")
    assert TOKEN not in shown


@pytest.mark.parametrize("least", [0, 4])
def test_text_without_secrets_comes_as_it_is(least: int) -> None:
    mask = StreamMask(_masks(TOKEN), least=least)
    assert mask.feed(b"a line\n") == b"a line\n"
    assert mask.feed(b"\xff\xfe no end") == b"\xff\xfe no end"
