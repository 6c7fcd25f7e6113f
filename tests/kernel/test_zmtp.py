"""The machine of one connection to a ZMQ socket: against real libzmq bytes by test_channels, here against hostile ones."""

from __future__ import annotations

import pytest

from sandcell_kernel.zmtp import FRAME_COST, MessageTooLarge, Peer, pack_message

GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\4\x06\5READY"
BOUND = 1000


def opened(*, bound: int = BOUND) -> Peer:
    peer = Peer("DEALER", identity=b"me", max_message=bound)
    peer.take_answer()
    assert peer.feed(GREETING + READY) == []
    assert peer.is_open
    return peer


def test_the_first_word_is_a_greeting_and_what_it_is() -> None:
    said = Peer("DEALER", identity=b"me", max_message=BOUND).take_answer()
    assert said[:12] == b"\xff\0\0\0\0\0\0\0\1\x7f\3\0"
    assert said[64:] == b"\4\x2b\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\2me"


def test_a_subscriber_asks_for_everything_when_the_other_is_ready() -> None:
    peer = Peer("SUB", max_message=BOUND)
    peer.take_answer()
    peer.feed(GREETING)
    assert peer.take_answer() == b""
    peer.feed(READY)
    assert peer.take_answer() == b"\0\1\1"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_messages_are_the_same_however_they_are_cut(size: int) -> None:
    messages = [[b""], [b"a", b"", b"b" * 255], [b"c" * 256], [b"d" * 600, b"e"]]
    sent = GREETING + READY + b"".join(map(pack_message, messages))
    peer = Peer("DEALER", max_message=BOUND)
    got = [each for at in range(0, len(sent), size) for each in peer.feed(sent[at : at + size])]
    assert got == messages
    assert peer.problem is None


def test_a_ping_is_answered() -> None:
    peer = opened()
    peer.feed(b"\4\x0a\4PING\0\1abc")
    assert peer.take_answer() == b"\4\x08\4PONGabc"


@pytest.mark.parametrize(
    "sent",
    [
        b"\2" + (2**62).to_bytes(8, "big"),
        b"\6" + (2**62).to_bytes(8, "big"),
        pack_message([b"x" * BOUND]),
        pack_message([b"x" * (BOUND // 2)] * 2),
        pack_message([b""] * (BOUND // FRAME_COST + 1)),
    ],
    ids=["one frame", "a command", "just over", "two frames", "empty frames"],
)
def test_a_message_has_a_bound_whatever_it_is_made_of(sent: bytes) -> None:
    peer = opened()
    before = pack_message([b"before"])
    assert peer.feed(before + sent) == [[b"before"]]
    assert isinstance(peer.problem, MessageTooLarge)
    assert peer.feed(before) == []


def test_a_message_without_end_is_given_up_before_it_is_large() -> None:
    peer = opened()
    for _ in range(BOUND):
        peer.feed(b"\1\x10" + b"x" * 16)
        if peer.problem:
            break
    assert isinstance(peer.problem, MessageTooLarge)


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 400 Bad Request\r\n".ljust(64, b" "),
        GREETING[:10] + b"\1\0" + GREETING[12:],
        GREETING.replace(b"NULL", b"PLAI"),
        GREETING + b"\0\1x",
        GREETING + b"\4\x0a\5ERROR\3why",
    ],
    ids=["no zmq", "an old one", "a mechanism", "too early", "refused"],
)
def test_who_does_not_speak_as_a_socket_does_is_not_listened_to(sent: bytes) -> None:
    peer = Peer("DEALER", max_message=BOUND)
    assert peer.feed(sent) == []
    assert peer.problem is not None
    assert not isinstance(peer.problem, MessageTooLarge)


def test_much_is_read_at_once_only_for_a_long_frame() -> None:
    peer = opened(bound=2**30)
    assert peer.wants == 64 * 2**10
    peer.feed(b"\2" + (2**29).to_bytes(8, "big"))
    assert peer.wants == 2**20
