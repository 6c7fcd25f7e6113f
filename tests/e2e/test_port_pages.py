"""A dev server of a sandbox in a real browser: it lets itself in, reloads itself, and is an origin of its own."""

from __future__ import annotations

import http.server
import json
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from tests.e2e.lab import CHROMIUM, PATIENCE_S, open_browser

from sandcell import Sandbox
from sandcell.client.host import the_host

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, Page

    from sandcell.ports.reply import Port

pytestmark = pytest.mark.timeout(180)

# A dev server as they are: absolute links, a WebSocket that has the page load itself again, server-sent events; tornado refuses
# a WebSocket of another origin than its own. It tells each line of its log, with the headers that could hold a token.
APP = '''
import asyncio, pathlib
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

PAGE = """<!doctype html><title>dev</title><h1>{text}</h1><p id=sse></p><p id=where></p>
<a id=next href="/next">next</a> <a id=away href="{away}">away</a>
<script>
document.getElementById("where").textContent = location.href
const live = new WebSocket("ws://" + location.host + "/live")
live.onmessage = () => location.reload()
new EventSource("/events").onmessage = (event) => document.getElementById("sse").textContent = event.data
</script>"""
live = set()

def tell(request):
    print(request.method, request.uri, request.headers.get("Referer"), request.headers.get("Cookie"), flush=True)

class Page(RequestHandler):
    def get(self, path):
        tell(self.request)
        text = pathlib.Path("/workspace/text").read_text()
        self.set_cookie("mine", "1")
        self.write(PAGE.replace("{text}", text + path).replace("{away}", self.get_argument("away", "")))

class Changed(RequestHandler):
    def post(self):
        for each in live:
            each.write_message("reload")
        self.write(str(len(live)))

class Live(WebSocketHandler):
    def open(self):
        tell(self.request)
        live.add(self)
    def on_close(self):
        live.discard(self)
    def on_message(self, message):
        self.write_message(message)

class Events(RequestHandler):
    async def get(self):
        self.set_header("Content-Type", "text/event-stream")
        self.write("data: told\\n\\n")
        await self.flush()
        await asyncio.Event().wait()

async def main():
    routes = [("/live", Live), ("/events", Events), ("/changed", Changed), ("/(.*)", Page)]
    Application(routes).listen(8100, "127.0.0.1")
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
'''


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    if CHROMIUM is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("there is no chromium")
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox.create(engine="local", network="none") as made:
        made.files.write("/workspace/app.py", APP)
        made.files.write("/workspace/text", "one")
        server = made.start_process("python3 app.py", id="server")
        server.wait_for_log("ready", timeout=PATIENCE_S)
        yield made


@pytest.fixture
def port(sandbox: Sandbox) -> Port:
    return sandbox.ports.expose(8100)


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    with browser.new_context() as context:
        made = context.new_page()
        made.set_default_timeout(PATIENCE_S * 1000)
        yield made


class Elsewhere:
    """A server of the person's own, at 127.0.0.1: another site, with a cookie. It keeps the headers that it was sent."""

    def __init__(self) -> None:
        self.seen = list[dict[str, str]]()
        self.page = ""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append(dict(self.headers))
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Set-Cookie", "private=1")
                self.end_headers()
                self.wfile.write(outer.page.encode())

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def elsewhere() -> Generator[Elsewhere]:
    made = Elsewhere()
    yield made
    made.close()


def log_of(sandbox: Sandbox) -> str:
    return sandbox.process("server").output()


def test_a_page_lets_the_browser_in_and_reloads_itself(sandbox: Sandbox, port: Port, page: Page) -> None:
    sandbox.files.write("/workspace/text", "one")
    page.goto(f"{port.url}start?a=1#place")
    expect(page.locator("h1")).to_have_text("onestart")
    assert page.url == f"{_origin(port)}/start?a=1#place"
    expect(page.locator("#sse")).to_have_text("told")
    sandbox.files.write("/workspace/text", "two")
    assert sandbox.ports.request(8100, "POST", "/changed").text == "1"
    expect(page.locator("h1")).to_have_text("twostart")
    page.click("#next")
    expect(page.locator("h1")).to_have_text("twonext")


def test_the_token_is_in_no_log_no_referer_and_no_history(
    sandbox: Sandbox, port: Port, page: Page, elsewhere: Elsewhere
) -> None:
    page.goto(f"{port.url}?away={elsewhere.url}")
    page.locator("#away").wait_for()
    assert port.token not in page.content()
    assert page.evaluate("document.cookie") == "mine=1"  # ours is for no script
    page.click("#away")
    page.wait_for_url(elsewhere.url)
    page.go_back()
    page.locator("#next").click()
    expect(page.locator("h1")).to_contain_text("next")
    assert port.token not in log_of(sandbox)
    assert port.token not in json.dumps(elsewhere.seen)
    assert f"GET /next http://localhost:8100/?away={elsewhere.url} mine=1" in log_of(sandbox)


def test_a_link_of_another_site_leads_in_and_its_scripts_do_not(
    sandbox: Sandbox, port: Port, page: Page, elsewhere: Elsewhere
) -> None:
    elsewhere.page = f'<a href="{port.url}linked">in</a>'
    page.goto(elsewhere.url)
    page.click("a")
    expect(page.locator("h1")).to_contain_text("linked")
    page.goto(elsewhere.url)
    opened = """origin => new Promise(done => {
        const socket = new WebSocket(origin.replace("http", "ws") + "/live")
        socket.onopen = () => done(true); socket.onerror = () => done(false)
    })"""
    assert page.evaluate(opened, _origin(port)) is False
    assert "private=1" not in log_of(sandbox)  # no cookie of another server of this machine's


def test_two_exposures_are_two_sites(sandbox: Sandbox, port: Port, page: Page) -> None:
    page.goto(port.url)
    page.locator("h1").wait_for()
    other = sandbox.ports.expose(8101)
    page.goto(other.url)
    expect(page.locator("h1")).to_have_text("Nothing answers here yet")
    assert page.evaluate("document.cookie") == ""
    assert {
        urlsplit(each["name"]).hostname for each in [{"name": _origin(port)}, {"name": _origin(other)}]
    } == {
        urlsplit(port.url).hostname,
        urlsplit(other.url).hostname,
    }
    sandbox.ports.close(8101)


def test_without_a_token_a_page_says_so(port: Port, page: Page) -> None:
    answer = page.goto(_origin(port))
    assert answer is not None and answer.status == 401
    expect(page.locator("h1")).to_have_text("This address needs its token")


def test_a_host_of_its_own_where_there_is_a_public_one(
    sandbox: Sandbox, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(the_host(), "config", replace(the_host().config, public_host="localhost"))
    with Sandbox.connect(sandbox.id) as other:
        port = other.ports.expose(8100)
        assert port.url.startswith(f"http://8100-{port.token}.localhost:")
        page.goto(port.url)
        expect(page.locator("#sse")).to_have_text("told")
        page.click("#next")
        expect(page.locator("h1")).to_contain_text("next")
        assert port.token not in log_of(sandbox)
        answer = page.goto(_origin(port).replace(port.token, "a" * 26))
        assert answer is not None and answer.status == 403


def _origin(port: Port) -> str:
    parts = urlsplit(port.url)
    return f"{parts.scheme}://{parts.netloc}"
