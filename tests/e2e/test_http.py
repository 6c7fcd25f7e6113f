"""The guest over bare HTTP, as a program without the SDK meets it."""

from __future__ import annotations

import json
import os
import signal
import socket
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host
from sandcell_container.frames import FrameDecoder, Kind
from sandcell_container.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Generator


class Http:
    """One connection to a sandbox's guest, kept alive."""

    def __init__(self, sandbox: Sandbox) -> None:
        record = the_host().find(sandbox.id).record
        self.headers = {"Authorization": f"Bearer {record.token}"}
        self.connection = HTTPConnection("sandbox", timeout=20)
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.settimeout(20)
        self.connection.sock.connect(record.address.path)

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> HTTPResponse:
        """Send a request, its body as JSON unless it is bytes, and return the answer when its head is there."""
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, sent, {**self.headers, **named})
        return self.connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return the JSON that is answered."""
        return json.loads(self.open(method, path, body, **headers).read())

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def http(sandbox: Sandbox) -> Generator[Http]:
    made = Http(sandbox)
    yield made
    made.close()


def server_sent(text: str) -> list[dict[str, str]]:
    blocks = [block for block in text.split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def test_it_is_well(http: Http) -> None:
    assert http.ask("GET", "/v1/health") == {"status": "ok"}


def test_the_document_has_the_routes(http: Http) -> None:
    document = http.ask("GET", "/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert "/v1/executions" in document["paths"]


def test_a_run_comes_as_frames_with_its_names_in_the_head(http: Http) -> None:
    answer = http.open("POST", "/v1/executions", {"code": "print(1)", "id": "framed"})
    assert answer.headers["Content-Type"] == "application/vnd.sandcell.journal"
    assert (answer.headers["Sandcell-Id"], answer.headers["Sandcell-Context"]) == ("framed", "python")
    assert answer.headers["Sandcell-Epoch"]
    entries = list(FrameDecoder().feed(answer.read()))
    assert [each.kind for each in entries] == [Kind.STARTED, Kind.STDOUT, Kind.ENDED]
    assert [each.seq for each in entries] == [1, 2, 3]
    assert entries[1].data == b"1\n"


def test_people_get_server_sent_events_with_the_cursor_as_id(http: Http) -> None:
    text = (
        http.open("POST", "/v1/executions", {"code": "print('é')"}, Accept="text/event-stream")
        .read()
        .decode()
    )
    events = server_sent(text)
    assert [each["event"] for each in events] == ["started", "stdout", "ended"]
    assert json.loads(events[1]["data"])["text"] == "é\n"
    assert all(each["id"].count(".") >= 2 for each in events)


def test_a_run_may_be_started_and_looked_at_later(http: Http) -> None:
    answer = http.open("POST", "/v1/executions?follow=false", {"code": "2 + 2", "id": "later"})
    assert answer.status == 201
    assert json.loads(answer.read())["id"] == "later"
    events = server_sent(
        http.open("GET", "/v1/executions/later/events", Accept="text/event-stream").read().decode()
    )
    assert events[-1]["event"] == "ended"
    rest = http.open("GET", f"/v1/executions/later/events?cursor={events[0]['id']}&follow=false")
    kinds = [each.kind for each in FrameDecoder().feed(rest.read())]
    assert kinds == [Kind.RESULT_ADDED, Kind.ENDED]
    assert http.ask("GET", "/v1/executions/later")["status"] == "ended"


def test_a_queued_run_has_its_head_at_once(http: Http, sandbox: Sandbox) -> None:
    """Who waits for a turn knows by then that the request was taken."""
    context = sandbox.create_context()
    first = context.start_code("input()")
    answer = http.open("POST", "/v1/executions", {"code": "1", "context": context.id})
    assert answer.status == 200
    first.send_input("go")
    assert answer.read()
    context.delete()


def test_a_repeated_command_is_the_same_command(http: Http, sandbox: Sandbox) -> None:
    body = {"command": "echo x >> once; cat once", "id": "exe-once"}
    first = http.open("POST", "/v1/exec", body).read()
    assert http.open("POST", "/v1/exec", body).read() == first
    assert sandbox.files.read("once") == "x\n"


def test_a_body_without_a_length_is_taken_and_bounded(http: Http) -> None:
    def chunks(size: int) -> Generator[bytes]:
        yield b'{"command": "true'
        for _ in range(size // 2**16):
            yield b" " * 2**16
        yield b'"}'

    def send(size: int) -> HTTPResponse:
        http.connection.request("POST", "/v1/exec", chunks(size), http.headers, encode_chunked=True)
        return http.connection.getresponse()

    taken = send(2**16)
    assert (taken.status, bool(taken.read())) == (200, True)
    refused = send(9 * 2**20)
    assert (refused.status, json.loads(refused.read())["error"]["code"]) == (413, "TOO_LARGE")
    assert http.ask("GET", "/v1/health") == {"status": "ok"}


def test_a_file_has_a_head_a_body_and_an_end(http: Http) -> None:
    put = http.open("PUT", "/v1/files?path=by-http&mode=640", b"\0bytes")
    assert put.status == 201
    assert json.loads(put.read())["mode"] == 0o640
    head = http.open("HEAD", "/v1/files?path=by-http")
    assert (head.status, head.headers["Content-Length"], head.read()) == (200, "6", b"")
    got = http.open("GET", "/v1/files?path=by-http")
    assert (got.headers["Content-Type"], got.read()) == ("application/octet-stream", b"\0bytes")
    assert http.open("DELETE", "/v1/files?path=by-http").read()
    missing = http.open("GET", "/v1/files?path=by-http")
    assert (missing.status, json.loads(missing.read())["error"]["code"]) == (404, "FILE_NOT_FOUND")


def test_an_upload_that_is_refused_hears_why_whatever_its_size(http: Http, sandbox: Sandbox) -> None:
    for size in (1, 2**20):
        refused = http.open("PUT", "/v1/files?path=/usr/no", b"x" * size)
        assert (refused.status, json.loads(refused.read())["error"]["code"]) == (403, "PERMISSION_DENIED")
    with pytest.raises(SandcellError) as caught:
        sandbox.files.write("/usr/no", b"x" * 2**26)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


def test_an_upload_that_breaks_off_changes_nothing(http: Http, sandbox: Sandbox) -> None:
    sandbox.files.write("whole", "before")
    broken = Http(sandbox)
    connection = broken.connection
    connection.putrequest("PUT", "/v1/files?path=whole")
    connection.putheader("Content-Length", "1000")
    for name, value in broken.headers.items():
        connection.putheader(name, value)
    connection.endheaders(b"half")
    broken.close()
    http.ask("POST", "/v1/files/list", {"path": "."})
    assert sandbox.files.read("whole") == "before"


def test_a_file_name_may_be_any_bytes(http: Http, sandbox: Sandbox) -> None:
    made = http.ask("PUT", "/v1/files?path=n%FF%01me", b"x")
    assert made["name"] == "n\udcff\x01me"
    assert sandbox.files.read("n\udcff\x01me") == "x"
    assert "n\udcff\x01me" in {each.name for each in sandbox.files.list()}
    assert sandbox.files.stat("n\udcff\x01me").size == 1
    assert sandbox.exec(["cat", "n\udcff\x01me"]).stdout == "x"
    sandbox.files.remove("n\udcff\x01me")


def test_folders_are_made_and_listed(http: Http) -> None:
    assert http.ask("POST", "/v1/files/mkdir", {"path": "a/b"})["type"] == "directory"
    page = http.ask("POST", "/v1/files/list", {"path": "a", "recursive": True})
    names = [each["relative_path"] for each in page["files"]]
    assert names == ["b"]


def test_news_tell_of_the_end_before_it_comes() -> None:
    with Sandbox.create(engine="local") as doomed:
        http = Http(doomed)
        news = http.open("GET", "/v1/events", Accept="text/event-stream")
        registry = Registry(the_host().config.state_path / "sandboxes")
        guest = next(each.processes[1] for each in registry.entries() if each.record.id == doomed.id)
        os.kill(guest.pid, signal.SIGTERM)
        said = [json.loads(each["data"]) for each in server_sent(news.read().decode())]
        http.close()
        folder = Path(the_host().config.state_path) / "sandboxes" / doomed.id
    assert [each["status"] for each in said] == ["running", "stopping"]
    assert said[-1]["reason"] == "SIGTERM"
    assert not folder.exists()


def test_git_answers_with_json_or_with_a_journal(http: Http, sandbox: Sandbox) -> None:
    sandbox.exec("git init -q -b main here && touch here/new && git init -q --bare there.git", check=True)
    assert http.ask("POST", "/v1/git/status", {"path": "here"})["untracked"] == ["new"]
    answer = http.open("POST", "/v1/git/status", {"path": "/tmp"})
    assert (answer.status, json.loads(answer.read())["error"]["details"]["reason"]) == (502, "repository")
    assert http.ask("POST", "/v1/git/bisect", {})["error"]["code"] == "NOT_FOUND"
    for wrong in (
        {"url": "/workspace/there.git", "depth": 0},
        {"url": "/workspace/there.git", "brnach": "x"},
        {},
    ):
        assert http.ask("POST", "/v1/git/clone", wrong)["error"]["code"] == "INVALID_ARGUMENT"
    clone = {"url": "/workspace/there.git", "path": "cloned"}
    for last in (Kind.ENDED, Kind.ERROR):  # the second finds the folder taken
        entries = list(FrameDecoder().feed(http.open("POST", "/v1/git/clone?progress=true", clone).read()))
        assert entries[0].kind == Kind.STDERR or last is Kind.ERROR
        assert entries[-1].kind == last
