"""The routes of the guest, and the server that they make."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler, url

from sandcell.guest.commands import ExecHandler
from sandcell.guest.contexts import (
    ContextHandler,
    ContextInterruptHandler,
    ContextRestartHandler,
    ContextsHandler,
)
from sandcell.guest.executions import (
    ExecutionEventsHandler,
    ExecutionHandler,
    ExecutionInputHandler,
    ExecutionInterruptHandler,
    ExecutionsHandler,
)
from sandcell.guest.files import FileHandler, ListFilesHandler, MakeFolderHandler, StatFileHandler
from sandcell.guest.front_handlers import FrontChannels, FrontHandler, FrontsHandler
from sandcell.guest.openapi import OpenApiHandler
from sandcell.guest.request import ApiHandler, NotFoundHandler
from sandcell.guest.sandbox import EventsHandler, HealthHandler, InfoHandler

if TYPE_CHECKING:
    from sandcell.guest.state import Guest

__all__ = ["ROUTES", "Route", "make_server"]

log = logging.getLogger(__name__)

Route = tuple[str, type[RequestHandler]]

_ID = "([^/]+)"

# The busiest first: tornado looks them through in order.
ROUTES: tuple[Route, ...] = (
    ("/v1/executions", ExecutionsHandler),
    ("/v1/exec", ExecHandler),
    (f"/v1/executions/{_ID}", ExecutionHandler),
    (f"/v1/executions/{_ID}/events", ExecutionEventsHandler),
    (f"/v1/executions/{_ID}/interrupt", ExecutionInterruptHandler),
    (f"/v1/executions/{_ID}/input", ExecutionInputHandler),
    ("/v1/files", FileHandler),
    ("/v1/files/list", ListFilesHandler),
    ("/v1/files/stat", StatFileHandler),
    ("/v1/files/mkdir", MakeFolderHandler),
    ("/v1/contexts", ContextsHandler),
    (f"/v1/contexts/{_ID}", ContextHandler),
    (f"/v1/contexts/{_ID}/interrupt", ContextInterruptHandler),
    (f"/v1/contexts/{_ID}/restart", ContextRestartHandler),
    ("/v1/fronts", FrontsHandler),
    (f"/v1/fronts/{_ID}", FrontHandler),
    (f"/v1/fronts/{_ID}/channels", FrontChannels),
    ("/v1/health", HealthHandler),
    ("/v1/info", InfoHandler),
    ("/v1/events", EventsHandler),
    ("/openapi.json", OpenApiHandler),
)

_NO_BOUND = 2**62


def make_server(guest: Guest) -> HTTPServer:
    """Return the server of `guest`; it listens nowhere yet."""
    application = Application(
        [url(path, handler, {"guest": guest}) for path, handler in ROUTES],
        default_handler_class=NotFoundHandler,
        default_handler_args={"guest": guest},
        log_function=_log_request,
    )
    # Bodies are bounded by the handlers, which can say so in our form, and files have no bound.
    server = HTTPServer(application, max_body_size=_NO_BOUND)
    # A client keeps its connections as long as it likes: a timer for each request costs a tenth of a short one.
    server.conn_params.header_timeout = None
    return server


def _log_request(handler: RequestHandler) -> None:
    request_id = handler.request_id if isinstance(handler, ApiHandler) else ""
    milliseconds = 1000 * handler.request.request_time()
    log.debug(
        "%s %s %d request=%s %.1fms",
        handler.request.method,
        handler.request.path,
        handler.get_status(),
        request_id,
        milliseconds,
    )
