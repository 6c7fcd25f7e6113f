"""The client's machine of bytes, without a socket."""

from __future__ import annotations

import json

import pytest

from sandcell.client.protocol import (
    Address,
    Conversation,
    Cut,
    Head,
    Mark,
    Request,
    decode_body,
    error_of,
    gone,
    path_of,
    unreachable,
)
from sandcell_container.end import End
from sandcell_container.errors import CODES, ErrorCode, SandcellError, error

HERE = Address(path="/tmp/guest.sock")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


def talk() -> Conversation:
    return Conversation(HERE, "secret")


def parts_of(conversation: Conversation) -> list[object]:
    found: list[object] = []
    while (part := conversation.next_part()) is not Mark.NEED_DATA:
        found.append(part)
        if part is Mark.END:
            break
    return found


def test_a_request_is_one_piece_of_bytes_with_its_token() -> None:
    sent = talk().begin(Request(method="POST", path="/v1/exec", body=b"{}", query={"follow": "false"}))
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/exec?follow=false HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in head
    assert b"Content-Length: 2" in head
    assert body == b"{}"


def test_a_path_quotes_what_it_is_given() -> None:
    assert path_of("contexts", "a/b c") == "/v1/contexts/a%2Fb%20c"


def test_an_answer_comes_in_parts_whatever_the_chunks_are() -> None:
    conversation = talk()
    conversation.begin(Request(method="GET", path="/v1/health"))
    found: list[object] = []
    for at in range(len(ANSWER)):
        conversation.feed(ANSWER[at : at + 1])
        found += parts_of(conversation)
    assert found[0] == Head(200, {"content-length": "4"})
    assert b"".join(part for part in found if isinstance(part, bytes)) == b"body"
    assert found[-1] is Mark.END


def test_a_connection_serves_again_after_a_whole_answer() -> None:
    conversation = talk()
    for _ in range(2):
        conversation.begin(Request(method="GET", path="/v1/health"))
        conversation.feed(ANSWER)
        parts_of(conversation)
        assert conversation.reusable


def test_a_connection_that_the_guest_wants_closed_does_not_serve_again() -> None:
    conversation = talk()
    conversation.begin(Request(method="GET", path="/v1/health"))
    conversation.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    parts_of(conversation)
    assert not conversation.reusable


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbo"])
def test_an_answer_that_breaks_off_is_cut(said: bytes) -> None:
    conversation = talk()
    conversation.begin(Request(method="GET", path="/v1/health"))
    if said:
        conversation.feed(said)
    conversation.feed(b"")
    with pytest.raises(Cut):
        parts_of(conversation)


def test_what_is_no_http_is_cut() -> None:
    conversation = talk()
    conversation.begin(Request(method="GET", path="/v1/health"))
    conversation.feed(b"hello\r\n\r\n")
    with pytest.raises(Cut):
        parts_of(conversation)


def test_a_streamed_body_goes_out_in_chunks() -> None:
    conversation = talk()
    head = conversation.begin(Request(method="PUT", path="/v1/files", streamed=True))
    assert b"Transfer-Encoding: chunked" in head
    assert conversation.chunk(b"abc") == b"3\r\nabc\r\n"
    assert conversation.end() == b"0\r\n\r\n"


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_travels_whole(code: ErrorCode) -> None:
    sent = error(code, "said", hint="do", details={"field": "x"}, retryable=True)
    found = error_of(CODES[code].status, json.dumps(sent.to_dict()).encode())
    assert type(found) is type(sent)
    assert found.to_dict() == sent.to_dict()


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": {"code": "NEW_ONE"}}', b"\xff"])
def test_an_error_in_another_form_is_internal_and_shows_it(body: bytes) -> None:
    found = error_of(502, body)
    assert found.code is ErrorCode.INTERNAL
    assert found.details["status"] == 502


def test_an_answer_that_does_not_fit_is_internal() -> None:
    with pytest.raises(SandcellError) as caught:
        decode_body(b'{"id": 1}', dict[str, str])
    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(cause="killed"), "it was stopped"),
        (End(cause="killed", who="user"), "by the user"),
        (End(cause="killed", signal=9), "signal 9 from outside"),
        (End(cause="signaled", signal=9), "signal 9 from outside"),
        (End(cause="oom", signal=9), "no memory left"),
        (End(cause="lost"), "without a word"),
    ],
)
def test_an_end_is_told_by_its_cause(end: End, words: str) -> None:
    assert words in gone(HERE, admitted=False, end=end).message


def test_who_cannot_be_reached_says_whether_the_request_was_taken() -> None:
    assert gone(HERE, admitted=False).code is ErrorCode.SANDBOX_GONE
    assert unreachable(HERE, "why", admitted="unknown").details == {"admitted": "unknown"}
