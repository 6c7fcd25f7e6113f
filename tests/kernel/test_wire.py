"""Messages as frames: parse, sign, build."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell_kernel.wire import BadMessage, Message, Signer, TooComplex, new_message

KEY = b"secret"
REQUEST = new_message("execute_request", {"code": "1"}, session="s", metadata={"a": 1}, buffers=[b"\x00\xff"])


def test_a_message_survives_the_wire() -> None:
    signer = Signer(KEY)
    identities, back = signer.unpack(signer.pack(REQUEST, [b"one", b"two"]))
    assert identities == [b"one", b"two"]
    assert back.parts() == REQUEST.parts()
    assert back.buffers == (b"\x00\xff",)


def test_the_signature_is_that_of_the_specification() -> None:
    frames = Signer(KEY).pack(REQUEST)
    digest = hmac.new(KEY, b"".join(REQUEST.parts()[:4]), hashlib.sha256).hexdigest()
    assert frames[:2] == [b"<IDS|MSG>", digest.encode()]


def test_extras_stand_beside_what_is_there_and_nothing_else_changes() -> None:
    asked = new_message(
        "execute_request", {"code": "1"}, session="s", metadata={"a": 1, "sandcell": {"b": 2}}
    )
    made = asked.with_extras({"c": "\udcff"})
    assert json.loads(made.metadata) == {"a": 1, "sandcell": {"b": 2, "c": "\udcff"}}
    assert json.loads(made.with_extras({"b": 3}).metadata)["sandcell"] == {"b": 3, "c": "\udcff"}
    assert (made.header, made.content) == (asked.header, asked.content)
    assert made.extras == {"b": 2, "c": "\udcff"}
    for metadata in (b"[]", b"{", b'{"sandcell": 7}'):
        odd = Message(asked.header, metadata=metadata).with_extras({"c": 3})
        assert odd.meta() == {"sandcell": {"c": 3}}


def test_an_empty_key_signs_nothing() -> None:
    signer = Signer(b"")
    assert signer.pack(REQUEST)[1] == b""
    assert signer.unpack(signer.pack(REQUEST))[1].parts() == REQUEST.parts()


@pytest.mark.parametrize("part", range(2, 6))
def test_a_changed_part_is_refused(part: int) -> None:
    frames = Signer(KEY).pack(REQUEST)
    frames[part] += b" "
    with pytest.raises(BadMessage, match="signature"):
        Signer(KEY).unpack(frames)


@pytest.mark.parametrize("frames", [[], [b"<IDS|MSG>"], [b"<IDS|MSG>", b"", b"{}"], [b"a", b"b"]])
def test_frames_of_another_shape_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(BadMessage):
        Signer(KEY).unpack(frames)


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_any_frames_are_refused_or_read(frames: list[bytes]) -> None:
    with pytest.raises(BadMessage):
        Signer(KEY).unpack(frames)


def test_the_header_is_read() -> None:
    assert (REQUEST.msg_type, REQUEST.head.session, REQUEST.head.version) == ("execute_request", "s", "5.5")
    assert REQUEST.parent is None
    assert REQUEST.parent_id == ""


def test_an_answer_names_its_request_byte_for_byte() -> None:
    answer = new_message("status", {}, session="k", parent=REQUEST.header)
    assert answer.parent_header == REQUEST.header
    assert answer.parent_id == REQUEST.msg_id


def test_unknown_fields_of_a_header_are_ignored() -> None:
    assert Message(b'{"msg_id": "a", "msg_type": "b", "mood": 1}').msg_type == "b"


@pytest.mark.parametrize(
    "header", [b"", b"{", b"[]", b"{}", b'{"msg_id": 1}', b"\xff", b'{"x":' + b"[" * 10**5]
)
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(BadMessage):
        _ = Message(header).msg_type
    assert Message(REQUEST.header, header).parent_id == ""


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'"\xff"', b'{"x":' + b"[" * 10**5])
def test_content_that_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(BadMessage):
        Message(REQUEST.header, content=content).body()
    with pytest.raises(BadMessage):
        Message(REQUEST.header, metadata=content).meta()


@pytest.mark.parametrize("item", [b"[],", b"{},", b'"a":1,'], ids=["lists", "objects", "names"])
def test_content_that_would_be_huge_in_memory_is_not_decoded(item: bytes) -> None:
    brackets = b'{"x":[%s0]}' if item != b'"a":1,' else b'{%s"b":0}'
    with pytest.raises(TooComplex):
        Message(REQUEST.header, content=brackets % (item * 600_000)).body()


def test_content_that_is_long_and_simple_is_decoded() -> None:
    text = "x, [" * 50_000 + "y" * 2_000_000
    assert new_message("stream", {"text": text}, session="s").body() == {"text": text}


def test_content_may_be_replaced_alone() -> None:
    other = REQUEST.with_content({"code": "2"})
    assert other.body() == {"code": "2"}
    assert (other.header, other.metadata, other.buffers) == (
        REQUEST.header,
        REQUEST.metadata,
        REQUEST.buffers,
    )


def test_the_session_may_be_replaced_alone() -> None:
    message = Message(b'{"msg_id":"a","msg_type":"b","session":"old","mood":[1]}', content=b'{"x":1}')
    other = message.with_session("new")
    assert other.head.session == "new"
    assert b'"mood":[1]' in other.header
    assert other.content == message.content


def test_too_few_parts_are_no_message() -> None:
    with pytest.raises(BadMessage):
        Message.from_parts([b"{}"] * 3)


def test_it_shows_little_of_itself() -> None:
    assert len(repr(new_message("stream", {"text": "x" * 10**6}, session="s"))) < 400
