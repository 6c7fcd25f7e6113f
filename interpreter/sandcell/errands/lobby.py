"""The server of the kernel process for a person's browser: it turns links of a notebook into what they open.

An origin of its own on the loopback, with no content that hostile code has made: what a terminal shows comes as text.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler, url
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from sandcell.errands.tickets import Target, Tickets
from sandcell.errands.viewer import Viewer
from sandcell.ports.listener import listen_on_loopback

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from sandcell.errands.tickets import Visit
    from sandcell.guest_address import GuestAddress

__all__ = ["Lobby"]

log = logging.getLogger(__name__)

_LIFE_S = 600.0
_MOST_TYPED = 2**20
_FILES = {"terminal.js": "text/javascript", "terminal.css": "text/css"}
_FOLDER = Path(__file__).parent / "page"
_GONE = (
    '<!doctype html><meta charset="utf-8"><title>Sandcell</title><link rel="stylesheet" href="/page/terminal.css">'
    "<h1>This link opens nothing any more</h1><p>It was for the first browser that followed it, within ten minutes. "
    "Run the cell again for another one.</p>"
)


class Lobby:
    """See the module. Listens once it is made, on the loop that runs; `close` ends it, and everything that it has opened.
    `spawn` owns its tasks; `guest` is where the terminals are."""

    def __init__(
        self, guest: GuestAddress, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self.guest = guest
        self.spawn = spawn
        self.tickets = Tickets(time.monotonic, life_s=_LIFE_S)
        listener = listen_on_loopback()
        address, self._port = listener.getsockname()
        self.host = f"{address}:{self._port}"
        self._pages = set[_TerminalSocket]()
        mine: dict[str, Any] = {"lobby": self}
        application = Application(log_function=_log_request)
        application.add_handlers(  # asked for by any other name, as by a site that points its name here, there is nothing
            address.replace(".", r"\."),
            [
                url(r"/go/([a-z2-7]{26})", _Entry, mine),
                url(r"/go/([a-z2-7]{26})/io", _TerminalSocket, mine),
                url(r"/page/([a-z.]+)", _PageFile, mine),
            ],
        )
        self._server = HTTPServer(application)
        self._server.add_socket(listener)

    @property
    def cookie(self) -> str:
        return f"sandcell-lobby-{self._port}"

    def link(self, target: Target) -> str:
        """Return a URL that leads there once."""
        return f"http://{self.host}/go/{self.tickets.issue(target)}"

    async def close(self) -> None:
        self._server.stop()
        for page in list(self._pages):
            page.end()
        await self._server.close_all_connections()

    def keep(self, page: _TerminalSocket) -> None:
        self._pages.add(page)

    def forget(self, page: _TerminalSocket) -> None:
        self._pages.discard(page)


class _Visited(RequestHandler):
    """Something that a ticket opens."""

    def initialize(self, lobby: Lobby) -> None:
        self.lobby = lobby

    @property
    def visitor(self) -> str:
        return self.get_cookie(self.lobby.cookie) or ""


class _Entry(_Visited):
    """GET /go/{ticket}"""

    def set_default_headers(self) -> None:
        _set_headers(self)

    def get(self, secret: str) -> None:
        visit = self.lobby.tickets.visit(secret, self.visitor)
        if visit is None:
            self.set_status(403)
            self.finish(_GONE)
            return
        # Lax: the link stands on a page of another site, Jupyter's, and is to open again for who has come before.
        self.set_cookie(self.lobby.cookie, visit.visitor, httponly=True, samesite="Lax")
        if visit.target.url:
            self.redirect(visit.target.url)
        else:
            page = (_FOLDER / "terminal.html").read_text()
            self.finish(page.replace("{title}", escape(visit.target.terminal)))


class _PageFile(_Visited):
    """GET /page/{file}"""

    def set_default_headers(self) -> None:
        _set_headers(self)

    def get(self, name: str) -> None:
        kind = _FILES.get(name)
        if kind is None:
            self.send_error(404)
            return
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish((_FOLDER / name).read_bytes())


class _TerminalSocket(WebSocketHandler):
    """WS /go/{ticket}/io: one page that shows a terminal. JSON in text frames: {"keys"} and {"size"} up, patches down."""

    def initialize(self, lobby: Lobby) -> None:
        self.lobby = lobby
        self._viewer: Viewer | None = None
        self._task: asyncio.Task[None] | None = None

    def check_origin(self, origin: str) -> bool:
        return origin == f"http://{self.lobby.host}"

    @property
    def max_message_size(self) -> int:
        return _MOST_TYPED

    def prepare(self) -> None:
        visitor = self.get_cookie(self.lobby.cookie) or ""
        visit = self.lobby.tickets.admit(self.path_args[0], visitor)
        if visit is None or not visit.target.terminal:
            self.send_error(403)
            return
        self._visit: Visit = visit

    def open(self, *args: str, **kwargs: str) -> None:
        self.lobby.keep(self)
        viewer = self._viewer = Viewer(self.lobby.guest, self._visit.target.terminal, tell=self._tell)
        self._task = self.lobby.spawn(self._show(viewer))

    async def on_message(self, message: str | bytes) -> None:
        """Take what is typed; the next frame waits until the sandbox has taken it."""
        if self._viewer is not None:
            await self._viewer.take(message)

    def on_close(self) -> None:
        self.lobby.forget(self)
        self.end()

    def end(self) -> None:
        """Show it no more."""
        if self._task is not None:
            self._task.cancel()

    async def _show(self, viewer: Viewer) -> None:
        try:
            await self._tell({"over": await viewer.run()})
            self.close()
        except Exception:  # the outermost place of a page: logged
            log.exception("a terminal's page failed terminal=%s", self._visit.target.terminal)
            self.close(1011)

    async def _tell(self, what: dict[str, Any]) -> None:
        """Send, and return when the browser has taken it."""
        with suppress(WebSocketClosedError):  # the page was left, and `on_close` follows
            await self.write_message(json.dumps(what))


def _set_headers(handler: RequestHandler) -> None:
    handler.set_header("Cache-Control", "no-store")
    handler.set_header("Referrer-Policy", "no-referrer")
    handler.set_header("X-Content-Type-Options", "nosniff")
    handler.set_header("X-Frame-Options", "DENY")
    handler.set_header(
        "Content-Security-Policy",
        f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' ws://{handler.request.host}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )


def _log_request(handler: RequestHandler) -> None:
    """A path has a secret in it: it is logged nowhere."""
    log.debug("%s %d", handler.request.method, handler.get_status())
