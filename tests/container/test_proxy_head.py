"""What a proxy is asked, and what it answers: pure."""

from __future__ import annotations

import json
import random
import re

import pytest

from sandcell_container.errors import ErrorCode
from sandcell_container.network import normal_host
from sandcell_container.proxy_head import Refusal, Wish, not_allowed, not_public, read_wish


def test_a_tunnel_has_a_host_and_a_port() -> None:
    assert read_wish(b"CONNECT PyPI.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\n\r\n") == Wish("pypi.org", 443)
    assert read_wish(b"CONNECT [::1]:22 HTTP/1.0\r\n\r\n") == Wish("::1", 22)


@pytest.mark.parametrize("host", [b"A.ORG", b"a.org.", b"a.Org."])
def test_a_name_is_the_same_in_whatever_letters_and_with_its_last_dot(host: bytes) -> None:
    assert read_wish(b"CONNECT " + host + b":443 HTTP/1.1\r\n\r\n") == Wish("a.org", 443)
    assert read_wish(b"GET http://" + host + b"/ HTTP/1.1\r\n\r\n")[:2] == ("a.org", 80)


def test_an_address_is_the_same_however_it_is_shortened() -> None:
    wish = read_wish(b"CONNECT [::FFFF:7f00:1]:22 HTTP/1.1\r\n\r\n")
    assert wish == read_wish(b"CONNECT [0:0:0:0:0:ffff:127.0.0.1]:22 HTTP/1.1\r\n\r\n")


def test_a_request_is_passed_on_as_its_server_expects_it() -> None:
    wish = read_wish(
        b"POST http://a.org:8080/p?q=1 HTTP/1.1\r\nHost: elsewhere.org\r\nProxy-Authorization: Basic x\r\n"
        b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\nContent-Length: 2\r\nAccept: */*\r\n\r\n"
    )
    assert wish[:2] == ("a.org", 8080)
    assert wish.head == (
        b"POST /p?q=1 HTTP/1.1\r\nHost: a.org:8080\r\ncontent-length: 2\r\naccept: */*\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(("target", "path"), [(b"", b"/"), (b"?q", b"/?q"), (b"/", b"/")])
def test_a_request_without_a_path_asks_for_the_root(target: bytes, path: bytes) -> None:
    wish = read_wish(b"GET http://a.org" + target + b" HTTP/1.1\r\n\r\n")
    assert wish.port == 80
    assert wish.head.startswith(b"GET " + path + b" HTTP/1.1\r\nHost: a.org\r\n")


def test_a_websocket_stays_one() -> None:
    wish = read_wish(b"GET http://a.org/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert b"\r\nupgrade: websocket\r\nConnection: upgrade\r\n\r\n" in wish.head


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n",
        b"GET https://a.org/ HTTP/1.1\r\n\r\n",
        b"GET http://user@a.org/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org\\@b.org/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org#@b.org/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org:99999/ HTTP/1.1\r\n\r\n",
        b"GET http://127.1/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org/ HTTP/2\r\n\r\n",
        b"GET http://a.org/ HTTP/1.1\r\n folded: 1\r\n\r\n",
        b"GET http://a.org/ HTTP/1.1\r\nA : 1\r\n\r\n",
        b"GET http://a.org/ HTTP/1.1\nA: 1\r\n\r\n",
        b"CONNECT http://a.org/ HTTP/1.1\r\n\r\n",
        b"CONNECT a.org HTTP/1.1\r\n\r\n",
        b"CONNECT a.org:0 HTTP/1.1\r\n\r\n",
        b"CONNECT 0x7f000001:80 HTTP/1.1\r\n\r\n",
        b"CONNECT 2130706433:80 HTTP/1.1\r\n\r\n",
        b"CONNECT 0177.0.0.1:80 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1.:80 HTTP/1.1\r\n\r\n",
        b"CONNECT user@a.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org@b.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org:443:22 HTTP/1.1\r\n\r\n",
        b"CONNECT a..org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org..:443 HTTP/1.1\r\n\r\n",
        b"CONNECT .a.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT *.a.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org:-1 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org: 443 HTTP/1.1\r\n\r\n",
        b"CONNECT [fe80::1%25eth0]:22 HTTP/1.1\r\n\r\n",
        b"CONNECT [::127.1]:22 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org\0.b.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.org%00.b.org:443 HTTP/1.1\r\n\r\n",
        "CONNECT b\u00fccher.de:443 HTTP/1.1\r\n\r\n".encode(),
        "CONNECT \uff41.org:443 HTTP/1.1\r\n\r\n".encode(),  # a wide letter: IDNA makes the usual one of it
        "CONNECT a\u3002org:443 HTTP/1.1\r\n\r\n".encode(),  # another full stop
        "CONNECT 127.0.0.\u0661:80 HTTP/1.1\r\n\r\n".encode(),  # a digit of Arabic
        b"GET http://a%2eorg/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org:80:80/ HTTP/1.1\r\n\r\n",
        b"GET http:///a.org/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org/ HTTP/1.1 \r\n\r\n",
        b"GET  http://a.org/ HTTP/1.1\r\n\r\n",
        b"GET http://a.org/ x HTTP/1.1\r\n\r\n",
        b"GET ftp://a.org/ HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"\x05\x01\x00\r\n\r\n",
    ],
)
def test_what_two_readers_might_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read_wish(head)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("refusal", "named", "item"),
    [
        (not_allowed("a.org", 443), "a.org:443", '"a.org"'),
        (not_allowed("a.org", 22), "a.org:22", '"a.org:22"'),
        (not_allowed("::1", 22), "[::1]:22", '"[::1]:22"'),
        (not_public("a.org", 443, "10.0.0.1"), "10.0.0.1", '"10.0.0.1"'),
    ],
)
def test_a_refusal_names_the_host_and_how_to_allow_it(refusal: Refusal, named: str, item: str) -> None:
    head, _, body = refusal.answer().partition(b"\r\n\r\n")
    line = head.split(b"\r\n")[0].decode()
    problem = json.loads(body)["error"]
    assert line.startswith("HTTP/1.1 403 Forbidden: HOST_NOT_ALLOWED: ")
    assert problem["code"] == ErrorCode.HOST_NOT_ALLOWED
    for words in (line, problem["message"] + problem["hint"]):
        assert named in words
        assert item in words
    assert f"Content-Length: {len(body)}".encode() in head


def test_whatever_comes_is_refused_or_leads_to_the_one_host_that_is_checked() -> None:
    chance = random.Random(11)
    heads = (
        b"GET http://a.org:8080/p?q HTTP/1.1\r\nHost: b.org\r\nConnection: x, keep-alive\r\nX: 1\r\n\r\n",
        b"POST http://[2001:db8::1]/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\nProxy-X: 1\r\n\r\n",
        b"CONNECT a.org:443 HTTP/1.1\r\nHost: a.org\r\n\r\n",
    )
    pieces = (
        b"\r\n",
        b"\n",
        b"\0",
        b"@",
        b"#",
        b"\\",
        b" ",
        b"\t",
        b"Host: c.org\r\n",
        b"%2e",
        b"/",
        b":",
        b"..",
    )
    accepted = 0
    for _ in range(5000):
        head = bytearray(chance.choice(heads))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(head))
            head[at : at + chance.randrange(3)] = chance.choice(pieces)
        try:
            wish = read_wish(bytes(head))
        except Refusal:
            continue
        accepted += 1
        assert normal_host(wish.host) == wish.host
        if wish.head:
            lines = wish.head.removesuffix(b"\r\n\r\n").split(b"\r\n")
            (host,) = (line for line in lines if line.lower().startswith(b"host:"))
            named = host.removeprefix(b"Host: ").decode()
            assert normal_host(re.sub(r":[0-9]+$", "", named)) == wish.host
            assert not re.search(rb"[\r\n\0]", b"".join(lines))
    assert accepted > 100
