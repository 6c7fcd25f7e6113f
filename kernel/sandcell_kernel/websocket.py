"""Jupyter messages as WebSocket frames: the v1 framing, ours above it, and the default framing. No connection here.

Source: docs/protocol.md for ours; https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html; measured bytes are in
the tests.
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from sandcell_kernel.wire import EMPTY, BadMessage, Channel, ChannelMessage, Message

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "FRONT_SUBPROTOCOL",
    "V1_SUBPROTOCOL",
    "Placed",
    "pack_default",
    "pack_placed",
    "pack_v1",
    "unpack_default",
    "unpack_placed",
    "unpack_v1",
]

FRONT_SUBPROTOCOL = "v1.front.sandcell"
V1_SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
_CHANNELS: dict[bytes, Channel] = {name.encode(): name for name in get_args(Channel)}
_FIXED_PARTS = 5  # channel, header, parent_header, metadata, content


def pack_v1(channel: Channel, message: Message) -> bytes:
    """Return the binary frame of the v1 framing: counts and offsets as 64-bit little endian, then the parts.

    The last offset is the total length; the JSON parts travel unchanged.
    """
    parts = [channel.encode(), *message.parts()]
    count = len(parts) + 1
    offsets = accumulate(map(len, parts), initial=8 * (count + 1))
    return b"".join((struct.pack(f"<{count + 1}Q", count, *offsets), *parts))


def unpack_v1(frame: bytes) -> ChannelMessage:
    """Read a frame of the v1 framing.

    Raises:
        BadMessage: its counts or offsets do not fit its length, or its channel is none.
    """
    offsets = _read_offsets(frame)
    parts = [frame[start:end] for start, end in pairwise(offsets)]
    return ChannelMessage(_channel(parts[0]), Message.from_parts(parts[1:]))


def _read_offsets(frame: bytes) -> tuple[int, ...]:
    if len(frame) < 8:
        raise BadMessage(f"a v1 frame of {len(frame)} bytes has no offset count")
    (count,) = struct.unpack_from("<Q", frame)
    if not _FIXED_PARTS < count <= len(frame) // 8 - 1:
        raise BadMessage(f"a v1 frame of {len(frame)} bytes cannot have {count} offsets")
    offsets = struct.unpack_from(f"<{count}Q", frame, 8)
    if offsets[0] != 8 * (count + 1) or offsets[-1] != len(frame) or any(a > b for a, b in pairwise(offsets)):
        raise BadMessage("the offsets of a v1 frame do not fit its length")
    return offsets


def _channel(name: bytes) -> Channel:
    channel = _CHANNELS.get(name)
    if channel is None:
        raise BadMessage(f"there is no channel {name[:40]!r}")
    return channel


class Placed(NamedTuple):
    """A v1 frame and the place after it in the journal that it comes from."""

    seq: int
    offset: int
    frame: bytes


_PLACE = struct.Struct("<QQQ")  # seq, offset, and the length of the v1 frame


def pack_placed(messages: Iterable[Placed]) -> bytes:
    """Return one frame that goes down to our own end: each v1 frame behind its place and its length."""
    parts = list[bytes]()
    for seq, offset, frame in messages:
        parts += (_PLACE.pack(seq, offset, len(frame)), frame)
    return b"".join(parts)


def unpack_placed(data: bytes) -> list[Placed]:
    """Read what `pack_placed` made. Raises BadMessage where lengths do not fit; the v1 frames are not looked at."""
    found, at = list[Placed](), 0
    while at < len(data):
        start = at + _PLACE.size
        if start > len(data):
            raise BadMessage(f"a frame of {len(data)} bytes has half a place at its end")
        seq, offset, size = _PLACE.unpack_from(data, at)
        at = start + size
        if at > len(data):
            raise BadMessage(f"a frame of {len(data)} bytes has no message of {size} bytes at {start}")
        found.append(Placed(seq, offset, data[start:at]))
    return found


class _DefaultFrame(msgspec.Struct):
    """The JSON object of the default framing; the parts stay as they came."""

    header: msgspec.Raw
    parent_header: msgspec.Raw = msgspec.Raw(EMPTY)
    metadata: msgspec.Raw = msgspec.Raw(EMPTY)
    content: msgspec.Raw = msgspec.Raw(EMPTY)
    channel: str = "shell"  # clients that leave it out mean shell


_decode_default = msgspec.json.Decoder(_DefaultFrame).decode


def pack_default(channel: Channel, message: Message) -> str | bytes:
    """Return the frame of the default framing: text, or binary where the message has buffers.

    Raises:
        BadMessage: the message's own header is not valid.
    """
    text = msgspec.json.encode(
        {
            "header": msgspec.Raw(message.header),
            "parent_header": msgspec.Raw(message.parent_header),
            "metadata": msgspec.Raw(message.metadata),
            "content": msgspec.Raw(message.content),
            "channel": channel,
            "buffers": (),
            "msg_id": message.msg_id,
            "msg_type": message.msg_type,
        }
    )
    if not message.buffers:
        return text.decode("utf-8", "replace")  # a kernel may write anything, a text frame must be UTF-8
    parts = [text, *message.buffers]
    offsets = list(accumulate(map(len, parts[:-1]), initial=4 * (len(parts) + 1)))
    try:
        head = struct.pack(f"!{len(parts) + 1}I", len(parts), *offsets)
    except struct.error:
        raise BadMessage("a message above 4 GiB does not fit the default framing") from None
    return b"".join((head, *parts))


def unpack_default(frame: str | bytes) -> ChannelMessage:
    """Read a text or binary frame of the default framing.

    Raises:
        BadMessage: it is no JSON object with a header, its offsets do not fit its length, or its channel is none.
    """
    if isinstance(frame, str):
        text, buffers = frame.encode("utf-8", "surrogatepass"), list[bytes]()
    else:
        text, *buffers = _split_default(frame)
    try:
        fields = _decode_default(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadMessage(f"no message of the default framing: {problem}") from problem
    parts = (fields.header, fields.parent_header, fields.metadata, fields.content)
    message = Message.from_parts([*(_object(bytes(part)) for part in parts), *buffers])
    return ChannelMessage(_channel(fields.channel.encode()), message)


def _object(part: bytes) -> bytes:
    return EMPTY if part == b"null" else part  # some clients send null for an empty parent_header


def _split_default(frame: bytes) -> list[bytes]:
    if len(frame) < 8:
        raise BadMessage(f"a binary frame of {len(frame)} bytes has no offsets")
    (count,) = struct.unpack_from("!I", frame)
    if not 0 < count <= len(frame) // 4 - 1:
        raise BadMessage(f"a binary frame of {len(frame)} bytes cannot have {count} parts")
    offsets = (*struct.unpack_from(f"!{count}I", frame, 4), len(frame))
    if offsets[0] != 4 * (count + 1) or any(a > b for a, b in pairwise(offsets)):
        raise BadMessage("the offsets of a binary frame do not fit its length")
    return [frame[start:end] for start, end in pairwise(offsets)]
