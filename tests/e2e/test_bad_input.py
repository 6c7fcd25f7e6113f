"""Bad input gets its code and a hint, over the SDK and over bare HTTP."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Callable


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("sandbox", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(
    sandbox: Sandbox,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    headers: dict[str, str] | None = None,
    token: str | None = None,
) -> Answer:
    """Send one request as any client would, with the sandbox's token unless another is given."""
    record = the_host().find(sandbox.id).record
    sent = {"Authorization": f"Bearer {record.token if token is None else token}", **(headers or {})}
    connection = _UnixConnection(record.address.path)
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, json.loads(text or b"{}"))


# --- over the SDK


def wrong(value: object) -> Any:
    """Return what a caller without a type checker gives."""
    return value


CALLS: dict[str, tuple[Callable[[Sandbox], object], ErrorCode]] = {
    "timeout as text": (lambda s: s.run_code("1", timeout=wrong("5")), ErrorCode.INVALID_ARGUMENT),
    "context that is a number": (lambda s: s.run_code("1", context=wrong(5)), ErrorCode.INVALID_NAME),
    "callback that is none": (lambda s: s.run_code("1", on_stdout=wrong(5)), ErrorCode.INVALID_ARGUMENT),
    "callback of a command": (lambda s: s.exec("true", on_stderr=wrong(5)), ErrorCode.INVALID_ARGUMENT),
    "command that is a number": (lambda s: s.exec(wrong(5)), ErrorCode.INVALID_ARGUMENT),
    "values of variables": (lambda s: s.exec("true", env={"A": wrong(1)}), ErrorCode.INVALID_ARGUMENT),
    "data that is a number": (lambda s: s.files.write("q", wrong(5)), ErrorCode.INVALID_ARGUMENT),
    "path that is a number": (lambda s: s.files.read(wrong(5)), ErrorCode.INVALID_PATH),
    "path with half a character": (lambda s: s.files.stat("a\ud800"), ErrorCode.INVALID_PATH),
    "run that is a number": (lambda s: s.execution(wrong(5)), ErrorCode.INVALID_ARGUMENT),
    "no sandbox at all": (lambda _: Sandbox.connect(wrong(None)), ErrorCode.INVALID_ARGUMENT),
    "unknown language": (lambda s: s.run_code("1", language="cobol"), ErrorCode.UNKNOWN_LANGUAGE),
    "unknown language of a context": (lambda s: s.create_context("cobol"), ErrorCode.UNKNOWN_LANGUAGE),
    "missing file": (lambda s: s.files.read("missing"), ErrorCode.FILE_NOT_FOUND),
    "folder as file": (lambda s: s.files.read("/tmp"), ErrorCode.IS_A_DIRECTORY),
    "file as folder": (lambda s: s.files.list("/etc/passwd"), ErrorCode.NOT_A_DIRECTORY),
    "forbidden file": (lambda s: s.files.write("/usr/x", "x"), ErrorCode.PERMISSION_DENIED),
    "path with a NUL": (lambda s: s.files.read("a\0b"), ErrorCode.INVALID_PATH),
    "missing folder of a command": (lambda s: s.exec("true", cwd="missing"), ErrorCode.CWD_NOT_FOUND),
    "missing folder of a context": (lambda s: s.create_context(cwd="/missing"), ErrorCode.CWD_NOT_FOUND),
    "missing program": (lambda s: s.exec(["no-such-program"]), ErrorCode.INVALID_ARGUMENT),
    "missing context": (lambda s: s.run_code("1", context="missing"), ErrorCode.NOT_FOUND),
    "missing run": (lambda s: s.execution("missing"), ErrorCode.NOT_FOUND),
    "missing sandbox": (lambda _: Sandbox.connect("missing"), ErrorCode.NOT_FOUND),
    "bad id": (lambda s: s.create_context(id="Not An Id"), ErrorCode.INVALID_NAME),
    "bad id of a run": (lambda s: s.run_code("1", id="-"), ErrorCode.INVALID_NAME),
    "bad name": (lambda _: Sandbox.create(name="../up"), ErrorCode.INVALID_NAME),
    "bad variable": (lambda s: s.exec("true", env={"A-B": "c"}), ErrorCode.INVALID_ENV_NAME),
    "no time at all": (lambda s: s.run_code("1", timeout=0), ErrorCode.INVALID_ARGUMENT),
    "too much output": (lambda s: s.exec("true", max_output="1GiB"), ErrorCode.INVALID_ARGUMENT),
    "taken name": (lambda s: Sandbox.create(name=s.name, engine="local"), ErrorCode.EXISTS),
    "unknown engine": (lambda _: Sandbox.create(engine="warp"), ErrorCode.INVALID_ARGUMENT),
    "later option": (lambda _: Sandbox.create(pass_env=["HOME"]), ErrorCode.UNSUPPORTED),
    "image without images": (lambda _: Sandbox.create("x:1", engine="local"), ErrorCode.IMAGE_NOT_FOUND),
    "code over the limit": (lambda s: s.run_code("#" * 9 * 2**20), ErrorCode.TOO_LARGE),
    "file over the limit": (lambda s: s.files.read("/etc/passwd", max_bytes=10), ErrorCode.TOO_LARGE),
    "endless bytes": (
        lambda s: s.exec("truncate -s 1T big") and s.files.read_bytes("big"),
        ErrorCode.TOO_LARGE,
    ),
    "no input wanted": (lambda s: s.start_code("1").send_input("x"), ErrorCode.BUSY),
}


@pytest.mark.parametrize("case", CALLS)
def test_the_sdk_says_what_is_wrong_and_what_to_do(sandbox: Sandbox, case: str) -> None:
    call, code = CALLS[case]
    with pytest.raises(SandcellError) as caught:
        call(sandbox)
    assert caught.value.code is code
    assert caught.value.hint


def test_a_run_in_a_missing_folder_does_not_run(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.run_code("made = 1", cwd="/missing")
    assert caught.value.code is ErrorCode.CWD_NOT_FOUND
    assert sandbox.run_code("'made' in globals()").value is False


# --- over HTTP


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_a_wrong_token_is_unauthenticated(sandbox: Sandbox, token: str) -> None:
    answer = ask(sandbox, "GET", "/v1/info", token=token)
    assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
    assert answer.body["error"]["hint"]


def test_the_token_may_come_as_jupyter_sends_it(sandbox: Sandbox) -> None:
    token = the_host().find(sandbox.id).record.token
    for headers, query in (
        ({"Authorization": f"token {token}"}, ""),
        ({"Authorization": ""}, f"?token={token}"),
    ):
        assert ask(sandbox, "GET", f"/v1/health{query}", headers=headers).status == 200


BODIES: dict[str, tuple[bytes, str, str]] = {
    "no JSON": (b"{", "INVALID_JSON", ""),
    "half a character": (b'{"code": "\\ud800"}', "INVALID_ARGUMENT", ""),
    "half a character in a path": (b'{"code": "", "cwd": "\\ud800"}', "INVALID_ARGUMENT", ""),
    "no UTF-8": (b'{"code": "\xff"}', "INVALID_JSON", ""),
    "no object": (b"[]", "INVALID_ARGUMENT", ""),
    "unknown field": (b'{"code": "1", "langauge": "python"}', "INVALID_ARGUMENT", "langauge"),
    "missing field": (b"{}", "INVALID_ARGUMENT", "code"),
    "wrong type": (b'{"code": "1", "timeout": "soon"}', "INVALID_ARGUMENT", "timeout"),
    "wrong choice": (b'{"code": "1", "on_busy": "maybe"}', "INVALID_ARGUMENT", "on_busy"),
    "no time": (b'{"code": "1", "timeout": 0}', "INVALID_ARGUMENT", "timeout"),
}


@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_does_not_fit_names_its_field(sandbox: Sandbox, case: str) -> None:
    body, code, field = BODIES[case]
    answer = ask(sandbox, "POST", "/v1/executions", body)
    assert (answer.status, answer.code) == (400, code)
    assert answer.body["error"]["hint"]
    assert answer.body["error"]["details"].get("field", "") == field


def test_a_body_over_the_limit_is_refused_with_the_limit(sandbox: Sandbox) -> None:
    answer = ask(sandbox, "POST", "/v1/exec", b" " * (8 * 2**20 + 1))
    assert (answer.status, answer.code) == (413, "TOO_LARGE")
    assert answer.body["error"]["details"] == {"limit": 8 * 2**20}


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/v1/executions/a/b/c", "/v2/info"])
def test_an_unknown_path_is_not_found(sandbox: Sandbox, path: str) -> None:
    answer = ask(sandbox, "GET", path)
    assert (answer.status, answer.code) == (404, "NOT_FOUND")
    assert answer.body["error"]["hint"]


def test_a_wrong_method_is_told_the_right_ones(sandbox: Sandbox) -> None:
    answer = ask(sandbox, "DELETE", "/v1/executions")
    assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, POST"


def test_the_request_id_comes_back(sandbox: Sandbox) -> None:
    answer = ask(sandbox, "GET", "/v1/nothing", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert ask(sandbox, "GET", "/v1/health").headers["x-request-id"]


@pytest.mark.parametrize("query", ["lease=mine", "cursor=nonsense"])
def test_a_query_that_does_not_fit_is_refused(sandbox: Sandbox, query: str) -> None:
    answer = ask(sandbox, "GET", f"/v1/events?{query}")
    assert answer.status == 400
    assert answer.code in {"INVALID_ARGUMENT", "STALE_CURSOR"}


def test_a_file_needs_a_path(sandbox: Sandbox) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = ask(sandbox, method, "/v1/files", b"x" if method == "PUT" else None)
        assert (answer.status, answer.code) == (400, "INVALID_PATH")
