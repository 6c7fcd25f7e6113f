"""What every handler of the guest has: the token, the request id, typed bodies, errors by the one table."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from tornado.web import HTTPError, RequestHandler, stream_request_body

from sandcell.client.nesting import INSIDE
from sandcell.failure import failure_of
from sandcell.guest.connections import stream_of
from sandcell.guest.former import as_lost, note_answer
from sandcell.names import decode_names, encode_names
from sandcell_container.errors import CODES, ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterable
    from types import TracebackType

    from tornado.httputil import HTTPHeaders

    from sandcell.guest.state import Guest

__all__ = ["ApiHandler", "NotFoundHandler", "check_token", "streamed"]

T = TypeVar("T")
log = logging.getLogger(__name__)

_CREATED = 201
_HTTP = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED}


def check_token(given: str, query: str, *, token: str) -> None:
    """Return when the header `Authorization` or the query's `token` holds the token.

    Raises:
        Refused (UNAUTHENTICATED): neither does. Compared in constant time.
    """
    scheme, _, text = given.partition(" ")
    offered = text.strip() if scheme.lower() in {"bearer", "token"} else query
    if not hmac.compare_digest(offered.encode(), token.encode()):
        raise error(
            ErrorCode.UNAUTHENTICATED,
            "the token is missing or wrong",
            hint="send the sandbox's token as `Authorization: Bearer TOKEN`",
        )


class ApiHandler(RequestHandler):
    """One noun of the interface. See `for_body` for how its body comes in."""

    request_id = ""

    def initialize(self, guest: Guest) -> None:
        self.guest = guest
        self._taken = bytearray()
        self._size = 0
        self._task: asyncio.Task[Any] | None = None
        self._client_gone = False
        self._is_cancelled = False

    @classmethod
    def for_body(cls, headers: HTTPHeaders, *, is_short: bool) -> type[ApiHandler]:
        """Return the class that serves a request with these headers: this one takes a short body, which comes whole.

        Whole costs less, and is bounded by what the head says; in pieces the bound is ours, and so is the refusal.
        """
        return cls if is_short else streamed(cls)

    def set_default_headers(self) -> None:
        self.clear_header("Server")  # who asks knows, and each header costs both ends

    def prepare(self) -> Awaitable[None] | None:
        self.request_id = self.request.headers.get("X-Request-Id", "")[:128] or self.guest.next_request_id()
        self.set_header("X-Request-Id", self.request_id)
        given = self.request.headers.get("Authorization", "")
        query = "" if given else self.get_query_argument("token", "")
        check_token(given, query, token=self.guest.boot.token)
        if self.guest.leases.is_over:
            raise error(
                ErrorCode.SANDBOX_GONE,
                "the sandbox is just ending",
                hint="where its files are kept, the same call starts it again as soon as it has ended",
                details={"admitted": False},
            )
        return None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Take a piece of the body; what is over the bound is read and dropped, so that the refusal arrives."""
        self._size += len(chunk)
        if self._size <= self.guest.config.max_body:
            self._taken += chunk
        return None

    def body(
        self, kind: type[T], *, lone: Literal["strict", "surrogateescape", "surrogatepass"] = "strict"
    ) -> T:
        """Return the body as `kind`; `lone` as `decode_names`.

        Raises:
            InvalidRequest: TOO_LARGE; INVALID_JSON; INVALID_ARGUMENT with the field that does not fit.
        """
        self._check_size()
        try:
            return decode_names(self.request.body or self._taken or b"{}", kind, lone=lone)
        except UnicodeEncodeError as problem:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"the body holds text that is none: {problem.reason}",
                hint="a lone surrogate is half a character",
            ) from problem
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise failure_of(problem) from problem

    def raw_body(self) -> bytes:
        """Return the body as it came. Raises InvalidRequest (TOO_LARGE)."""
        self._check_size()
        return self.request.body or bytes(self._taken)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the query's `name`, which is true or false."""
        text = self.get_query_argument(name, "true" if default else "false")
        if text not in {"true", "false"}:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"{name}={text[:40]} is not true or false",
                details={"field": name},
            )
        return text == "true"

    def number(self, name: str, *, least: float = 0.0, most: float = math.inf) -> float | None:
        """Return the query's `name` as a number within these bounds, None where it is not given."""
        text = self.get_query_argument(name, "")
        if not text:
            return None
        try:
            given = float(text)
        except ValueError:
            given = math.nan
        if not least <= given <= most:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"{name}={text[:40]} is no number from {least:g} to {most:g}",
                details={"field": name},
            )
        return given

    def choice(self, name: str, known: Iterable[str], *, default: str = "") -> str:
        """Return the query's `name`, which is one of `known`, or `default`."""
        text = self.get_query_argument(name, default)
        if text != default and text not in known:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"{name}={text[:40]} is none of {', '.join(known)}",
                details={"field": name},
            )
        return text

    def reply(self, answer: object, *, status: int = 200) -> None:
        """Send `answer` as JSON."""
        if status == _CREATED:
            note_answer(self.guest.memo, answer)
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(self._masked(encode_names(answer)))

    def _masked(self, answer: bytes) -> bytes:
        masks = self.guest.masks
        return answer if masks is None else masks.json(answer)

    @property
    def inside(self) -> str:
        """The id of the run whose host tool asks, "" where none does."""
        return self.request.headers.get(INSIDE, "")

    def cancel_when_client_goes(self) -> None:
        """From now on a client that closes the connection cancels this handler's method; so does one that has already."""
        self._task = asyncio.current_task()
        if self.client_gone:
            self._cancel()

    @contextmanager
    def while_client_waits(self) -> Generator[None]:
        """A client that closes the connection cancels what is in the block, the answer included."""
        self.cancel_when_client_goes()
        try:
            yield
        except asyncio.CancelledError:
            if not self.client_gone:
                raise

    def on_connection_close(self) -> None:
        self._client_gone = True
        self._cancel()
        super().on_connection_close()

    def _cancel(self) -> None:
        """Once: what the method does because of that is not to be broken off."""
        task, self._task = self._task, None
        if task is not None and not self._is_cancelled:
            self._is_cancelled = True
            task.cancel()

    @property
    def headers_written(self) -> bool:
        return self._headers_written

    @property
    def client_gone(self) -> bool:
        """Also where the end of the connection came along with the request: then tornado calls nobody back."""
        stream = stream_of(self.request.connection)
        return self._client_gone or (stream is not None and stream.closed())

    def compute_etag(self) -> str | None:
        return None  # an answer is not cached, and hashing it costs

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        problem = self._failure(status_code, kwargs.get("exc_info"))
        row = CODES[problem.code]
        self.set_status(row.status)
        self.set_header("X-Request-Id", self.request_id)
        self.set_header("Content-Type", "application/json")
        if row.status == 405:
            self.set_header("Allow", ", ".join(sorted(self.allowed_methods())))
        self.finish(self._masked(encode_names(problem.to_dict())))

    def allowed_methods(self) -> list[str]:
        """Return the methods that this noun has."""
        return [each for each in self.SUPPORTED_METHODS if _is_own(type(self), each.lower())]

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        expected = isinstance(value, HTTPError) or (
            isinstance(value, SandcellError) and value.code != ErrorCode.INTERNAL
        )
        if value is None or expected:
            log.debug("refused request=%s path=%s: %s", self.request_id, self.request.path, value)
        else:
            log.error("failed request=%s path=%s", self.request_id, self.request.path, exc_info=value)

    def _check_size(self) -> None:
        limit = self.guest.config.max_body
        if self._size > limit:
            raise error(
                ErrorCode.TOO_LARGE,
                f"the body has {self._size} bytes, at most {limit} are taken",
                hint="put large data into a file: PUT /v1/files?path=",
                details={"limit": limit},
            )

    def _failure(self, status: int, exc_info: Any) -> SandcellError:
        value = exc_info[1] if exc_info else None
        if isinstance(value, HTTPError) or value is None:
            code = _HTTP.get(status, ErrorCode.INVALID_ARGUMENT if status < 500 else ErrorCode.INTERNAL)
            said = f"{self.request.method} {self.request.path}"
            return error(code, f"{said}: {value or status}", hint="GET /openapi.json lists what there is")
        return as_lost(self.guest.memo, failure_of(value, request_id=self.request_id))


def _is_own(handler: type[RequestHandler], method: str) -> bool:
    return getattr(handler, method) is not getattr(RequestHandler, method)


def streamed(handler: type[ApiHandler]) -> type[ApiHandler]:
    """Return `handler` with a body that streams in: tornado tells by the class of the handler how it comes."""
    return stream_request_body(type(handler.__name__, (handler,), {}))


class NotFoundHandler(ApiHandler):
    """Any path that is none."""

    def prepare(self) -> Awaitable[None] | None:
        super().prepare()
        raise HTTPError(404)
