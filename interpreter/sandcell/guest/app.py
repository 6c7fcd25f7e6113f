"""The routes of the guest, and the server that they make."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler, url

from sandcell.guest.connections import Phase, stream_of
from sandcell.guest.contexts import (
    CompleteHandler,
    ContextHandler,
    ContextInterruptHandler,
    ContextRestartHandler,
    ContextsHandler,
    ContextTicketHandler,
    InspectHandler,
    ObjectHandler,
    VariablesHandler,
)
from sandcell.guest.exec_handler import ExecHandler
from sandcell.guest.executions import (
    ExecutionEventsHandler,
    ExecutionHandler,
    ExecutionInputHandler,
    ExecutionInterruptHandler,
    ExecutionsHandler,
    ExecutionToolHandler,
)
from sandcell.guest.file_handlers import (
    ArchiveHandler,
    CopyFileHandler,
    InsertTextHandler,
    ListFilesHandler,
    MakeFolderHandler,
    RenameFileHandler,
    ReplaceTextHandler,
    SearchFilesHandler,
    StatFileHandler,
)
from sandcell.guest.files import FileHandler
from sandcell.guest.front_handlers import FrontChannels, FrontHandler, FrontsHandler
from sandcell.guest.git_handler import GitHandler
from sandcell.guest.lending import DescriptorHandler
from sandcell.guest.openapi import OpenApiHandler
from sandcell.guest.port_handlers import (
    PortConnectHandler,
    PortHandler,
    PortProxyHandler,
    PortsHandler,
)
from sandcell.guest.process_handlers import (
    ProcessesHandler,
    ProcessEventsHandler,
    ProcessHandler,
    ProcessKillHandler,
    ProcessSignalHandler,
    ProcessStdinHandler,
    ProcessWaitHandler,
)
from sandcell.guest.request import ApiHandler, NotFoundHandler
from sandcell.guest.sandbox import EventsHandler, HealthHandler, InfoHandler, StatsHandler, TopHandler
from sandcell.guest.sessions import (
    EnvHandler,
    SessionExecHandler,
    SessionHandler,
    SessionInterruptHandler,
    SessionProcessesHandler,
    SessionRestartHandler,
    SessionsHandler,
)
from sandcell.guest.terminals import (
    TerminalEventsHandler,
    TerminalHandler,
    TerminalInputHandler,
    TerminalIo,
    TerminalResizeHandler,
    TerminalsHandler,
    TerminalWaitHandler,
)
from sandcell.guest.watch_handler import WatchHandler

if TYPE_CHECKING:
    from tornado.httputil import HTTPHeaders, HTTPServerRequest

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
    (f"/v1/executions/{_ID}/tools/{_ID}", ExecutionToolHandler),
    (f"/v1/sessions/{_ID}/exec", SessionExecHandler),
    ("/v1/sessions", SessionsHandler),
    (f"/v1/sessions/{_ID}", SessionHandler),
    (f"/v1/sessions/{_ID}/processes", SessionProcessesHandler),
    (f"/v1/sessions/{_ID}/restart", SessionRestartHandler),
    (f"/v1/sessions/{_ID}/interrupt", SessionInterruptHandler),
    ("/v1/env", EnvHandler),
    ("/v1/processes", ProcessesHandler),
    (f"/v1/processes/{_ID}", ProcessHandler),
    (f"/v1/processes/{_ID}/events", ProcessEventsHandler),
    (f"/v1/processes/{_ID}/wait", ProcessWaitHandler),
    (f"/v1/processes/{_ID}/stdin", ProcessStdinHandler),
    (f"/v1/processes/{_ID}/signal", ProcessSignalHandler),
    (f"/v1/processes/{_ID}/kill", ProcessKillHandler),
    ("/v1/files", FileHandler),
    ("/v1/files/descriptor", DescriptorHandler),
    ("/v1/files/list", ListFilesHandler),
    ("/v1/files/stat", StatFileHandler),
    ("/v1/files/mkdir", MakeFolderHandler),
    ("/v1/files/rename", RenameFileHandler),
    ("/v1/files/copy", CopyFileHandler),
    ("/v1/files/replace", ReplaceTextHandler),
    ("/v1/files/insert", InsertTextHandler),
    ("/v1/files/search", SearchFilesHandler),
    ("/v1/files/archive", ArchiveHandler),
    ("/v1/files/watch", WatchHandler),
    ("/v1/contexts", ContextsHandler),
    (f"/v1/contexts/{_ID}", ContextHandler),
    (f"/v1/contexts/{_ID}/interrupt", ContextInterruptHandler),
    (f"/v1/contexts/{_ID}/restart", ContextRestartHandler),
    (f"/v1/contexts/{_ID}/ticket", ContextTicketHandler),
    (f"/v1/contexts/{_ID}/complete", CompleteHandler),
    (f"/v1/contexts/{_ID}/inspect", InspectHandler),
    (f"/v1/contexts/{_ID}/variables", VariablesHandler),
    (f"/v1/contexts/{_ID}/objects/{_ID}", ObjectHandler),
    ("/v1/terminals", TerminalsHandler),
    (f"/v1/terminals/{_ID}", TerminalHandler),
    (f"/v1/terminals/{_ID}/events", TerminalEventsHandler),
    (f"/v1/terminals/{_ID}/input", TerminalInputHandler),
    (f"/v1/terminals/{_ID}/io", TerminalIo),
    (f"/v1/terminals/{_ID}/resize", TerminalResizeHandler),
    (f"/v1/terminals/{_ID}/wait", TerminalWaitHandler),
    (f"/v1/git/{_ID}", GitHandler),
    ("/v1/ports", PortsHandler),
    (f"/v1/ports/{_ID}", PortHandler),
    (f"/v1/ports/{_ID}/connect", PortConnectHandler),
    (f"/v1/ports/{_ID}/proxy/(.*)", PortProxyHandler),
    ("/v1/fronts", FrontsHandler),
    (f"/v1/fronts/{_ID}", FrontHandler),
    (f"/v1/fronts/{_ID}/channels", FrontChannels),
    ("/v1/health", HealthHandler),
    ("/v1/info", InfoHandler),
    ("/v1/top", TopHandler),
    ("/v1/stats", StatsHandler),
    ("/v1/events", EventsHandler),
    ("/openapi.json", OpenApiHandler),
)

_NO_BOUND = 2**62
_PIECE = 2**20  # of a body, that is taken at once where it goes into a file


def make_server(guest: Guest) -> HTTPServer:
    """Return the server of `guest`; it listens nowhere yet."""
    application = _BoundedApplication(
        [url(path, handler, {"guest": guest}) for path, handler in ROUTES],
        default_handler_class=NotFoundHandler,
        default_handler_args={"guest": guest},
        log_function=_log_request,
        max_body=guest.config.max_body,
    )
    # Bodies are bounded by the handlers, which can say so in our form, and files have no bound.
    server = HTTPServer(application, max_body_size=_NO_BOUND)
    server.conn_params.header_timeout = None  # `Connections` has the deadlines
    server.conn_params.chunk_size = _PIECE
    return server


class _BoundedApplication(Application):
    """Takes short bodies whole, and long ones in pieces, which bounds them."""

    def get_handler_delegate(
        self,
        request: HTTPServerRequest,
        target_class: type[RequestHandler],
        target_kwargs: dict[str, Any] | None = None,
        path_args: list[bytes] | None = None,
        path_kwargs: dict[str, bytes] | None = None,
    ) -> Any:
        stream = stream_of(request.connection)
        if stream is not None:
            stream.phase = Phase.BODY if _has_body(request.headers) else Phase.SERVED
        if issubclass(target_class, ApiHandler):
            is_short = self._is_short(request.headers)
            target_class = target_class.for_body(request.headers, is_short=is_short)
        return super().get_handler_delegate(request, target_class, target_kwargs, path_args, path_kwargs)

    def _is_short(self, headers: HTTPHeaders) -> bool:
        length = headers.get("Content-Length", "0")
        bound: int = self.settings["max_body"]
        return length.isdecimal() and int(length) <= bound and "Transfer-Encoding" not in headers


def _has_body(headers: HTTPHeaders) -> bool:
    return headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers


def _log_request(handler: RequestHandler) -> None:
    if not log.isEnabledFor(logging.DEBUG):
        return
    asked, status = handler.request, handler.get_status()
    request_id = handler.request_id if isinstance(handler, ApiHandler) else ""
    took_ms = 1000 * asked.request_time()
    log.debug("%s %s %d request=%s %.1fms", asked.method, asked.path, status, request_id, took_ms)
