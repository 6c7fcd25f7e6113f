"""The answers of HTTP/1.1 as a machine of bytes: what of RFC 9112 a client needs, and nothing that it might guess. It reads
the bodies of requests, too, for who passes them on.

Of our own because each short call pays for it: h11, which this is compared with in the tests, takes a tenth of a
millisecond for a request and its answer. It refuses what can be read in two ways: both lengths, lines that go on, bare
line feeds, blanks before a colon.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

__all__ = ["AnswerReader", "Cut", "Head", "Mark"]

_LONGEST_HEAD = 2**16
_LONGEST_LINE = 2**12  # of a chunk: its size, and extensions that nobody sends
_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n\0]*)?"
    rb"((?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*)*)\r\n\r\n"
)
_TRAILERS = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n)*\r\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n\0]*)?\r\n")


class Cut(Exception):
    """The connection ended before the answer did, or what came is no HTTP. `is_reset`: the other end has said so. A unix
    socket does that where something was left unread: the request was not read to its end, and nothing done for it.
    Source: unix(7)."""

    def __init__(self, why: str, *, is_reset: bool = False) -> None:
        super().__init__(why)
        self.is_reset = is_reset


class Head(NamedTuple):
    """The head of an answer; names of headers in lower case, those that come twice joined by ", "."""

    status: int
    headers: dict[str, str]


class Mark(Enum):
    """What else than a head or data may come next."""

    NEED_DATA = "need data"
    END = "end"


class _At(Enum):
    """What comes next in the bytes."""

    HEAD = "head"
    DATA = "data"  # `_left` bytes of it
    AFTER_CHUNK = "after a chunk"
    SIZE = "size of a chunk"
    TRAILERS = "trailers"
    TO_THE_END = "data to the end of the connection"
    DONE = "done"


class AnswerReader:
    """Reads one answer after another: `begin`, then `feed` what came and take its parts by `next_part`, to END."""

    def __init__(self) -> None:
        self._data = b""
        self._from = 0
        self._has_ended = False
        self._at = _At.DONE
        self._left = 0
        self._is_chunked = False
        self._is_bodiless = False
        self._may_upgrade = False
        self._stays = True

    @property
    def is_done(self) -> bool:
        """Whether the answer was read to its end, and no byte behind it came."""
        return self._at is _At.DONE and self._from == len(self._data)

    @property
    def stays(self) -> bool:
        """Whether the connection stays open behind this answer."""
        return self._stays

    @property
    def direct(self) -> int:
        """How many bytes of data come next that were not fed yet, and nothing between them."""
        is_plain = self._at is _At.DATA and not self._is_chunked
        return self._left if is_plain and self._from == len(self._data) else 0

    def skip(self, count: int) -> None:
        """So many of these were read elsewhere."""
        self._left -= count

    def begin(self, method: str, *, may_upgrade: bool = False) -> None:
        """The answer of a request with this method is next. `may_upgrade`: it may be 101, and what follows is data to the
        end of the connection."""
        self._at = _At.HEAD
        self._is_bodiless = method == "HEAD"
        self._may_upgrade = may_upgrade

    def begin_body(self, headers: dict[str, str]) -> None:
        """The body of a request with these headers is next; one that tells no length has none.

        Raises:
            Cut: its length can be read in two ways.
        """
        self._is_bodiless = not {"content-length", "transfer-encoding"} & headers.keys()
        self._measure(200, headers, is_newest=True)

    def begin_answer_body(self, method: str, status: int, headers: dict[str, str]) -> None:
        """The body of an answer with this head, which was read elsewhere, is next.

        Raises:
            Cut: its length can be read in two ways.
        """
        self._is_bodiless = method == "HEAD"
        self._measure(status, headers, is_newest=True)

    def feed(self, data: bytes) -> None:
        """Take what came; b"" is the end of the connection."""
        self._has_ended = self._has_ended or not data
        self._data = self._data[self._from :] + data if self._from < len(self._data) else data
        self._from = 0

    def next_part(self) -> Head | bytes | Mark:
        """Return the next part of the answer, in order: its head, data, END; or that more bytes are needed.

        Raises:
            Cut: the connection ended in the middle of the answer, or what came is no HTTP.
        """
        part: Head | bytes | Mark | None = None
        while part is None:
            part = self._step()
        if part is Mark.NEED_DATA and self._has_ended:
            raise Cut("the connection was closed before the answer was whole")
        return part

    def _step(self) -> Head | bytes | Mark | None:
        """Return the next part, or None after something that is no part of it."""
        match self._at:
            case _At.HEAD:
                return self._read_head()
            case _At.DATA:
                return self._read_data()
            case _At.SIZE:
                return self._read_size()
            case _At.AFTER_CHUNK:
                return self._skip(b"\r\n", _At.SIZE)
            case _At.TRAILERS:
                return self._read_trailers()
            case _At.TO_THE_END:
                return self._read_to_the_end()
            case _At.DONE:
                return Mark.END

    def _read_head(self) -> Head | Mark | None:
        found = self._match(_HEAD, b"\r\n\r\n", _LONGEST_HEAD)
        if found is None:
            return Mark.NEED_DATA
        status, headers = int(found[2]), _headers_of(found[3])
        if status == 101:
            if not self._may_upgrade:
                raise Cut("the connection is no HTTP any more")
            self._at, self._stays = _At.TO_THE_END, False
            return Head(status, headers)
        if status < 200:
            return None  # news of an answer that is yet to come
        self._measure(status, headers, is_newest=found[1] == b"1")
        return Head(status, headers)

    def _measure(self, status: int, headers: dict[str, str], *, is_newest: bool) -> None:
        """Find out where the body ends. Source: RFC 9112, section 6.3."""
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        connection = headers.get("connection", "").lower()
        self._stays = "close" not in connection if is_newest else "keep-alive" in connection
        self._is_chunked = coding is not None
        if coding is not None and (length is not None or coding.lower() != "chunked"):
            raise Cut(f"an answer with transfer-encoding {coding[:40]!r} and content-length {length!r}")
        if self._is_bodiless or status in {204, 304}:
            self._at = _At.DONE
        elif coding is not None:
            self._at = _At.SIZE
        elif length is None:
            self._at, self._stays = _At.TO_THE_END, False
        elif not (length.isascii() and length.isdigit() and len(length) < 20):
            raise Cut(f"an answer with content-length {length[:40]!r}")
        else:
            self._at, self._left = _At.DATA, int(length)

    def _read_data(self) -> bytes | Mark | None:
        if not self._left:
            self._at = _At.AFTER_CHUNK if self._is_chunked else _At.DONE
            return None
        data = self._data[self._from : self._from + self._left]
        self._from += len(data)
        self._left -= len(data)
        return data or Mark.NEED_DATA

    def _read_size(self) -> Mark | None:
        found = self._match(_SIZE, b"\r\n", _LONGEST_LINE)
        if found is None:
            return Mark.NEED_DATA
        self._left = int(found[1], 16)
        self._at = _At.DATA if self._left else _At.TRAILERS
        return None

    def _read_trailers(self) -> Mark | None:
        if self._data.startswith(b"\r\n", self._from):
            return self._skip(b"\r\n", _At.DONE)
        if self._match(_TRAILERS, b"\r\n\r\n", _LONGEST_HEAD) is None:
            return Mark.NEED_DATA
        self._at = _At.DONE
        return None

    def _read_to_the_end(self) -> bytes | Mark | None:
        data = self._data[self._from :]
        self._from = len(self._data)
        if not data and self._has_ended:
            self._at = _At.DONE
            return None
        return data or Mark.NEED_DATA

    def _skip(self, expected: bytes, then: _At) -> Mark | None:
        given = self._data[self._from : self._from + len(expected)]
        if not expected.startswith(given):
            raise Cut(f"{given!r} where a chunk ends")
        if given != expected:
            return Mark.NEED_DATA
        self._from += len(expected)
        self._at = then
        return None

    def _match(self, pattern: re.Pattern[bytes], end: bytes, longest: int) -> re.Match[bytes] | None:
        """Return what stands here and take it, None while its end is not there."""
        end_at = self._data.find(end, self._from, self._from + longest)
        if end_at < 0:
            if len(self._data) - self._from >= longest:
                raise Cut(f"a part of an answer has more than {longest} bytes")
            return None
        found = pattern.fullmatch(self._data, self._from, end_at + len(end))
        if found is None:
            raise Cut(f"what came is no HTTP: {self._data[self._from : self._from + 80]!r}")
        self._from = found.end()
        return found


def _headers_of(lines: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name == "content-length" and headers[name] != value:
            raise Cut(f"an answer of {headers[name][:40]!r} and {value[:40]!r} bytes")
        elif name != "content-length":
            headers[name] += f", {value}"
    return headers
