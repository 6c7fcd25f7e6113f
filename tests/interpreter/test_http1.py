"""The reader of answers beside h11, which is known to be right, and what it refuses."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.client.http1 import AnswerReader, Cut, Head, Mark

names = st.from_regex(r"X-[A-Za-z0-9_~!]{1,12}", fullmatch=True)
values = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
bodies = st.lists(st.binary(max_size=50), max_size=5)


def read(pieces: list[bytes], *, method: str = "GET", ended: bool = False) -> list[Head | bytes | Mark]:
    """Return the parts of one answer that comes in `pieces`."""
    reader, found = AnswerReader(), list[Head | bytes | Mark]()
    reader.begin(method)
    for piece in [*pieces, *([b""] if ended else [])]:
        reader.feed(piece)
        while (part := reader.next_part()) is not Mark.NEED_DATA:
            found.append(part)
            if part is Mark.END:
                return found
    return found


def by_h11(sent: bytes, *, method: str, ended: bool) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body as h11 reads them; raises h11.RemoteProtocolError."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(sent)
    if ended:
        connection.receive_data(b"")
    status, headers, body = 0, dict[str, str](), b""
    while True:
        event: Any = connection.next_event()
        match event:
            case h11.Response():
                status = event.status_code
                for name, value in event.headers:
                    key, text = name.decode(), value.decode("latin-1")
                    headers[key] = f"{headers[key]}, {text}" if key in headers else text
            case h11.Data():
                body += bytes(event.data)
            case h11.EndOfMessage():
                return status, headers, body
            case h11.InformationalResponse():
                pass
            case _:
                raise h11.RemoteProtocolError("it is not whole")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bool]:
    """An answer as servers send it, and whether the connection ends behind it."""
    status = draw(st.sampled_from([200, 201, 204, 304, 404, 500]))
    early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    pairs = draw(st.lists(st.tuples(names, values), max_size=4))
    pieces = draw(bodies)
    form = draw(st.sampled_from(["length", "chunked", "end"]))
    head = f"HTTP/1.1 {status} Said\r\n" + "".join(f"{name}: {value}\r\n" for name, value in pairs)
    body = b"".join(pieces)
    if status in {204, 304}:
        return early + head.encode() + b"\r\n", False
    if form == "length":
        return early + head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body, False
    if form == "end":
        return early + head.encode() + b"\r\n" + body, True
    chunks = b"".join(b"%x;x=y\r\n%b\r\n" % (len(each), each) for each in pieces if each)
    trailers = draw(st.sampled_from([b"", b"X-T: 1\r\n"]))
    return (
        early
        + head.encode()
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + chunks
        + b"0\r\n"
        + trailers
        + b"\r\n",
        False,
    )


@given(answers(), st.lists(st.integers(0, 500), max_size=8))
def test_it_reads_what_h11_reads_whatever_the_pieces_are(
    answer: tuple[bytes, bool], places: list[int]
) -> None:
    sent, ended = answer
    head, *parts = read(cut(sent, places), ended=ended)
    status, headers, body = by_h11(sent, method="GET", ended=ended)
    assert head == Head(status, headers)
    assert parts[-1] is Mark.END
    assert b"".join(part for part in parts if isinstance(part, bytes)) == body


@given(answers(), st.integers(1, 200))
def test_an_answer_without_its_end_is_never_taken_for_whole(answer: tuple[bytes, bool], missing: int) -> None:
    sent, ended = answer
    if ended:
        return  # such an answer is whole wherever it ends
    short = sent[: max(len(sent) - missing, 0)]
    with pytest.raises(Cut):
        read([short], ended=True)


def framed(head: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body


noise = st.binary(max_size=80) | st.builds(framed, st.binary(max_size=60), st.binary(max_size=30))


@given(noise)
def test_what_it_takes_h11_takes_too(sent: bytes) -> None:
    try:
        found = read([sent], ended=True)
    except Cut:
        return
    by_h11(sent, method="GET", ended=True)
    assert found[-1] is Mark.END


HEAD = b"HTTP/1.1 200 OK\r\n"
REFUSED = {
    "both lengths": HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a length that is none": HEAD + b"Content-Length: +1\r\n\r\nx",
    "a length with a sign of another script": HEAD + "Content-Length: ²\r\n\r\nx".encode("latin-1"),
    "a coding that is not ours": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a line that goes on": HEAD + b"A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a blank before the colon": HEAD + b"A : b\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
    "a size that is none": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
    "no end of a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
    "another version": b"HTTP/2.0 200 OK\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a head without end": HEAD + b"A: " + b"x" * 2**16,
    "a size without end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 2**12,
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_be_read_in_two_ways_is_refused(case: str) -> None:
    with pytest.raises(Cut):
        read([REFUSED[case]])


def test_the_answer_to_head_has_no_body() -> None:
    parts = read([HEAD + b"Content-Length: 5\r\n\r\n"], method="HEAD")
    assert parts == [Head(200, {"content-length": "5"}), Mark.END]


@pytest.mark.parametrize(
    ("sent", "stays"),
    [
        (HEAD + b"Content-Length: 0\r\n\r\n", True),
        (HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_it_knows_whether_the_connection_stays(sent: bytes, stays: bool) -> None:  # noqa: FBT001 -- a parameter
    reader = AnswerReader()
    reader.begin("GET")
    reader.feed(sent)
    while reader.next_part() is not Mark.END:
        continue
    assert (reader.stays, reader.is_done) == (stays, True)


def test_bytes_behind_the_answer_are_seen() -> None:
    reader = AnswerReader()
    reader.begin("GET")
    reader.feed(HEAD + b"Content-Length: 0\r\n\r\nHTTP/1.1")
    while reader.next_part() is not Mark.END:
        continue
    assert not reader.is_done


@pytest.mark.parametrize(
    ("headers", "sent", "body"),
    [
        ({}, b"behind it", b""),
        ({"content-length": "3"}, b"abcbehind it", b"abc"),
        ({"transfer-encoding": "chunked"}, b"2\r\nab\r\n0\r\n\r\nbehind it", b"ab"),
    ],
)
def test_the_body_of_a_request_ends_where_its_head_says(
    headers: dict[str, str], sent: bytes, body: bytes
) -> None:
    reader = AnswerReader()
    reader.begin_body(headers)
    reader.feed(sent)
    parts = list[bytes]()
    while isinstance(part := reader.next_part(), bytes):
        parts.append(part)
    assert (part, b"".join(parts), reader.is_done) == (Mark.END, body, False)


def test_the_body_of_a_request_has_one_length() -> None:
    with pytest.raises(Cut):
        AnswerReader().begin_body({"content-length": "3", "transfer-encoding": "chunked"})


def test_behind_an_upgrade_that_was_asked_for_all_is_data() -> None:
    sent = b"HTTP/1.1 101 Switching\r\nUpgrade: tcp\r\n\r\nany bytes"
    reader = AnswerReader()
    reader.begin("POST", may_upgrade=True)
    reader.feed(sent)
    assert reader.next_part() == Head(101, {"upgrade": "tcp"})
    assert (reader.next_part(), reader.stays) == (b"any bytes", False)
    reader.begin("POST")
    reader.feed(sent)
    with pytest.raises(Cut):
        reader.next_part()
