"""The client's side of HTTP as a machine of bytes: no socket, no clock, no waiting is known here.

A `Conversation` is one connection: `begin` gives the bytes of a request, `feed` takes what came, `next_part`
says what it means. It also knows when the connection may serve another request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import h11
import msgspec

from sandcell.names import decode_names
from sandcell_container.engine import Address
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Address",
    "Conversation",
    "Cut",
    "Head",
    "Mark",
    "Request",
    "decode_body",
    "error_of",
    "gone",
    "path_of",
    "unreachable",
]

JSON_TYPE = "application/json"

Admitted = Literal[True, False, "unknown"]
T = TypeVar("T")


class Cut(Exception):
    """The connection ended before the answer did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `repeatable`: sending it a second time does what sending it once does.

    `streamed`: its body follows in chunks. `patience`: seconds until the head of its answer has to be there;
    None is what the transport gives everybody. A stream's head comes at once, whatever it waits for.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    content_type: str = JSON_TYPE
    streamed: bool = False
    repeatable: bool = True
    patience: float | None = None

    @property
    def target(self) -> str:
        """The path and the query; a name of a file that is no UTF-8 is sent as the bytes that it is."""
        query = urlencode(self.query, errors="surrogateescape")
        return f"{self.path}?{query}" if query else self.path


class Head(NamedTuple):
    """The head of an answer; names of headers in lower case."""

    status: int
    headers: dict[str, str]


class Mark(Enum):
    """What else than a head or data may come next."""

    NEED_DATA = "need data"
    END = "end"


class Conversation:
    """See the module."""

    def __init__(self, address: Address, token: str) -> None:
        self._machine = h11.Connection(h11.CLIENT)
        self._fixed = (
            ("Host", f"{address.host}:{address.port}" if address.host else "sandbox"),
            ("Authorization", f"Bearer {token}"),
        )

    def begin(self, request: Request) -> bytes:
        """Return the bytes of `request`, whole unless its body is streamed."""
        headers = list(self._fixed)
        if request.streamed:
            headers += [("Content-Type", request.content_type), ("Transfer-Encoding", "chunked")]
        elif request.body or request.method in {"POST", "PUT"}:
            headers += [("Content-Type", request.content_type), ("Content-Length", str(len(request.body)))]
        head = self._send(h11.Request(method=request.method, target=request.target, headers=headers))
        if request.streamed:
            return head
        return head + (self.chunk(request.body) if request.body else b"") + self.end()

    def chunk(self, data: bytes) -> bytes:
        """Return the bytes of one piece of a body."""
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        """Return the bytes that end the body."""
        return self._send(h11.EndOfMessage())

    def feed(self, data: bytes) -> None:
        """Take what came; b"" is the end of the connection."""
        try:
            self._machine.receive_data(data)
        except h11.RemoteProtocolError as problem:
            raise Cut(str(problem)) from problem

    def next_part(self) -> Head | bytes | Mark:
        """Return the next part of the answer, in order: a head, data, END; or that more bytes are needed.

        Raises:
            Cut: the connection ended in the middle of the answer, or what came is no HTTP.
        """
        try:
            event = self._machine.next_event()
        except h11.RemoteProtocolError as problem:
            raise Cut(str(problem)) from problem
        match event:
            case h11.Response():
                return Head(event.status_code, _text_headers(event.headers))
            case h11.Data():
                return bytes(event.data)
            case h11.EndOfMessage():
                return Mark.END
            case h11.InformationalResponse():
                return self.next_part()
            case h11.ConnectionClosed():
                raise Cut("the connection was closed before an answer")
            case _:
                return Mark.NEED_DATA

    @property
    def reusable(self) -> bool:
        """Whether both sides have said all and the connection stays."""
        return self._machine.our_state is h11.DONE and self._machine.their_state is h11.DONE

    def recycle(self) -> None:
        """Make it ready for the next request."""
        self._machine.start_next_cycle()

    def _send(self, event: h11.Event) -> bytes:
        return self._machine.send(event) or b""


def _text_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("ascii"): value.decode("latin-1") for name, value in headers}


def path_of(*parts: str) -> str:
    """Return the path of a resource: `/v1` and the parts, each quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


# --- bodies and errors


class _ErrorFields(msgspec.Struct):
    code: str
    message: str = ""
    hint: str = ""
    details: dict[str, Any] = {}
    retryable: bool | None = None


class _ErrorBody(msgspec.Struct):
    error: _ErrorFields


_decode_error = msgspec.json.Decoder(_ErrorBody).decode


def error_of(status: int, body: bytes) -> SandcellError:
    """Return the error that an answer or an ERROR frame carries, INTERNAL where it is none of ours."""
    try:
        said = _decode_error(body).error
        code = ErrorCode(said.code)
    except (msgspec.MsgspecError, ValueError):
        shown = body[:200].decode(errors="replace")
        return error(
            ErrorCode.INTERNAL,
            f"the sandbox answered {status} in a form that this version does not know: {shown}",
            hint="compare the versions of client and sandbox",
            details={"status": status},
        )
    return error(code, said.message, hint=said.hint, details=said.details, retryable=said.retryable)


def decode_body(body: bytes, kind: type[T]) -> T:
    """Return the answer `body` as `kind`.

    Raises:
        InternalError: it does not fit.
    """
    try:
        return decode_names(body, kind)
    except msgspec.MsgspecError as problem:
        raise error(
            ErrorCode.INTERNAL,
            f"the sandbox sent an answer that this version cannot read: {problem}",
            hint="compare the versions of client and sandbox",
        ) from problem


def gone(address: Address, *, admitted: Admitted) -> SandcellError:
    """Return the error of a guest that has ended: nothing listens at its own socket any more."""
    return error(
        ErrorCode.SANDBOX_GONE,
        f"the sandbox has ended: nothing listens at {address}",
        hint="create a new sandbox; a sandbox ends with its creator unless on_release says otherwise",
        details={"admitted": admitted},
    )


def unreachable(address: Address, why: str, *, admitted: Admitted) -> SandcellError:
    """Return the error of a guest that may be there and did not answer."""
    return error(
        ErrorCode.UNREACHABLE,
        f"no answer from {address}: {why}",
        hint={
            True: "the request was taken; look at what it started before you repeat it",
            False: "the request was not taken; repeat it",
            "unknown": "the request may have been taken; repeating it with the same id is safe",
        }[admitted],
        details={"admitted": admitted},
    )
