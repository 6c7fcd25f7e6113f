"""Which bytes of a file a request asks for, and what has to hold: pure."""

from __future__ import annotations

import pytest

from sandcell.guest.conditions import Span, condition_of, is_known, line_span, span_of
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.files import Condition


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("", Span(0, 100, is_part=False)),
        ("bytes=0-9", Span(0, 10)),
        ("bytes=90-", Span(90, 100)),
        ("bytes=90-1000", Span(90, 100)),
        ("bytes=-10", Span(90, 100)),
        ("bytes=-1000", Span(0, 100)),
        ("bytes=100-", None),
        ("bytes=-0", None),
        ("bytes=9-0", Span(0, 100, is_part=False)),
        ("bytes=-", Span(0, 100, is_part=False)),
        ("bytes=0-1,5-6", Span(0, 100, is_part=False)),
        ("lines=1-2", Span(0, 100, is_part=False)),
        ("bytes=\u0661-", Span(0, 100, is_part=False)),
    ],
)
def test_a_range_is_read_as_http_has_it(header: str, span: Span | None) -> None:
    assert span_of({"Range": header} if header else {}, 100, "tag") == span


def test_a_range_of_another_content_is_all_of_it() -> None:
    headers = {"Range": "bytes=0-9", "If-Range": '"old"'}
    assert span_of(headers, 100, "new") == Span(0, 100, is_part=False)
    assert span_of(headers, 100, "old") == Span(0, 10)


@pytest.mark.parametrize(
    ("headers", "condition"),
    [
        ({}, Condition()),
        ({"If-Match": '"a"'}, Condition(tags=("a",))),
        ({"If-Match": '"a", W/"b" ,"c"'}, Condition(tags=("a", "c"))),
        ({"If-Match": "*"}, Condition(tags=("*",))),
        ({"If-None-Match": "*"}, Condition(is_new=True)),
    ],
)
def test_conditions_are_read(headers: dict[str, str], condition: Condition) -> None:
    assert condition_of(headers) == condition


@pytest.mark.parametrize("headers", [{"If-Match": "a"}, {"If-Match": '"a" "b'}, {"If-None-Match": '"a"'}])
def test_a_condition_that_cannot_be_heeded_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(SandcellError) as caught:
        condition_of(headers)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_what_is_known_is_not_sent_again() -> None:
    assert not is_known({}, "a")
    assert is_known({"If-None-Match": 'W/"a", "b"'}, "a")
    assert not is_known({"If-None-Match": '"b"'}, "a")


@pytest.mark.parametrize(("text", "lines"), [("1-", (1, None)), ("3-4", (3, 2)), ("3-2", (3, 0))])
def test_lines_are_read(text: str, lines: tuple[int, int | None]) -> None:
    assert line_span(text) == lines


@pytest.mark.parametrize("text", ["", "0-1", "5-1", "a-b", "1", "-3", "1-99999999999999999999999"])
def test_what_says_no_lines_is_refused(text: str) -> None:
    with pytest.raises(SandcellError):
        line_span(text)
