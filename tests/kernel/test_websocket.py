from __future__ import annotations

import json
import struct

import pytest

from sandcell_kernel.websocket import (
    Placed,
    pack_default,
    pack_placed,
    pack_v1,
    unpack_default,
    unpack_placed,
    unpack_v1,
)
from sandcell_kernel.wire import BadMessage, Message, new_message

MESSAGE = Message(b'{"h":1}', b"{}", b"{}", b'{"c":2}', [b"\xff\x00\x01"])


def integers(frame: bytes, layout: str) -> tuple[int, ...]:
    return struct.unpack_from(layout, frame)


def test_v1_frame_has_the_bytes_that_jupyter_server_sends() -> None:
    frame = pack_v1("shell", MESSAGE)
    assert len(frame) == 90
    assert integers(frame, "<8Q") == (7, 64, 69, 76, 78, 80, 87, 90)
    assert frame[64:] == b'shell{"h":1}{}{}{"c":2}\xff\x00\x01'


@pytest.mark.parametrize("buffers", [[], [b""], [b"a", b"\x00" * 1000, b""]])
def test_v1_gives_back_every_part(buffers: list[bytes]) -> None:
    message = Message(b'{"msg_id":"1","msg_type":"x"}', b"{}", b'{"m":1}', b"{}", buffers)
    channel, back = unpack_v1(pack_v1("iopub", message))
    assert channel == "iopub"
    assert back.parts() == message.parts()


def v1(*numbers: int, tail: bytes = b"") -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers) + tail


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x07",
        v1(7),
        v1(2**63),
        v1(5, 48, 48, 48, 48, 48),  # too few parts
        v1(6, 56, 61, 63, 65, 67, 70, tail=b"shell{}{}{}{}"),  # the last offset is not the length
        v1(6, 56, 61, 63, 62, 67, 69, tail=b"shell{}{}{}{}"),  # offsets go back
        v1(6, 8, 61, 63, 65, 67, 69, tail=b"shell{}{}{}{}"),  # a part inside the offsets
        v1(6, 56, 61, 63, 65, 67, 69, tail=b"shelf{}{}{}{}"),  # no such channel
    ],
)
def test_bad_v1_frames_are_refused(frame: bytes) -> None:
    with pytest.raises(BadMessage):
        unpack_v1(frame)


def test_placed_frames_travel_together_each_behind_its_place_and_its_length() -> None:
    placed = [Placed(3, 500, b"frame"), Placed(4, 500, b""), Placed(5, 503, b"end")]
    data = pack_placed(placed)
    assert data[:29] == v1(3, 500, 5, tail=b"frame")
    assert unpack_placed(data) == placed


@pytest.mark.parametrize("size", [1, 23, 24, 28, 30, 52, 55])
def test_placed_frames_that_were_cut_are_refused(size: int) -> None:
    data = pack_placed([Placed(3, 500, b"frame"), Placed(4, 503, b"end")])
    with pytest.raises(BadMessage):
        unpack_placed(data[:size])


def test_default_frame_without_buffers_is_one_json_object() -> None:
    message = new_message("status", {"execution_state": "busy"}, session="s")
    frame = pack_default("iopub", message)
    assert isinstance(frame, str)
    fields = json.loads(frame)
    assert set(fields) == {
        "header", "parent_header", "metadata", "content", "channel", "buffers", "msg_id", "msg_type",
    }  # fmt: skip
    assert fields["content"] == {"execution_state": "busy"}
    assert (fields["channel"], fields["msg_type"], fields["buffers"]) == ("iopub", "status", [])


def test_default_frame_with_buffers_has_big_endian_offsets() -> None:
    message = new_message("comm_msg", {}, session="s", buffers=[b"abc"])
    frame = pack_default("shell", message)
    assert isinstance(frame, bytes)
    count, start, second = integers(frame, "!3I")
    assert (count, start, second) == (2, 12, len(frame) - 3)
    assert json.loads(frame[start:second])["msg_type"] == "comm_msg"
    assert frame[second:] == b"abc"


def test_default_frame_of_the_measured_example() -> None:
    text = json.dumps({"header": {"msg_id": "1", "msg_type": "comm_msg"}, "channel": "shell"}).ljust(86)
    frame = struct.pack("!3I", 2, 12, 98) + text.encode() + b"abc"
    channel, message = unpack_default(frame)
    assert (channel, message.msg_type, message.buffers) == ("shell", "comm_msg", (b"abc",))
    assert message.parent_header == b"{}"


@pytest.mark.parametrize("buffers", [[], [b""], [b"\xff\xfe\x00", b"x"]])
def test_default_gives_back_every_part(buffers: list[bytes]) -> None:
    message = new_message("comm_msg", {"data": "é"}, session="s", buffers=buffers)
    channel, back = unpack_default(pack_default("control", message))
    assert channel == "control"
    assert back.parts() == message.parts()


def test_a_missing_channel_is_shell_and_a_null_parent_is_empty() -> None:
    channel, message = unpack_default('{"header":{"msg_id":"1","msg_type":"x"},"parent_header":null}')
    assert channel == "shell"
    assert message.parent is None


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"header":{},"channel":"moon"}',
        '{"header":{},"channel":7}',
        "\ud800",
        b"",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        struct.pack("!2I", 2**31, 8),
        struct.pack("!3I", 2, 12, 999) + b"{}",
        struct.pack("!3I", 2, 4, 12) + b"{}",
        struct.pack("!2I", 1, 8) + b'{"header":\xff}',
    ],
)
def test_bad_default_frames_are_refused(frame: str | bytes) -> None:
    with pytest.raises(BadMessage):
        unpack_default(frame)


def test_what_is_not_utf8_cannot_break_a_text_frame() -> None:
    message = Message(b'{"msg_id":"1","msg_type":"stream"}', content=b'{"text":"\xff"}')
    frame = pack_default("iopub", message)
    assert isinstance(frame, str)
    assert "\N{REPLACEMENT CHARACTER}" in frame
