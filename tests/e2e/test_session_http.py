"""Sessions over bare HTTP, as a program without the SDK meets them."""

from __future__ import annotations

import base64
import json
import select
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_http import Http, server_sent

from sandcell_container.frames import Entry, FrameDecoder, Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell import Sandbox


@pytest.fixture
def http(sandbox: Sandbox) -> Generator[Http]:
    made = Http(sandbox)
    yield made
    made.close()
    last = Http(sandbox)
    for each in last.ask("GET", "/v1/sessions"):
        last.ask("DELETE", f"/v1/sessions/{each['id']}")
    last.ask("DELETE", "/v1/processes?status=ended")
    last.close()


def make(http: Http, session_id: str = "s", **fields: Any) -> dict[str, Any]:
    answer = http.open("POST", "/v1/sessions", {"id": session_id, **fields})
    said: dict[str, Any] = json.loads(answer.read())
    assert (answer.status, answer.headers["Sandcell-Id"]) == (201, session_id), said
    return said


def run(http: Http, command: str, session_id: str = "s", **fields: Any) -> list[Entry]:
    answer = http.open("POST", f"/v1/sessions/{session_id}/exec", {"command": command, **fields})
    body = answer.read()
    assert answer.status == 200, body
    return list(FrameDecoder().feed(body))


def said(entries: list[Entry]) -> bytes:
    return b"".join(each.data for each in entries if each.kind == Kind.STDOUT)


def end_of(entries: list[Entry]) -> dict[str, Any]:
    ended: dict[str, Any] = json.loads(next(each.data for each in entries if each.kind == Kind.ENDED))
    return ended


def refusal(http: Http, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    answer = http.open(method, path, body)
    problem: dict[str, Any] = json.loads(answer.read())["error"]
    return answer.status, problem


def test_a_session_is_made_used_looked_at_and_deleted(http: Http) -> None:
    made = make(http)
    assert (made["status"], made["cwd"], made["starts"], made["end"]) == ("idle", "/workspace", 1, None)
    assert set(made) == {
        *("id", "status", "cwd", "pid", "created_at", "starts", "running", "queue", "end", "last_output")
    }
    assert said(run(http, "cd /tmp; x=1; pwd")) == b"/tmp\n"
    assert said(run(http, "echo $x $PWD")) == b"1 /tmp\n"
    assert http.ask("GET", "/v1/sessions/s")["cwd"] == "/tmp"
    assert [each["id"] for each in http.ask("GET", "/v1/sessions")] == ["s"]
    assert http.ask("DELETE", "/v1/sessions/s") == {"id": "s"}
    assert refusal(http, "GET", "/v1/sessions/s")[1]["code"] == "NOT_FOUND"


def test_a_repeated_post_is_the_same_session(http: Http) -> None:
    first = make(http, cwd="/tmp", env={"A": "1"})
    assert make(http, cwd="/tmp", env={"A": "1"})["pid"] == first["pid"]
    assert make(http)["pid"] == first["pid"]
    assert refusal(http, "POST", "/v1/sessions", {"id": "s", "cwd": "/usr"})[1]["code"] == "EXISTS"


def test_a_repeated_command_runs_once(http: Http) -> None:
    make(http)
    assert said(run(http, "let n+=1; echo $n", id="one")) == b"1\n"
    assert said(run(http, "let n+=1; echo $n", id="one")) == b"1\n"
    status, problem = refusal(http, "POST", "/v1/sessions/s/exec", {"command": "true", "id": "one"})
    assert (status, problem["code"]) == (409, "EXISTS")


def test_what_cannot_be_run_is_an_error_by_its_status(http: Http) -> None:
    make(http)
    for fields, code in (
        ({"cwd": "no/such"}, "CWD_NOT_FOUND"),
        ({"env": {"UID": "1"}}, "INVALID_ENV_NAME"),
        ({"env": {"A B": "1"}}, "INVALID_ENV_NAME"),
        ({"timeout": 0}, "INVALID_ARGUMENT"),
        ({"queue_timeout": -1}, "INVALID_ARGUMENT"),
        ({"max_output": 0}, "INVALID_ARGUMENT"),
        ({"command": "a\0b"}, "INVALID_ARGUMENT"),
        ({"id": "NO"}, "INVALID_NAME"),
        ({"nonsense": 1}, "INVALID_ARGUMENT"),
    ):
        status, problem = refusal(http, "POST", "/v1/sessions/s/exec", {"command": "true", **fields})
        assert (status, problem["code"]) == (400, code), fields
    assert refusal(http, "POST", "/v1/sessions/none/exec", {"command": "true"})[0] == 404


def test_input_and_a_bound_on_output(http: Http) -> None:
    make(http)
    data = bytes(range(256)) * 100
    assert said(run(http, "cat", stdin=base64.b64encode(data).decode())) == data
    entries = run(http, "seq 1000", max_output=500)
    assert [each.kind for each in entries] == [Kind.STDOUT, Kind.GAP, Kind.STDOUT, Kind.ENDED]
    path = end_of(entries)["truncated"]["stdout"]["path"]
    assert len(http.open("GET", f"/v1/files?path={path}").read()) == 3893


def test_an_exit_is_told_with_its_output_and_later_commands_are_refused(http: Http) -> None:
    make(http)
    ended = end_of(run(http, "echo last; exit 3"))
    assert (ended["exit_code"], ended["end"]["state"]) == (3, "lost")
    status, problem = refusal(http, "POST", "/v1/sessions/s/exec", {"command": "true"})
    assert (status, problem["code"]) == (410, "SESSION_ENDED")
    assert problem["details"] == {"cause": "exited", "exit_code": 3, "last_output": "last\n"}
    known = http.ask("GET", "/v1/sessions/s")
    assert (known["status"], known["end"]["code"], known["last_output"]) == ("ended", 3, "last\n")
    again = http.ask("POST", "/v1/sessions/s/restart")
    assert (again["status"], again["starts"], again["end"]) == ("idle", 2, None)
    assert said(run(http, "echo new")) == b"new\n"


def test_it_says_what_runs_and_waits_and_is_interrupted(http: Http, sandbox: Sandbox) -> None:
    make(http)
    runner, waiter = Http(sandbox), Http(sandbox)
    running = runner.open(
        "POST", "/v1/sessions/s/exec", {"command": "echo on; sleep 50", "id": "a", "stream": True}
    )
    assert FrameDecoder().feed(running.read1(1000))
    waiting = waiter.open("POST", "/v1/sessions/s/exec", {"command": "echo next", "id": "b"})
    known = http.ask("GET", "/v1/sessions/s")
    assert (known["status"], known["running"]["id"], known["running"]["command"]) == (
        "busy",
        "a",
        "echo on; sleep 50",
    )
    assert [(each["id"], each["started_at"]) for each in known["queue"]] == [("b", None)]
    known = http.ask("POST", "/v1/sessions/s/interrupt")
    assert known["running"] is None or known["running"]["id"] == "b"
    rest = list(FrameDecoder().feed(running.read()))
    assert end_of(rest)["end"]["cause"] == "interrupted"
    assert said(list(FrameDecoder().feed(waiting.read()))) == b"next\n"
    runner.close()
    waiter.close()


def test_a_client_that_goes_takes_its_command_with_it(http: Http, sandbox: Sandbox) -> None:
    make(http)
    gone = Http(sandbox)
    answer = gone.open(
        "POST", "/v1/sessions/s/exec", {"command": "echo on; sleep 50; echo no", "stream": True}
    )
    answer.read1(1000)
    answer.close()
    gone.close()
    assert said(run(http, "echo free")) == b"free\n"
    assert http.ask("GET", "/v1/sessions/s")["starts"] == 1


def test_one_whose_turn_does_not_come_gets_an_error_frame(http: Http, sandbox: Sandbox) -> None:
    make(http)
    runner = Http(sandbox)
    running = runner.open("POST", "/v1/sessions/s/exec", {"command": "echo on; sleep 50", "stream": True})
    running.read1(1000)
    entries = run(http, "echo never", queue_timeout=0.2)
    assert [each.kind for each in entries] == [Kind.ERROR]
    assert json.loads(entries[0].data)["error"]["code"] == "BUSY"
    http.ask("POST", "/v1/sessions/s/interrupt")
    running.read()
    runner.close()


def test_people_get_events(http: Http) -> None:
    make(http)
    answer = http.open(
        "POST", "/v1/sessions/s/exec", {"command": "echo é"}, Accept="text/event-stream"
    ).read()
    events = server_sent(answer.decode())
    assert [each["event"] for each in events] == ["stdout", "ended"]
    assert json.loads(events[0]["data"])["text"] == "é\n"


def test_variables_change_from_the_next_command_on(http: Http) -> None:
    make(http)
    http.ask("PATCH", "/v1/env?session=s", {"env": {"A": "1", "LANG": None}})
    assert said(run(http, "printenv A; echo ${LANG-none}")) == b"1\nnone\n"
    assert http.ask("PATCH", "/v1/env", {"env": {}})["env"]["LANG"] == "C.UTF-8"  # the sandbox's own
    assert refusal(http, "PATCH", "/v1/env?session=x", {"env": {}})[1]["code"] == "NOT_FOUND"
    assert refusal(http, "PATCH", "/v1/env?session=s", {"env": {"a b": "1"}})[1]["code"] == "INVALID_ENV_NAME"


def test_files_count_from_its_folder(http: Http) -> None:
    make(http)
    run(http, "mkdir -p /tmp/deep; cd /tmp/deep")
    assert http.open("PUT", "/v1/files?path=a.txt&session=s", b"data").read()
    assert said(run(http, "cat a.txt")) == b"data"
    assert http.open("GET", "/v1/files?path=a.txt&session=s").read() == b"data"
    listed = http.ask("POST", "/v1/files/list?session=s", {})["files"]
    assert [each["name"] for each in listed] == ["a.txt"]
    assert http.ask("POST", "/v1/files/stat?session=s", {"path": "a.txt"})["path"] == "/tmp/deep/a.txt"
    assert http.ask("POST", "/v1/files/mkdir?session=s", {"path": "sub"})["path"] == "/tmp/deep/sub"
    assert http.ask("POST", "/v1/files/stat?session=s", {"path": "/tmp"})["path"] == "/tmp"
    assert refusal(http, "GET", "/v1/files?path=a.txt")[1]["code"] == "FILE_NOT_FOUND"
    assert refusal(http, "GET", "/v1/files?path=a&session=none")[1]["code"] == "NOT_FOUND"
    run(http, "exit")
    assert refusal(http, "GET", "/v1/files?path=a.txt&session=s")[1]["code"] == "SESSION_ENDED"


def test_a_process_begins_with_its_state(http: Http) -> None:
    make(http)
    run(http, "cd /tmp; plain=1; export out=2; f() { echo $plain $out $PWD; }")
    answer = http.open("POST", "/v1/sessions/s/processes", {"command": "f", "id": "p", "cwd": "/usr"})
    info = json.loads(answer.read())
    assert (answer.status, info["session_id"], info["command"], info["cwd"]) == (201, "s", "f", "/usr")
    assert http.ask("GET", "/v1/processes/p/wait?timeout=20")["code"] == 0
    frames = FrameDecoder().feed(http.open("GET", "/v1/processes/p/events").read())
    assert said(list(frames)) == b"1 2 /usr\n"
    assert [each["id"] for each in http.ask("GET", "/v1/processes?session=s")] == ["p"]
    assert said(run(http, "pwd")) == b"/tmp\n"


def test_deleting_it_ends_its_processes_or_keeps_them(http: Http) -> None:
    for keep, status in (("true", "running"), ("false", "ended")):
        make(http)
        http.ask("POST", "/v1/sessions/s/processes", {"command": "sleep 50", "id": f"p-{keep}"})
        http.ask("DELETE", f"/v1/sessions/s?keep_processes={keep}")
        assert http.ask("GET", f"/v1/processes/p-{keep}")["status"] == status
    http.ask("DELETE", "/v1/processes")


def test_nothing_is_left_to_read_behind_an_answer(http: Http) -> None:
    make(http)
    run(http, "true")
    assert not select.select([http.connection.sock], [], [], 0)[0]
