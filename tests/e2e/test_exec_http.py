"""A command whose standard input is in the body, over bare HTTP: what other clients than ours send and hear."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any

import pytest

from sandcell.client.host import the_host
from sandcell.job_bodies import EXEC_TYPE, STDIN_AFTER, before_stdin
from sandcell_container.frames import FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from sandcell import Sandbox


class Http:
    def __init__(self, sandbox: Sandbox) -> None:
        record = the_host().find(sandbox.id).record
        self.headers = {"Authorization": f"Bearer {record.token}", "Content-Type": EXEC_TYPE}
        self.connection = HTTPConnection("sandbox", timeout=20)
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.settimeout(20)
        self.connection.sock.connect(record.address.path)

    def send(self, body: bytes | Iterable[bytes]) -> HTTPResponse:
        """Send a body, by its length or in chunks, and return the answer when its head is there."""
        chunked = not isinstance(body, bytes)
        self.connection.request("POST", "/v1/exec", body, self.headers, encode_chunked=chunked)
        return self.connection.getresponse()


@pytest.fixture
def http(sandbox: Sandbox) -> Generator[Http]:
    made = Http(sandbox)
    yield made
    made.connection.close()


def before(**body: Any) -> bytes:
    return before_stdin(json.dumps(body).encode())


def output_of(answer: HTTPResponse) -> bytes:
    assert answer.status == 200
    entries = list(FrameDecoder().feed(answer.read()))
    assert entries[-1].kind == Kind.ENDED
    return b"".join(entry.data for entry in entries if entry.kind == Kind.STDOUT)


def code_of(answer: HTTPResponse) -> tuple[int, str]:
    return answer.status, json.loads(answer.read())["error"]["code"]


def test_a_body_with_a_length_has_its_input_behind_the_json(http: Http) -> None:
    for _ in range(2):  # and the connection stays
        assert output_of(http.send(before(command="cat; echo") + b"in\0\xff")) == b"in\0\xff\n"
    assert output_of(http.send(before(command="cat"))) == b""


def test_pieces_may_be_cut_anywhere(http: Http) -> None:
    whole = before(command="cat") + bytes(range(256))
    pieces = (whole[at : at + 1] for at in range(len(whole)))
    assert output_of(http.send(pieces)) == bytes(range(256))


def test_a_refusal_is_heard_by_who_sends_all_before_it_reads(http: Http) -> None:
    body = before(command="cat", cwd="/missing") + bytes(3_000_000)
    assert code_of(http.send(body)) == (400, "CWD_NOT_FOUND")


def test_so_is_the_answer_of_a_command_that_does_not_read(http: Http) -> None:
    assert output_of(http.send(before(command="echo done") + bytes(3_000_000))) == b"done\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "INVALID_ARGUMENT")),
        (b"\0\0", (400, "INVALID_ARGUMENT")),
        (before(command="cat")[:-1], (400, "INVALID_ARGUMENT")),
        (before_stdin(b"{"), (400, "INVALID_JSON")),
        (before(command="cat", stdin="aW4=") + b"more", (400, "INVALID_ARGUMENT")),
        (STDIN_AFTER.pack(2**24) + b" " * 100, (413, "TOO_LARGE")),
    ],
)
def test_what_is_no_such_body_is_refused(http: Http, body: bytes, expected: tuple[int, str]) -> None:
    assert code_of(http.send(body)) == expected


def test_a_repeated_command_is_the_same_whatever_is_behind_its_json(http: Http) -> None:
    first = output_of(http.send(before(command="cat", id="exe-fed") + b"first"))
    assert first == b"first"
    assert output_of(http.send(before(command="cat", id="exe-fed") + b"second")) == b"first"


def test_a_command_ends_whose_client_goes_as_soon_as_it_has_asked(sandbox: Sandbox) -> None:
    """Before the guest has begun to serve it: then there was nothing yet that could be broken off."""
    for _ in range(3):
        made = Http(sandbox)
        made.connection.putrequest("POST", "/v1/exec")
        for name, value in made.headers.items():
            made.connection.putheader(name, value)
        made.connection.putheader("Content-Length", "5000000")
        made.connection.endheaders()
        made.connection.send(before(command="cat >/dev/null; sleep 1000") + b"x")
        made.connection.close()
    left = sandbox.exec("while pgrep -x cat > /dev/null; do sleep 0.02; done", timeout=20)
    assert left.ok
