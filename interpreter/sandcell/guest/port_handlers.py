"""The HTTP side of ports. A connection to one is no HTTP any more: it is taken from the server, and bytes go both ways."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tornado.web import stream_request_body

from sandcell.api import ExposePort
from sandcell.client.nesting import INSIDE
from sandcell.guest.connections import refusal_of, stream_of
from sandcell.guest.request import ApiHandler
from sandcell.ports.exchange import NoAnswer, pass_on, relay
from sandcell.ports.heads import BadHead, RequestHead, Via
from sandcell.ports.rules import check_port
from sandcell.ports.tunnel import EXPOSURE
from sandcell.ports.wire import Wire
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from tornado.httputil import HTTPHeaders

__all__ = ["PortConnectHandler", "PortHandler", "PortProxyHandler", "PortsHandler"]

_METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    *("PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY"),
)
_SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
# What is for the guest, and not for the app.
_OURS = frozenset({"authorization", "x-request-id", INSIDE.lower()})


class PortsHandler(ApiHandler):
    """GET, POST /v1/ports"""

    def get(self) -> None:
        self.reply(self.guest.ports.list())

    def post(self) -> None:
        self.reply(self.guest.ports.expose(self.body(ExposePort)), status=201)


class PortHandler(ApiHandler):
    """DELETE /v1/ports/{id}"""

    def delete(self, port: str) -> None:
        self.guest.ports.close(_number(port))
        self.reply({"port": _number(port)})


class PortConnectHandler(ApiHandler):
    """POST /v1/ports/{id}/connect: the connection becomes one to the port, with an end of its own in each direction."""

    async def post(self, port: str) -> None:
        number = _number(port)
        if self.request.headers.get("Upgrade", "").lower() != "tcp":
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                "a connection to a port is no request",
                hint="send `Connection: Upgrade` and `Upgrade: tcp`, or use /v1/ports/{port}/proxy/",
            )
        if EXPOSURE in self.request.headers:
            self.guest.ports.check_exposure(number, self.request.headers[EXPOSURE])
        app = await self.guest.ports.connect(number)
        client = _take_over(self, app)
        if client is None:
            return

        async def go_on() -> None:
            with client, app:
                try:
                    await client.send(_SWITCHING)
                except OSError:
                    return  # it has gone already
                await relay(client, app)

        self.guest.ports.start(go_on)


@stream_request_body
class PortProxyHandler(ApiHandler):
    """Any method, /v1/ports/{id}/proxy/...: a request to what listens there.

    The connection is handed over before the body is read: so the app has what was sent and not what was understood of
    it, and WebSockets need nothing more.
    """

    SUPPORTED_METHODS = _METHODS

    @classmethod
    def for_body(cls, headers: HTTPHeaders, *, is_short: bool) -> type[ApiHandler]:
        return cls

    async def prepare(self) -> None:
        super().prepare()
        port = _number(self.path_args[0])
        head = RequestHead(
            str(self.request.method), self.request.uri or "/", tuple(_pairs(self.request.headers))
        )
        prefix = f"/v1/ports/{port}/proxy"
        origin, client_ip = f"http://{self.request.host}", self.request.remote_ip or ""
        via = Via(port=port, origin=origin, client=client_ip, prefix=prefix, told_prefix=prefix, drops=_OURS)
        app = await self.guest.ports.connect(port)
        client = _take_over(self, app)
        if client is None:
            return

        async def go_on() -> None:
            with client, app:
                await _serve(client, app, head, via, _path_below(prefix, head.target))

        self.guest.ports.start(go_on)

    def get(self, port: str, path: str) -> None:
        """There is nothing left to do: `prepare` has handed the connection over."""

    head = post = put = patch = delete = get


async def _serve(client: Wire, app: Wire, head: RequestHead, via: Via, target: str) -> None:
    try:
        await pass_on(client, app, head, via, target)
    except NoAnswer as problem:
        refusal = error(
            ErrorCode.PORT_NOT_LISTENING,
            f"what listens on port {via.port} ended the connection without an answer: {problem}"[:200],
            hint="its own output may say why",
            details={"port": via.port},
        )
    except BadHead as problem:
        refusal = error(ErrorCode.INVALID_ARGUMENT, f"the request cannot be passed on: {problem}"[:200])
    else:
        return
    with suppress(OSError):  # it has gone, and needs no answer
        await client.send(refusal_of(refusal))


def _take_over(handler: ApiHandler, app: Wire) -> Wire | None:
    """Return the connection of the request, which is answered no further; None where it has gone, and `app` is closed."""
    stream = stream_of(handler.request.connection)
    if stream is None or stream.closed():
        app.close()
        return None
    handler.detach()
    return Wire(*stream.take_over())


def _pairs(headers: HTTPHeaders) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers.get_all()]


def _path_below(prefix: str, target: str) -> str:
    """Return the part of the target that is the app's, without the query's `token`, which is ours."""
    path, _, query = target.partition("?")
    path = path.removeprefix(prefix) or "/"
    kept = [each for each in query.split("&") if each and not each.startswith("token=")]
    return f"{path}?{'&'.join(kept)}" if kept else path


def _number(text: str) -> int:
    return check_port(int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else text)
