"""Ports of a sandbox: at URLs of their own, by requests, by WebSockets; with a real Flask app that has no network."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tests.e2e.test_cli import Shell
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.e2e.conftest import EnginePlace

    from sandcell.client.blocking.process import Process
    from sandcell.ports.reply import Port

PATIENCE_S = 40.0
APP = """
import hashlib, os, time
from flask import Flask, Response, redirect, request

app = Flask(__name__)

@app.route("/", methods=["GET", "POST", "PURGE", "OPTIONS"])
def show():
    return {"method": request.method, "headers": dict(request.headers), "query": request.query_string.decode()}

@app.route("/digest", methods=["POST", "PUT"])
def digest():
    return hashlib.sha256(request.get_data()).hexdigest()

@app.route("/large")
def large():
    return Response((bytes([n % 256]) * 2**20 for n in range(50)), mimetype="application/octet-stream")

@app.route("/news")
def news():
    def events():
        yield "data: one\\n\\n"
        while not os.path.exists("/tmp/go-on"):
            time.sleep(0.02)
        yield "data: two\\n\\n"
    return Response(events(), mimetype="text/event-stream")

@app.route("/dies")
def dies():
    def half():
        yield "half"
        os._exit(1)
    return Response(half(), headers={"Content-Length": "1000"})

@app.route("/login")
def login():
    answer = redirect("http://localhost:8000/?in")
    answer.set_cookie("session", "mine")
    return answer
"""


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox.create(engine="local", network="none") as made:
        made.files.write("/workspace/app.py", APP)
        yield made


@pytest.fixture
def flask(sandbox: Sandbox) -> Generator[Process]:
    process = sandbox.start_process("python3 -m flask run --port 8000")
    process.wait_for_port(8000, timeout=PATIENCE_S)
    yield process
    process.kill()


@pytest.fixture
def port(sandbox: Sandbox, flask: Process) -> Generator[Port]:
    made = sandbox.ports.expose(8000, name="web")
    yield made
    if any(each.port == 8000 for each in sandbox.ports.list()):
        sandbox.ports.close(8000)


class Client:
    """One connection to an exposure. `path` has the token, as a program without cookies sends it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.path = parts.netloc, parts.path
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)

    def ask(
        self, method: str, path: str = "", body: bytes | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path if path.startswith("/") else self.path + path, body, named)
        return self.connection.getresponse()


@pytest.fixture
def client(port: Port) -> Generator[Client]:
    made = Client(port.url)
    with closing(made.connection):
        yield made


def code_of(problem: pytest.ExceptionInfo[SandcellError]) -> ErrorCode:
    return problem.value.code


def test_an_exposure_is_the_same_until_it_is_rotated(sandbox: Sandbox, port: Port) -> None:
    assert sandbox.ports.expose(8000) == port
    assert (
        len(port.token) == 26 and port.token in port.url and port.token not in repr(port.token and port.name)
    )
    rotated = sandbox.ports.expose(8000, rotate=True)
    assert rotated.token != port.token and rotated.name == "web"
    old, new = Client(port.url), Client(rotated.url)
    with closing(old.connection), closing(new.connection):
        assert old.ask("GET").status == 403
        assert new.ask("GET").status == 200


def test_the_app_is_told_of_itself_as_it_knows_itself(port: Port, client: Client) -> None:

    answer = client.ask(
        "GET",
        "?a=1",
        Cookie=f"mine=1; sandcell-port-1={'a' * 26}",
        Origin=f"http://{client.host}",
        Referer=f"{port.url}page",
        X_Forwarded_For="192.0.2.1",
        Connection="keep-alive, X-Of-One",
        X_Of_One="1",
    )
    told = json.loads(answer.read())
    headers = told["headers"]
    assert told["query"] == "a=1"
    assert headers["Host"] == "localhost:8000" and headers["Origin"] == "http://localhost:8000"
    assert headers["Cookie"] == "mine=1"
    assert headers["X-Forwarded-For"] == "127.0.0.1" and headers["X-Forwarded-Host"] == client.host
    assert headers["Forwarded"] == f'for=127.0.0.1;host="{client.host}";proto=http'
    assert "X-Of-One" not in headers and "Referer" not in headers
    assert port.token not in str(told)


def test_the_token_is_in_no_log_of_the_app(
    sandbox: Sandbox, flask: Process, port: Port, client: Client
) -> None:
    assert client.ask("GET", "?seen").status == 200
    flask.wait_for_log("seen", timeout=PATIENCE_S)
    assert port.token not in flask.output() + flask.output("stderr")


@pytest.mark.parametrize("method", ["POST", "PURGE", "OPTIONS"])
def test_any_method_reaches_the_app(client: Client, method: str) -> None:
    assert client.ask(method).status == 200


def test_large_bodies_go_both_ways(client: Client) -> None:

    data = bytes(range(256)) * 2**17
    assert client.ask("PUT", "digest", data).read().decode() == hashlib.sha256(data).hexdigest()
    client.connection.request("POST", f"{client.path}digest", iter([data[:7], data[7:]]), encode_chunked=True)
    assert client.connection.getresponse().read().decode() == hashlib.sha256(data).hexdigest()
    assert len(client.ask("GET", "large").read()) == 50 * 2**20


def test_events_come_as_they_are_sent(sandbox: Sandbox, client: Client) -> None:
    answer = client.ask("GET", "news")
    assert answer.readline() == b"data: one\n"
    sandbox.files.write("/tmp/go-on", "")
    assert answer.read().endswith(b"data: two\n\n")


def test_an_app_that_dies_in_the_middle_is_no_whole_answer(client: Client) -> None:
    answer = client.ask("GET", "dies")
    assert answer.status == 200
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()


def test_an_app_is_told_when_its_client_has_gone(sandbox: Sandbox) -> None:
    code = (
        "import socket; s = socket.create_server(('', 8400)); print('ready', flush=True); c = s.accept()[0]\n"
    )
    code += (
        "print('asked', c.recv(9999)[:3], flush=True)\nwhile c.recv(9999): pass\nprint('gone', flush=True)"
    )
    server = sandbox.start_process(["python3", "-c", code])
    server.wait_for_log("ready", timeout=PATIENCE_S)
    client = Client(sandbox.ports.expose(8400).url)
    client.connection.request("GET", client.path)
    server.wait_for_log("asked", timeout=PATIENCE_S)
    client.connection.close()
    server.wait_for_log("gone", timeout=PATIENCE_S)
    sandbox.ports.close(8400)


def test_redirects_lead_back_to_where_one_came_from(port: Port, client: Client) -> None:
    answer = client.ask("GET", "login")
    assert (answer.status, answer.headers["Location"]) == (302, f"/{port.token}/?in")
    assert answer.headers["Set-Cookie"].startswith("session=mine")


def test_without_the_token_nobody_is_let_in(client: Client) -> None:
    assert client.ask("GET", "/").status == 401
    assert client.ask("GET", f"/{'a' * 26}/").status == 403
    page = client.ask("GET", f"/{'a' * 26}/", Accept="text/html")
    assert page.status == 403
    assert "not valid any more" in page.read().decode()


def test_a_second_request_behind_the_first_goes_nowhere(port: Port, client: Client) -> None:
    request = f"POST {client.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
    smuggled = "PURGE /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    host, _, number = client.host.partition(":")
    with socket.create_connection((host, int(number)), timeout=PATIENCE_S) as raw:
        raw.sendall((request + smuggled).encode())
        answered = b"".join(iter(lambda: raw.recv(2**16), b""))
    assert answered.count(b"HTTP/1.1 ") == 1 and b"smuggled" not in answered


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\nHost: x\n\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: 1\r\n\r\n",
        b"POST /%TOKEN%/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"CONNECT localhost:8000 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000,
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(port: Port, client: Client, head: bytes) -> None:
    host, _, number = client.host.partition(":")
    with socket.create_connection((host, int(number)), timeout=PATIENCE_S) as raw:
        raw.sendall(head.replace(b"%TOKEN%", port.token.encode()))
        assert raw.recv(2**16).startswith(b"HTTP/1.1 400 ")


def test_many_at_once_are_all_answered(port: Port) -> None:
    statuses = list[int]()

    def ask() -> None:
        client = Client(port.url)
        with closing(client.connection):
            statuses.append(client.ask("GET").status)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    assert statuses == [200] * 50


def test_where_nothing_listens_a_page_says_so(sandbox: Sandbox) -> None:
    port = sandbox.ports.expose(9000)
    client = Client(port.url)
    with closing(client.connection):
        page = client.ask("GET", "", Accept="text/html", Sec_Fetch_Dest="empty")
        assert page.status == 502 and "nothing listens" in page.read().decode()
        answer = client.ask("GET")
        assert answer.status == 502 and b"PORT_NOT_LISTENING" in answer.read()
    found = {each.port: each for each in sandbox.ports.list()}
    assert sandbox.info().ports == tuple(sorted(found))
    assert (found[9000].listening, found[9000].url) == (False, port.url)
    sandbox.ports.close(9000)
    with pytest.raises(SandcellError) as problem:
        sandbox.ports.close(9000)
    assert code_of(problem) == ErrorCode.NOT_FOUND
    with pytest.raises(ConnectionRefusedError):
        Client(port.url).ask("GET")


def test_two_exposures_share_no_host(sandbox: Sandbox) -> None:
    one, other = sandbox.ports.expose(9001), sandbox.ports.expose(9002)
    assert urlsplit(one.url).hostname != urlsplit(other.url).hostname
    found = sandbox.ports.list()
    assert [each.port for each in found] == [9001, 9002]
    for each in found:
        sandbox.ports.close(each.port)


@pytest.mark.parametrize("port", [0, 80, 1023, 65536, 2375, -1, True, "8000"])
def test_privileged_and_reserved_ports_are_refused(sandbox: Sandbox, port: int) -> None:
    for call in (sandbox.ports.expose, sandbox.ports.request, sandbox.ports.connect_ws, sandbox.ports.close):
        with pytest.raises(SandcellError) as problem:
            call(port)
        assert code_of(problem) == ErrorCode.INVALID_ARGUMENT


def test_a_request_needs_no_exposure(sandbox: Sandbox, flask: Process) -> None:
    reply = sandbox.ports.request(8000, "POST", "/?b=2", headers={"X-Mine": "1"}, body="text")
    assert reply.ok and reply.json()["headers"]["X-Mine"] == "1" and reply.json()["method"] == "POST"
    assert sandbox.ports.request(8000, path="/nowhere").status == 404
    assert sandbox.ports.request(8000, "HEAD").body == b""
    with pytest.raises(SandcellError) as problem:
        sandbox.ports.request(8000, path="/large", max_body=1000)
    assert code_of(problem) == ErrorCode.TOO_LARGE


def _asked(sandbox: Sandbox, part: str) -> None:
    match part:
        case "path":
            sandbox.ports.request(8000, path="x")
        case "blank":
            sandbox.ports.request(8000, path="/a b")
        case "method":
            sandbox.ports.request(8000, "A B")
        case _:
            sandbox.ports.request(8000, headers={"A": "1\r\nB: 2"})


@pytest.mark.parametrize("part", ["path", "blank", "method", "headers"])
def test_what_no_request_can_say_is_refused(sandbox: Sandbox, part: str) -> None:
    with pytest.raises(SandcellError) as problem:
        _asked(sandbox, part)
    assert code_of(problem) == ErrorCode.INVALID_ARGUMENT


def test_a_request_says_when_there_is_no_whole_answer(sandbox: Sandbox, flask: Process) -> None:
    with pytest.raises(SandcellError) as problem:
        sandbox.ports.request(9000)
    assert code_of(problem) == ErrorCode.PORT_NOT_LISTENING
    with pytest.raises(SandcellError) as problem:
        sandbox.ports.request(8000, path="/dies")
    assert code_of(problem) == ErrorCode.PORT_NOT_LISTENING
    with pytest.raises(SandcellError) as problem, socket_that_is_silent(sandbox, 8001):
        sandbox.ports.request(8001, timeout=0.2)
    assert code_of(problem) == ErrorCode.WAIT_TIMEOUT


class socket_that_is_silent:
    """A server that takes connections and says nothing."""

    def __init__(self, sandbox: Sandbox, port: int) -> None:
        code = f"import socket, time; s = socket.create_server(('::1', {port}), family=socket.AF_INET6); time.sleep(600)"
        self.process = sandbox.start_process(["python3", "-c", code])
        self.process.wait_for_port(port, timeout=PATIENCE_S)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.process.kill()


async def test_the_asyncio_client_has_the_same() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        process = await sandbox.start_process("python3 -m http.server 8000 --bind ::1")
        await process.wait_for_port(8000, timeout=PATIENCE_S)
        assert (await sandbox.ports.request(8000)).status == 200
        port = await sandbox.ports.expose(8000)
        assert [each.listening for each in await sandbox.ports.list()] == [True]
        client = Client(port.url)
        with closing(client.connection):
            assert client.ask("GET").status == 200  # this loop stands still meanwhile
        await sandbox.ports.close(8000)


def test_exposures_outlive_a_stop_and_end_with_their_handle() -> None:
    before = set(threading.enumerate())
    with Sandbox.create(engine="local", on_release="stop") as sandbox:
        port = sandbox.ports.expose(8000, name="web")
        client = Client(port.url)
        sandbox.stop()
        assert client.ask("GET").status == 410
        sandbox.start()
        assert sandbox.ports.expose(8000) == port
        assert client.ask("GET").status == 502
        with Sandbox.connect(sandbox.id) as other:
            assert [(each.name, each.url) for each in other.ports.list()] == [("web", None)]
            theirs = other.ports.expose(8000)
            assert theirs.token == port.token and theirs.url != port.url
            other.ports.expose(8000, rotate=True)
        assert client.ask("GET").status == 403  # by whomever it was rotated
        client.connection.close()
        sandbox.remove()
    with pytest.raises(ConnectionRefusedError):
        client.ask("GET")
    assert not [each for each in set(threading.enumerate()) - before if each.name == "sandcell-ports"]


# --- WebSockets

ECHO = """
import asyncio
from websockets.asyncio.server import serve

async def echo(socket):
    await socket.send(str(dict(socket.request.headers.raw_items())) + socket.request.path)
    async for message in socket:
        await socket.send(message)

async def main():
    async with serve(echo, "127.0.0.1", 8200, subprotocols=["two"], max_size=None):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def echo(sandbox: Sandbox) -> Generator[Process]:
    process = sandbox.start_process(["python3", "-c", ECHO])
    process.wait_for_log("ready", timeout=PATIENCE_S)
    yield process
    process.kill()


def test_a_websocket_needs_no_exposure(sandbox: Sandbox, echo: Process, flask: Process) -> None:
    with sandbox.ports.connect_ws(
        8200, "/a?b=1", headers={"X-Mine": "1"}, subprotocols=["one", "two"]
    ) as opened:
        hello = opened.recv(timeout=PATIENCE_S)
        assert "'Host': 'localhost:8200'" in str(hello) and "'X-Mine': '1'" in str(hello)
        assert str(hello).endswith("/a?b=1") and opened.subprotocol == "two"
        for message in ("text", b"\0\xff", "x" * 900_000):
            opened.send(message)
            assert opened.recv(timeout=PATIENCE_S) == message
    with pytest.raises(SandcellError) as problem:
        sandbox.ports.connect_ws(8000)
    assert code_of(problem) == ErrorCode.INVALID_ARGUMENT
    with pytest.raises(SandcellError) as problem:
        sandbox.ports.connect_ws(9000)
    assert code_of(problem) == ErrorCode.PORT_NOT_LISTENING


async def test_a_websocket_of_the_asyncio_client(sandbox: Sandbox, echo: Process) -> None:
    async with (
        await AsyncSandbox.connect(sandbox.id) as attached,
        await attached.ports.connect_ws(8200, subprotocols=["two"]) as opened,
    ):
        await opened.recv()
        await opened.send("hi")
        assert await opened.recv() == "hi"


def test_a_websocket_through_an_exposure(sandbox: Sandbox, echo: Process) -> None:
    port = sandbox.ports.expose(8200)
    url = port.url.replace("http:", "ws:") + "live"
    with connect(url, proxy=None, subprotocols=[Subprotocol("two")]) as opened:
        hello = str(opened.recv(timeout=PATIENCE_S))
        assert port.token not in hello and hello.endswith("/live")
        opened.send(b"x" * 900_000)
        assert opened.recv(timeout=PATIENCE_S) == b"x" * 900_000
        echo.kill()
        with pytest.raises(ConnectionClosed):
            opened.recv(timeout=PATIENCE_S)
    sandbox.ports.close(8200)


# --- over HTTP


def test_the_proxy_of_the_guest_passes_on(sandbox: Sandbox, flask: Process) -> None:
    with closing(Guest(sandbox)) as guest:
        guest.send(
            f"POST /v1/ports/8000/proxy/?a=1&token={guest.token}&b=2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
        )
        answer = guest.read()
    assert b'"query":"a=1&b=2"' in answer and guest.token.encode() not in answer
    assert b'"X-Forwarded-Prefix":"/v1/ports/8000/proxy"' in answer and b"connection: close" in answer


def test_a_tunnel_is_bytes_with_two_ends(sandbox: Sandbox) -> None:
    code = "import socket; s = socket.create_server(('', 8300)); print('ready', flush=True); c = s.accept()[0]; c.sendall(b'first ');"
    code += "got = b''.join(iter(lambda: c.recv(999), b'')); c.sendall(b'then ' + got)"
    process = sandbox.start_process(["python3", "-c", code])
    process.wait_for_log("ready", timeout=PATIENCE_S)
    with closing(Guest(sandbox)) as guest:
        guest.send(_connect_line(8300, guest.token) + "all of it")
        guest.connection.shutdown(socket.SHUT_WR)
        head, _, rest = guest.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ") and rest == b"first then all of it"


def test_a_tunnel_ends_with_its_sandbox_and_needs_the_token() -> None:
    with (
        Sandbox.create(engine="local") as sandbox,
        closing(Guest(sandbox)) as wrong,
        closing(Guest(sandbox)) as guest,
    ):
        server = sandbox.start_process("python3 -m http.server 8300")
        server.wait_for_port(8300, timeout=PATIENCE_S)
        wrong.send(_connect_line(8300, "no"))
        assert wrong.connection.recv(999).startswith(b"HTTP/1.1 401 ")
        guest.send(_connect_line(8300, guest.token))
        assert guest.connection.recv(999).startswith(b"HTTP/1.1 101 ")
        sandbox.remove()
        assert guest.read() == b""


def _connect_line(port: int, token: str) -> str:
    return (
        f"POST /v1/ports/{port}/connect HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )


class Guest:
    """A bare connection to the guest of a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        record = the_host().find(sandbox.id).record
        self.token = record.token
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(PATIENCE_S)
        self.connection.connect(record.address.path)

    def send(self, text: str) -> None:
        self.connection.sendall(text.encode())

    def read(self) -> bytes:
        """Return all that comes, to the end of the connection."""
        return b"".join(iter(lambda: self.connection.recv(2**16), b""))

    def close(self) -> None:
        self.connection.close()


# --- the command line


def test_the_command_line_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    shell = Shell(str(tmp_path / "state"))
    assert shell("start", "--sandbox", "web", "python3 -m http.server 8000").returncode == 0
    try:
        with shell.start("open", "--sandbox", "web", "--no-browser", "8000") as opened:
            assert opened.stdout is not None
            url = opened.stdout.readline().decode().strip()
            client = Client(url)
            with closing(client.connection):
                assert client.ask("GET").status in {200, 502}
            opened.send_signal(signal.SIGINT)
            assert opened.wait(PATIENCE_S) == 0
        assert shell("open", "--sandbox", "web", "80").returncode == 125
    finally:
        shell("rm", "web")


# --- processes and engines


def test_a_forked_child_serves_for_itself(sandbox: Sandbox, flask: Process, port: Port) -> None:
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            theirs = sandbox.ports.expose(8000)
            listed = [each.url for each in sandbox.ports.list()]
            os.write(here, f"{theirs.url} {listed == [theirs.url]} {port.token == theirs.token}".encode())
        finally:
            os._exit(0)
    os.close(here)
    with open(there, encoding="utf-8") as pipe:
        url, *facts = pipe.read().split()
    os.waitpid(child, 0)
    assert facts == ["True", "True"] and url != port.url
    client = Client(port.url)
    with closing(client.connection):
        assert client.ask("GET").status == 200


def test_every_engine_reaches_its_ports(any_place: EnginePlace) -> None:
    with any_place.create() as made:
        server = made.start_process("python3 -m http.server 8000")
        server.wait_for_port(8000, timeout=PATIENCE_S)
        client = Client(made.ports.expose(8000).url)
        with closing(client.connection):
            assert client.ask("GET").status == 200
        assert [each.listening for each in made.ports.list()] == [True]
        assert made.ports.request(8000, "HEAD").status == 200
