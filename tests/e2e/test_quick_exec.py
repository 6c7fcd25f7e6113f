"""The short cut of the usual command says what the handler says, and leaves the connection as a handler would."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sandcell.client.host import the_host
from sandcell.client.http1 import AnswerReader, Head, Mark
from sandcell.client.protocol import Address, Conversation, Request
from sandcell_container.frames import FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell import Sandbox

LIKE_OTHERS = b"X-Request-Id: mine\r\n"  # no request of our client's has it, so such a one goes the long way


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kinds(self) -> list[int]:
        return [entry.kind for entry in FrameDecoder().feed(self.body)]

    @property
    def output(self) -> bytes:
        return b"".join(e.data for e in FrameDecoder().feed(self.body) if e.kind == Kind.STDOUT)


class Line:
    """A connection to a sandbox's guest, and what is said on it byte for byte."""

    def __init__(self, sandbox: Sandbox) -> None:
        record = the_host().find(sandbox.id).record
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(record.address.path)
        self._talk = Conversation(Address(path=record.address.path), record.token)
        self._reader = AnswerReader()
        self._heard = b""

    def request(self, body: Any, more: bytes = b"") -> bytes:
        """Return a request as our client sends it, with `more` in its head."""
        encoded = json.dumps(body).encode()
        sent = self._talk.begin(Request(method="POST", path="/v1/exec", body=encoded))
        return sent.replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n", 1)

    def hear(self) -> bytes:
        """Return what has come, which is the beginning of the next answer."""
        self._heard = self.sock.recv(2**16)
        return self._heard

    def answer(self) -> Answer:
        self._reader.begin("POST")
        if self._heard:
            self._reader.feed(self._heard)
            self._heard = b""
        head, body = Head(0, {}), b""
        while (part := self._reader.next_part()) is not Mark.END:
            if part is Mark.NEED_DATA:
                self._reader.feed(self.sock.recv(2**16))
            elif isinstance(part, bytes):
                body += part
            else:
                head = part
        return Answer(head.status, head.headers, body)

    def ask(self, body: Any, more: bytes = b"") -> Answer:
        self.sock.sendall(self.request(body, more))
        return self.answer()


@pytest.fixture
def line(sandbox: Sandbox) -> Generator[Line]:
    made = Line(sandbox)
    yield made
    made.sock.close()


def test_both_ways_say_the_same(line: Line) -> None:
    command = {"command": r"printf 'a\0\377'; echo err >&2; exit 3"}
    short, long = line.ask(command), line.ask(command, LIKE_OTHERS)
    assert long.headers["x-request-id"] == "mine"
    assert short.headers["x-request-id"] not in {"", "mine"}
    assert set(long.headers) - set(short.headers) == {"date"}
    for name in ("content-type", "sandcell-epoch"):
        assert short.headers[name] == long.headers[name]
    assert (
        (short.status, short.kinds)
        == (long.status, long.kinds)
        == (200, [Kind.STDOUT, Kind.STDERR, Kind.ENDED])
    )
    assert short.output == long.output == b"a\0\xff"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"command": "true", "cwd": "/missing"}, 400, "CWD_NOT_FOUND"),
        ({"command": ["no-such-program"]}, 400, "INVALID_ARGUMENT"),
        ({"command": "true", "timeout": 0}, 400, "INVALID_ARGUMENT"),
        ({"command": "true", "id": "NO"}, 400, "INVALID_NAME"),
        ({"command": "true", "langauge": "x"}, 400, "INVALID_ARGUMENT"),
        ({}, 400, "INVALID_ARGUMENT"),
    ],
)
def test_a_refusal_is_the_same_and_the_connection_stays(
    line: Line, body: Any, status: int, code: str
) -> None:
    for more in (b"", LIKE_OTHERS):
        refused = line.ask(body, more)
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (status, code)
    assert line.ask({"command": "echo on"}).output == b"on\n"


def test_the_token_is_asked_for_on_either_way(line: Line) -> None:
    good = line.request({"command": "true"})
    at = good.index(b"Bearer ") + len(b"Bearer ")
    line.sock.sendall(good[:at] + (b"b" if good[at : at + 1] == b"a" else b"a") + good[at + 1 :])
    assert json.loads(line.answer().body)["error"]["code"] == "UNAUTHENTICATED"


def test_a_command_that_takes_long_has_its_head_soon(line: Line, sandbox: Sandbox) -> None:
    sandbox.exec("rm -f go")
    line.sock.sendall(line.request({"command": "until test -e go; do sleep 0.01; done; echo done"}))
    head = line.hear()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"chunked" in head
    sandbox.files.write("go", "")
    assert line.answer().output == b"done\n"
    assert line.ask({"command": "echo on"}).output == b"on\n"


def test_a_long_output_comes_whole_before_and_after_the_head(line: Line) -> None:
    for pause in ("", "sleep 0.2; "):
        done = line.ask({"command": f"{pause}head -c 3000000 /dev/zero", "max_output": 2**22})
        assert done.output == bytes(3_000_000)


def test_requests_one_behind_the_other_are_answered_in_their_order(line: Line) -> None:
    asked = [line.request({"command": f"sleep 0.{9 - n}; echo {n}"}) for n in (6, 7, 8)]
    line.sock.sendall(asked[0])
    assert line.hear().startswith(b"HTTP/1.1 200")  # it runs, and its head has come
    line.sock.sendall(asked[1] + asked[2])
    assert [line.answer().output for _ in asked] == [b"6\n", b"7\n", b"8\n"]


def test_one_that_sends_on_without_waiting_is_not_listened_to_for_ever(line: Line) -> None:
    line.sock.sendall(line.request({"command": "sleep 30"}))
    assert line.sock.recv(2**16)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        while True:
            line.sock.sendall(b"x" * 2**14)


def test_a_command_whose_client_hangs_up_is_ended(line: Line, sandbox: Sandbox) -> None:
    line.sock.sendall(line.request({"command": "sleep 5977"}))
    assert sandbox.exec("until pgrep -fx 'sleep 5977'; do sleep 0.01; done", timeout=10).ok
    line.sock.close()
    assert sandbox.exec("while pgrep -fx 'sleep 5977'; do sleep 0.01; done", timeout=10).ok
