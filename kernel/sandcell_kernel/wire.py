"""Jupyter messages as frames: parse, sign, build. No socket is known here.

Source: https://jupyter-client.readthedocs.io/en/stable/messaging.html#the-wire-protocol (5.5).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "PROTOCOL_VERSION",
    "BadMessage",
    "Channel",
    "ChannelMessage",
    "Header",
    "Message",
    "RequestKey",
    "Signer",
    "TooComplex",
    "fence_of",
    "new_header",
    "new_message",
]

Channel = Literal["shell", "control", "iopub", "stdin"]  # the heartbeat carries no messages

PROTOCOL_VERSION = "5.5"
DELIMITER = b"<IDS|MSG>"
MAX_ITEMS = (
    500_000  # commas and opening brackets of what is decoded: in memory each is a hundred times its text
)
EMPTY = b"{}"
_LONGEST_FENCE = 20  # digits


class BadMessage(ValueError):
    """Frames that are no Jupyter message, or whose signature is wrong."""


class TooComplex(BadMessage):
    """JSON that would be many times its own size in memory."""


class RequestKey(NamedTuple):
    """Which request is meant. jupyter_client's manager and client share a session and both count from 0, so the
    interrupt_request of the one has the `msg_id` of an execute_request of the other."""

    msg_id: str
    msg_type: str


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header of a message; fields that are not named here are ignored, as the protocol asks."""

    msg_id: str
    msg_type: str
    session: str = ""
    username: str = ""
    date: str = ""
    version: str = ""
    subshell_id: str | None = None


_decode_header = msgspec.json.Decoder(Header).decode
# What decoding raises for text that is no JSON, no UTF-8, or nested deeper than the stack.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.encode


class Message:
    """One message: four JSON frames exactly as they came, and buffers. Decoded only where somebody looks.

    `fence` is its place among what its run writes into pipes, 0 where it has none.
    """

    __slots__ = (
        "_content",
        "_head",
        "_parent",
        "buffers",
        "content",
        "fence",
        "header",
        "metadata",
        "parent_header",
    )

    def __init__(
        self,
        header: bytes,
        parent_header: bytes = EMPTY,
        metadata: bytes = EMPTY,
        content: bytes = EMPTY,
        buffers: Sequence[bytes] = (),
    ) -> None:
        self.header = header
        self.parent_header = parent_header
        self.metadata = metadata
        self.content = content
        self.buffers = tuple(buffers)
        self.fence = 0
        self._head: Header | None = None
        self._parent: Header | None = None
        self._content: dict[str, Any] | None = None

    @property
    def head(self) -> Header:
        """The decoded header. Raises BadMessage where it is none."""
        if self._head is None:
            try:
                self._head = _decode_header(self.header)
            except _UNREADABLE as problem:
                raise BadMessage(f"the header is not valid: {problem}") from problem
        return self._head

    @property
    def parent(self) -> Header | None:
        """The decoded parent header, or None where there is no parent."""
        if self._parent is None and len(self.parent_header) > 2:
            try:
                self._parent = _decode_header(self.parent_header)
            except _UNREADABLE:
                return None
        return self._parent

    @property
    def msg_type(self) -> str:
        return self.head.msg_type

    @property
    def msg_id(self) -> str:
        return self.head.msg_id

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.head.msg_id, self.head.msg_type)

    @property
    def parent_key(self) -> RequestKey | None:
        """Which request this answers, None where there is none."""
        parent = self.parent
        return RequestKey(parent.msg_id, parent.msg_type) if parent is not None else None

    @property
    def parent_id(self) -> str:
        """The `msg_id` of the request that this answers, "" where there is none."""
        return self.parent.msg_id if self.parent is not None else ""

    def body(self) -> dict[str, Any]:
        """The decoded content. Raises BadMessage where it is no JSON object, TooComplex where it is too large a one."""
        if self._content is None:
            self._content = _decode_object(self.content, "content")
        return self._content

    def meta(self) -> dict[str, Any]:
        """The decoded metadata. Raises BadMessage where it is no JSON object."""
        return _decode_object(self.metadata, "metadata")

    def with_content(self, content: dict[str, Any]) -> Message:
        """Return this message with another content and everything else byte for byte the same."""
        return Message(self.header, self.parent_header, self.metadata, _encode(content), self.buffers)

    @property
    def extras(self) -> dict[str, Any]:
        """What its metadata ask of our runtime; {} for nothing, and for what is no object. Text in it may stand for bytes
        (PEP 383)."""
        return _object_of(_read_names(self.metadata).get("sandcell"))

    def with_extras(self, extras: dict[str, Any]) -> Message:
        """Return this message with `extras` for our runtime beside those in its metadata, all else byte for byte the same.

        Metadata that are no object are as good as none.
        """
        metadata = _read_names(self.metadata)
        encoded = _encode_names({**metadata, "sandcell": {**self.extras, **extras}})
        return Message(self.header, self.parent_header, encoded, self.content, self.buffers)

    def with_session(self, session: str) -> Message:
        """Return this message with another session in its header; every other field stays as it came.

        A session that changes reads as "the kernel was restarted", so whoever relays for a kernel speaks as one.
        Raises BadMessage where the header is no JSON object.
        """
        try:
            fields = msgspec.json.decode(self.header, type=dict[str, msgspec.Raw])
        except _UNREADABLE as problem:
            raise BadMessage(f"the header is no JSON object: {problem}") from problem
        fields["session"] = msgspec.Raw(_encode(session))
        return Message(_encode(fields), self.parent_header, self.metadata, self.content, self.buffers)

    def parts(self) -> list[bytes]:
        """Return `[header, parent_header, metadata, content, buffer...]`."""
        return [self.header, self.parent_header, self.metadata, self.content, *self.buffers]

    @classmethod
    def from_parts(cls, parts: Sequence[bytes]) -> Message:
        if len(parts) < 4:
            raise BadMessage(f"a message has at least 4 parts, this one {len(parts)}")
        return cls(parts[0], parts[1], parts[2], parts[3], parts[4:])

    def __repr__(self) -> str:
        return (
            f"Message({self.header[:160]!r}, content={len(self.content)} bytes, buffers={len(self.buffers)})"
        )


class ChannelMessage(NamedTuple):
    """A message and the channel it travels on."""

    channel: Channel
    message: Message


def _decode_object(text: bytes, what: str) -> dict[str, Any]:
    if len(text) > MAX_ITEMS and sum(map(text.count, (b",", b"[", b"{"))) > MAX_ITEMS:
        raise TooComplex(f"the {what} holds more than {MAX_ITEMS} values")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except _UNREADABLE as problem:
        raise BadMessage(f"the {what} is no JSON object: {problem}") from problem


def new_header(msg_type: str, *, session: str) -> Header:
    return Header(
        msg_id=uuid.uuid4().hex,
        msg_type=msg_type,
        session=session,
        username="sandcell",
        date=datetime.now(UTC).isoformat(),
        version=PROTOCOL_VERSION,
    )


def new_message(
    msg_type: str,
    content: dict[str, Any],
    *,
    session: str,
    parent: bytes = EMPTY,
    metadata: dict[str, Any] | None = None,
    buffers: Sequence[bytes] = (),
) -> Message:
    """Make a message of ours; `parent` is the header of the request as it came, byte for byte."""
    header = _encode(new_header(msg_type, session=session))
    return Message(header, parent, _encode_names(metadata) if metadata else EMPTY, _encode(content), buffers)


def _encode_names(metadata: dict[str, Any]) -> bytes:
    """Return JSON that may hold bytes as text (PEP 383), which kernels read as Python's json writes it."""
    try:
        return _encode(metadata)
    except UnicodeEncodeError:
        return json.dumps(metadata).encode()


def _read_names(metadata: bytes) -> dict[str, Any]:
    """Return what `_encode_names` has written, {} where it is no object."""
    try:
        return _object_of(json.loads(metadata))
    except (ValueError, RecursionError):
        return {}


def _object_of(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def fence_of(identities: Sequence[bytes]) -> int:
    """Return the fence that our runtime wrote behind a message's topic, 0 where there is none."""
    _, _, number = identities[-1].rpartition(b" fence:") if identities else (b"", b"", b"")
    return int(number) if number.isdigit() and len(number) < _LONGEST_FENCE else 0


class Signer:
    """Signs and checks the frames of one hop. An empty key signs nothing, as the protocol says."""

    def __init__(self, key: bytes) -> None:
        self._base = hmac.new(key, digestmod=hashlib.sha256) if key else None

    def sign(self, parts: Sequence[bytes]) -> bytes:
        """Return the signature over the four JSON frames; buffers are not signed."""
        if self._base is None:
            return b""
        digest = self._base.copy()
        for part in parts[:4]:
            digest.update(part)
        return digest.hexdigest().encode()

    def pack(self, message: Message, identities: Sequence[bytes] = ()) -> list[bytes]:
        """Return the frames to send: identities, delimiter, signature, parts."""
        parts = message.parts()
        return [*identities, DELIMITER, self.sign(parts), *parts]

    def unpack(self, frames: Sequence[bytes]) -> tuple[list[bytes], Message]:
        """Return `(identities, message)`. Raises BadMessage for a wrong shape or signature."""
        try:
            at = list(frames).index(DELIMITER)
        except ValueError:
            raise BadMessage("no <IDS|MSG> delimiter") from None
        if len(frames) < at + 6:
            raise BadMessage(f"{len(frames) - at - 1} frames after the delimiter, at least 5 are needed")
        parts = frames[at + 2 :]
        if not hmac.compare_digest(frames[at + 1], self.sign(parts)):
            raise BadMessage("the signature is wrong")
        return list(frames[:at]), Message.from_parts(parts)
