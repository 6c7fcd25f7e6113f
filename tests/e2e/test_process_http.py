"""Processes over bare HTTP, as a program without the SDK meets them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.e2e.test_http import Http, server_sent

from sandcell_container.frames import Entry, FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell import Sandbox

SERVER = "import http.server; http.server.HTTPServer(('127.0.0.1', {port}), http.server.SimpleHTTPRequestHandler).serve_forever()"


@pytest.fixture
def http(sandbox: Sandbox) -> Generator[Http]:
    made = Http(sandbox)
    yield made
    made.ask("DELETE", "/v1/processes")
    made.ask("DELETE", "/v1/processes?status=ended")
    made.close()


def start(http: Http, command: str | list[str], **fields: Any) -> dict[str, Any]:
    answer = http.open("POST", "/v1/processes", {"command": command, **fields})
    said: dict[str, Any] = json.loads(answer.read())
    assert answer.status == 201, said
    assert answer.headers["Sandcell-Id"] == said["id"]
    return said


def code_of(http: Http, method: str, path: str, body: Any = None) -> str:
    return str(http.ask(method, path, body)["error"]["code"])


def frames(http: Http, path: str) -> list[Entry]:
    return list(FrameDecoder().feed(http.open("GET", path).read()))


def test_a_process_is_started_looked_at_and_waited_for(http: Http) -> None:
    made = start(http, "echo out; echo err >&2; exit 3", id="one")
    assert made["status"] == "running"
    assert made["pid"] > 0 and made["cwd"] == "/workspace" and made["session_id"] is None
    end = http.ask("GET", "/v1/processes/one/wait?for=exit&timeout=20")
    assert (end["cause"], end["code"]) == ("exited", 3)
    known = http.ask("GET", "/v1/processes/one")
    assert (known["status"], known["end"]) == ("ended", end)
    assert [each["id"] for each in http.ask("GET", "/v1/processes?status=ended")] == ["one"]
    assert http.ask("GET", "/v1/processes?status=running") == []
    assert http.ask("GET", "/v1/processes?session=ses_1") == []


def test_its_events_come_to_the_end_and_for_people_as_text(http: Http) -> None:
    start(http, "echo out; echo err >&2", id="one")
    found = frames(http, "/v1/processes/one/events")
    assert [each.kind for each in found][0::3] == [Kind.STARTED, Kind.ENDED]
    assert {each.kind: each.data for each in found[1:3]} == {Kind.STDOUT: b"out\n", Kind.STDERR: b"err\n"}
    text = http.open("GET", "/v1/processes/one/events", Accept="text/event-stream").read().decode()
    events = server_sent(text)
    assert {each["event"] for each in events} == {"started", "stdout", "stderr", "ended"}
    rest = frames(http, f"/v1/processes/one/events?cursor={events[-2]['id']}")
    assert [each.kind for each in rest] == [Kind.ENDED]
    only = frames(http, "/v1/processes/one/events?stream=stderr")
    assert [each.kind for each in only] == [Kind.STARTED, Kind.STDERR, Kind.ENDED]


def test_pages_say_where_the_next_one_begins(http: Http) -> None:
    start(http, "seq 5", id="one")
    http.ask("GET", "/v1/processes/one/wait")
    answer = http.open("GET", "/v1/processes/one/events?follow=false&limit=1")
    assert [each.kind for each in FrameDecoder().feed(answer.read())][:2] == [Kind.STARTED, Kind.STDOUT]
    tail = http.open("GET", "/v1/processes/one/events?follow=false&tail=2")
    assert next(FrameDecoder().feed(tail.read())).data == b"4\n5\n"
    named = {name: tail.headers[f"Sandcell-{name}"] for name in ("Cursor", "Ended", "Truncated")}
    assert (named["Ended"], named["Truncated"]) == ("true", "true")
    rest = http.open("GET", f"/v1/processes/one/events?follow=false&cursor={named['Cursor']}")
    assert (rest.read(), rest.headers["Sandcell-Ended"]) == (b"", "true")


def test_input_is_raw_bytes(http: Http) -> None:
    start(http, "cat", id="one", stdin=True)
    assert http.ask("POST", "/v1/processes/one/stdin", b"\0\xff") == {"written": 2}
    assert http.ask("POST", "/v1/processes/one/stdin?close=true", b"!") == {"written": 1}
    assert http.ask("GET", "/v1/processes/one/wait")["code"] == 0
    found = frames(http, "/v1/processes/one/events?follow=false&stream=stdout")
    assert b"".join(each.data for each in found if each.kind == Kind.STDOUT) == b"\0\xff!"
    assert code_of(http, "POST", "/v1/processes/one/stdin", b"x") == "LOST"


def test_signals_and_kills(http: Http) -> None:
    start(http, ["sleep", "50"], id="one")
    assert code_of(http, "POST", "/v1/processes/one/signal", {"signal": "NONE"}) == "UNKNOWN_SIGNAL"
    http.ask("POST", "/v1/processes/one/signal", {"signal": "hup"})
    assert http.ask("GET", "/v1/processes/one/wait")["signal"] == 1
    start(http, ["sleep", "50"], id="two")
    assert http.ask("POST", "/v1/processes/two/kill", {"grace": 0}) == {"killed": 1, "survived": 0}
    assert http.ask("POST", "/v1/processes/two/kill") == {"killed": 0, "survived": 0}
    start(http, ["sleep", "50"], id="three")
    assert http.ask("DELETE", "/v1/processes") == {"killed": 1, "survived": 0}
    assert http.ask("DELETE", "/v1/processes/three") == {"killed": 0, "survived": 0}
    assert http.ask("DELETE", "/v1/processes?status=ended") == {"removed": 2}


def test_waiting_for_what_it_says(http: Http) -> None:
    start(http, "echo first; read line; echo $line is ready", id="one", stdin=True)
    assert code_of(http, "GET", "/v1/processes/one/wait?for=log&text=ready&timeout=0.05") == "WAIT_TIMEOUT"
    http.ask("POST", "/v1/processes/one/stdin", b"it\n")
    found = http.ask("GET", "/v1/processes/one/wait?for=log&text=is%20ready")
    assert (found["stream"], found["line"]) == ("stdout", "it is ready")
    problem = http.ask("GET", "/v1/processes/one/wait?for=log&text=never")["error"]
    assert problem["code"] == "COMMAND_FAILED"
    assert problem["details"]["last_lines"] == ["first", "it is ready"]


def test_waiting_for_a_port(http: Http, sandbox: Sandbox) -> None:
    python = sandbox.info().python
    start(http, [python, "-c", SERVER.format(port=8123)], id="server")
    assert http.ask("GET", "/v1/processes/server/wait?for=port&port=8123") == {"port": 8123, "status": None}
    found = http.ask("GET", f"/v1/processes/server/wait?for=port&port=8123&http={quote('/')}")
    assert found == {"port": 8123, "status": 200}
    late = "/v1/processes/server/wait?for=port&port=8123&http=/missing&timeout=0.1"
    assert code_of(http, "GET", late) == "WAIT_TIMEOUT"
    start(http, "echo boom >&2; read line; exit 4", id="fails", stdin=True)
    other = Http(sandbox)
    other.connection.request("GET", "/v1/processes/fails/wait?for=port&port=8124", headers=other.headers)
    http.ask("POST", "/v1/processes/fails/stdin?close=true", b"")
    problem = json.loads(other.connection.getresponse().read())["error"]
    other.close()
    assert (problem["code"], problem["details"]["exit_code"]) == ("COMMAND_FAILED", 4)
    assert problem["details"]["last_lines"] == ["boom"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/processes/none", "NOT_FOUND"),
        ("/v1/processes/none/wait", "NOT_FOUND"),
        ("/v1/processes?status=dead", "INVALID_ARGUMENT"),
        ("/v1/processes/one/events?cursor=x.1.1", "STALE_CURSOR"),
        ("/v1/processes/one/events?tail=1", "INVALID_ARGUMENT"),
        ("/v1/processes/one/events?follow=false&limit=0", "INVALID_ARGUMENT"),
        ("/v1/processes/one/events?stream=stdin", "INVALID_ARGUMENT"),
        ("/v1/processes/one/wait?for=godot", "INVALID_ARGUMENT"),
        ("/v1/processes/one/wait?for=log", "INVALID_ARGUMENT"),
        ("/v1/processes/one/wait?for=port", "INVALID_ARGUMENT"),
        ("/v1/processes/one/wait?for=port&port=80&http=x%0d%0ay", "INVALID_ARGUMENT"),
        ("/v1/processes/one/wait?timeout=nan", "INVALID_ARGUMENT"),
        ("/v1/processes/one/wait?timeout=0.01", "WAIT_TIMEOUT"),
    ],
)
def test_what_cannot_be_is_refused(http: Http, path: str, code: str) -> None:
    start(http, ["sleep", "50"], id="one")
    assert code_of(http, "GET", path) == code
