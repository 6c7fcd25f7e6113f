"""The client's side of HTTP as a machine of bytes: no socket, no clock, no waiting is known here.

A `Conversation` is one connection: `begin` gives the bytes of a request, `feed` takes what came, `next_part`
says what it means. It also knows when the connection may serve another request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from sandcell.client.http1 import AnswerReader, Cut, Head, Mark
from sandcell.client.nesting import INSIDE, run_of_caller
from sandcell.names import decode_names
from sandcell_container.end import End
from sandcell_container.engine import Address
from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = [
    "Address",
    "Conversation",
    "Cut",
    "Head",
    "Mark",
    "Request",
    "decode_body",
    "describe_end",
    "error_of",
    "gone",
    "path_of",
    "paused",
    "unreachable",
]

JSON_TYPE = "application/json"

_LINE = re.compile(r"[A-Z]+ /[!-~]*")
_VALUE = re.compile(r"[ -~]*")

Admitted = Literal[True, False, "unknown"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `headers`: what it has besides those that each has;
    `more_query`: what may stand in its query more than once. `repeatable`: sending it a second time does what sending it once does.

    `streamed`: its body follows, in chunks or, where it has a `length`, as so many bytes. `patience`: seconds until the head of its answer has to be there;
    None is what the transport gives everybody. A stream's head comes at once, whatever it waits for. `wakes`: a stopped
    sandbox is started for it. `admitted`: what is said of the work that it is for, where it does not arrive: a reader of
    what a run does may come too late for the guest, and the run was taken all the same.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    more_query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    streamed: bool = False
    length: int | None = None
    repeatable: bool = True
    patience: float | None = None
    wakes: bool = True
    admitted: Admitted = False

    @property
    def target(self) -> str:
        """The path and the query, without a blank; a name of a file that is no UTF-8 is sent as the bytes that it is."""
        query = urlencode([*self.query.items(), *self.more_query], errors="surrogateescape")
        return f"{self.path}?{query}" if query else self.path


class Conversation:
    """See the module."""

    def __init__(self, address: Address, token: str) -> None:
        host = f"{address.host}:{address.port}" if address.host else "sandbox"
        self._fixed = f" HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n".encode()
        self._reader = AnswerReader()
        self._has_sent = True
        self._is_chunked = True

    def begin(self, request: Request) -> bytes:
        """Return the bytes of `request`, whole unless its body is streamed."""
        line = f"{request.method} {request.target}"
        if _LINE.fullmatch(line) is None or _VALUE.fullmatch(request.content_type) is None:
            raise ValueError(f"no request can say {line[:80]!r} of {request.content_type[:80]!r}")
        self._reader.begin(request.method, may_upgrade="Upgrade" in request.headers)
        self._has_sent = not request.streamed
        head = line.encode() + self._fixed + _further(request.headers)
        if run_id := run_of_caller():
            head += f"{INSIDE}: {run_id}\r\n".encode()
        if request.streamed:
            self._is_chunked = request.length is None
            size = "Transfer-Encoding: chunked" if self._is_chunked else f"Content-Length: {request.length}"
            return head + f"Content-Type: {request.content_type}\r\n{size}\r\n\r\n".encode()
        if request.body or request.method in {"POST", "PUT"}:
            length = len(request.body)
            head += f"Content-Type: {request.content_type}\r\nContent-Length: {length}\r\n".encode()
        return head + b"\r\n" + request.body

    def chunk(self, data: bytes) -> bytes:
        """Return the bytes of one piece of a body."""
        return b"%x\r\n%b\r\n" % (len(data), data) if data and self._is_chunked else data

    def piece(self, data: bytes) -> bytes:
        """Return the bytes of one piece of a body, or those that end it where it is empty."""
        return self.chunk(data) if data else self.end()

    def end(self) -> bytes:
        """Return the bytes that end the body."""
        self._has_sent = True
        return b"0\r\n\r\n" if self._is_chunked else b""

    def feed(self, data: bytes) -> None:
        """Take what came; b"" is the end of the connection."""
        self._reader.feed(data)

    def next_part(self) -> Head | bytes | Mark:
        """Return the next part of the answer, in order: a head, data, END; or that more bytes are needed.

        Raises:
            Cut: the connection ended in the middle of the answer, or what came is no HTTP.
        """
        return self._reader.next_part()

    @property
    def direct(self) -> int:
        """How many bytes come next that are data and nothing else: who reads them past this says so by `skip`."""
        return self._reader.direct

    def skip(self, count: int) -> None:
        self._reader.skip(count)

    @property
    def reusable(self) -> bool:
        """Whether both sides have said all and the connection stays."""
        return self._has_sent and self._reader.is_done and self._reader.stays


def _further(headers: Mapping[str, str]) -> bytes:
    for name, value in headers.items():
        if _VALUE.fullmatch(value) is None:
            raise ValueError(f"no request can say {name}: {value[:80]!r}")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()


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


def gone(
    address: Address,
    *,
    admitted: Admitted,
    end: End | None = None,
    handle: Literal["open", "closed", "removed"] = "open",
) -> SandcellError:
    """Return the error of a guest that has ended: nothing listens at its own socket any more. `end` is how, where that is
    known. `handle`: through "closed" ones nobody can start it again, and one that "removed" it knows that it is gone."""
    if handle == "removed":
        hint = "it was removed with all its files: Sandbox.create() makes another"
    elif handle == "closed":
        hint = "this handle was given back: Sandbox.connect(name) starts a sandbox that is stopped"
    else:
        hint = "what ran in it is lost; a new call starts it again where it was stopped, see on_release"
    return error(
        ErrorCode.SANDBOX_GONE,
        f"the sandbox has ended: {describe_end(end) or f'nothing listens at {address}'}",
        hint=hint,
        details={"admitted": admitted} | ({} if end is None else {"end": asdict(end)}),
    )


def describe_end(end: End | None) -> str:
    """Return in words how a sandbox ended, nothing where that is not known."""
    match end:
        case None:
            return ""
        case End(cause="culled", limit="idle_timeout"):
            return "nothing ran in it for longer than its idle_timeout"
        case End(cause="culled"):
            return "nobody held it any more"
        case End(cause="oom"):
            return "it had no memory left"
        case End(cause="killed", who=str(who)):
            return f"it was stopped or removed by the {who}"
        case End(signal=int(number)):
            return f"signal {number} from outside ended it"
        case End(cause="killed"):
            return "it was stopped"
        case End(cause="exited", code=int(code)):
            return f"what serves it ended with exit code {code}"
        case _:
            return "it was removed, or ended without a word"


def paused(*, admitted: Admitted) -> SandcellError:
    """Return the error of a guest that cannot answer: all of its sandbox is held still from outside."""
    return error(
        ErrorCode.UNREACHABLE,
        "the sandbox is paused, which somebody has done from outside: nothing in it runs, and nothing of it is lost",
        hint="sandbox.start(), sandcell start --sandbox NAME or docker unpause lets it go on; then look whether the request was taken",
        details={"admitted": admitted, "paused": True},
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
