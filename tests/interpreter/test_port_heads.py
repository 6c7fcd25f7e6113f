"""Heads as they are passed on: what is dropped, what is told anew, what is refused."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.ports.heads import BadHead, Via, read_answer, read_request

VIA = Via(port=8000, origin="http://127.9.9.9:555", client="127.0.0.1")


def request(*lines: str, first: str = "GET /a?b HTTP/1.1") -> bytes:
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1")


def answer(*lines: str, first: str = "HTTP/1.1 200 OK") -> bytes:
    return request(*lines, first=first)


def passed(*lines: str, via: Via = VIA) -> list[str]:
    return read_request(request(*lines)).passed_on(via, "/a?b").decode("latin-1").split("\r\n")


def test_what_is_of_one_connection_is_not_passed_on() -> None:
    lines = passed(
        "Connection: close, X-Hop", "X-Hop: 1", "Keep-Alive: 5", "TE: trailers", "Upgrade: h2c", "X-Kept: 1"
    )
    assert [each.partition(":")[0] for each in lines[1:-2]] == [
        *("Host", "x-kept"),
        *("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "connection"),
    ]
    assert lines[0] == "GET /a?b HTTP/1.1" and lines[-3] == "connection: close"


def test_an_upgrade_is_passed_on() -> None:
    lines = passed("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a")
    assert (
        "connection: Upgrade" in lines and "upgrade: websocket" in lines and "sec-websocket-key: a" in lines
    )
    head = read_answer(answer("Upgrade: websocket", "Connection: Upgrade", first="HTTP/1.1 101 Switching"))
    assert (
        head.passed_on(VIA) == b"HTTP/1.1 101 Switching\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("http://127.9.9.9:555", "http://localhost:8000"),
        ("http://127.9.9.9:5555", "http://127.9.9.9:5555"),
        ("http://127.9.9.9:555.example.org", "http://127.9.9.9:555.example.org"),
        ("https://example.org", "https://example.org"),
        ("null", "null"),
    ],
)
def test_its_own_origin_is_the_apps_own(given: str, told: str) -> None:
    assert f"origin: {told}" in passed(f"Origin: {given}")


def test_no_header_holds_the_secret() -> None:
    via = Via(port=8000, origin="http://a", secret="geheim")
    lines = passed(
        "Referer: http://a/geheim/x", "X: geheim", "Cookie: sandcell-port-1=geheim; a=geheimnis", via=via
    )
    assert not [each for each in lines if "geheim" in each]


def test_no_cookie_of_ours_goes_in_or_comes_out() -> None:
    assert "cookie: a=1; b=2" in passed("Cookie: a=1; sandcell-port-9=x; b=2")
    assert not [each for each in passed("Cookie: sandcell-port-9=x") if each.startswith("cookie")]
    head = read_answer(answer("Set-Cookie: sandcell-port-9=x", "Set-Cookie: a=1"))
    assert head.passed_on(VIA).count(b"set-cookie") == 1


@pytest.mark.parametrize(
    ("location", "placed"),
    [
        ("/x", "/pre/x"),
        ("x", "x"),
        ("http://localhost:8000/x?y", "/pre/x?y"),
        ("http://localhost:8000", "/pre/"),
        ("http://localhost:80001/x", "http://localhost:80001/x"),
        ("//example.org/x", "//example.org/x"),
        ("https://example.org/", "https://example.org/"),
    ],
)
def test_a_location_leads_back(location: str, placed: str) -> None:
    via = Via(port=8000, origin="http://a", prefix="/pre")
    assert f"location: {placed}\r\n".encode() in read_answer(answer(f"Location: {location}")).passed_on(via)


@pytest.mark.parametrize(
    "data",
    [
        request(first="GET / HTTP/2"),
        request(first="GET http://a/ HTTP/1.1"),
        request(first="GET /a b HTTP/1.1"),
        request("A : 1"),
        request("A: 1", " B"),
        request("A: 1\nB: 2"),
        request("A: \0"),
        request().replace(b"\r", b""),
    ],
)
def test_what_two_readers_may_read_in_two_ways_is_refused(data: bytes) -> None:
    with pytest.raises(BadHead):
        read_request(data)


def test_two_lengths_are_refused() -> None:
    head = read_request(request("Content-Length: 1", "Content-Length: 2"))
    with pytest.raises(BadHead):
        head.body_headers()


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_make_more_than_one_request(value: bytes, path: bytes) -> None:
    """What is taken is one request to h11, too, which is what an app is likely to read like."""
    data = b"POST /" + path + b" HTTP/1.1\r\nHost: a\r\nX: " + value + b"\r\nContent-Length: 0\r\n\r\n"
    try:
        head = read_request(data)
    except BadHead:
        return
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(head.passed_on(VIA, head.target))
    try:
        assert isinstance(reader.next_event(), h11.Request)
        assert isinstance(reader.next_event(), h11.EndOfMessage)
    except h11.RemoteProtocolError:
        return  # it is stricter about some bytes
    assert reader.trailing_data == (b"", False)
