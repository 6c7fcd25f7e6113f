from __future__ import annotations

from typing import Any

import pytest

from sandcell_kernel.shapes import check_shape, with_known_orders
from sandcell_kernel.wire import BadMessage, Message, new_message

DISPLAY = {"data": {"text/plain": "1"}, "metadata": {}}
ERROR: dict[str, Any] = {"ename": "E", "evalue": "", "traceback": ["E"]}


READABLE: list[tuple[str, dict[str, Any]]] = [
    ("stream", {"name": "stdout", "text": ""}),
    ("display_data", DISPLAY),
    ("display_data", {**DISPLAY, "transient": {"display_id": "d", "other": 1}}),
    ("update_display_data", {**DISPLAY, "transient": {"display_id": "d"}}),
    ("execute_result", {**DISPLAY, "execution_count": 1}),
    ("error", ERROR),
    ("execute_input", {"code": "1", "execution_count": 1}),
    ("clear_output", {"wait": True}),
    ("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}),
    ("comm_msg", {"comm_id": "c", "data": {"deep": [[]]}}),
    ("status", {"execution_state": "idle"}),
    ("debug_event", {"type": "event"}),
    ("an_extension_of_others", {}),
    ("input_request", {"prompt": "", "password": False}),
]


@pytest.mark.parametrize(("kind", "content"), READABLE)
def test_what_kernels_say_passes(kind: str, content: dict[str, Any]) -> None:
    check_shape(new_message(kind, content, session="s"))


FORGED: list[tuple[str, dict[str, Any]]] = [
    ("stream", {}),
    ("stream", {"name": "stdin", "text": ""}),
    ("stream", {"name": "stdout", "text": ["a"]}),
    ("display_data", {}),
    ("display_data", {"data": 5, "metadata": {}}),
    ("display_data", {**DISPLAY, "transient": {"display_id": {"a": 1}}}),
    ("execute_result", {**DISPLAY, "execution_count": "zz"}),
    ("execute_result", DISPLAY),
    ("error", {}),
    ("error", {**ERROR, "evalue": None}),
    ("error", {**ERROR, "traceback": "str"}),
    ("error", {**ERROR, "traceback": [1]}),
    ("execute_input", {"code": 1, "execution_count": 1}),
    ("clear_output", {"wait": "maybe"}),
    ("comm_open", {}),
    ("comm_msg", {"comm_id": 5}),
    ("shutdown_reply", {"restart": False}),
    ("iopub_welcome", {"subscription": ""}),
    ("input_request", {}),
]


@pytest.mark.parametrize(("kind", "content"), FORGED)
def test_what_front_ends_fail_over_does_not(kind: str, content: dict[str, Any]) -> None:
    with pytest.raises(BadMessage, match=kind):
        check_shape(new_message(kind, content, session="s"))


@pytest.mark.parametrize(
    "content", [b"[]", b"{", b"\xff", b'{"name": "stdout", "text": "\\ud800"}', b"[" * 100_000]
)
def test_what_is_no_object_of_json_does_not(content: bytes) -> None:
    stream = new_message("stream", {}, session="s")
    with pytest.raises(BadMessage):
        check_shape(Message(stream.header, content=content))


def test_what_a_reply_orders_is_a_page_or_a_cell() -> None:
    page = {"source": "page", "data": {"text/plain": "help"}, "start": 0}
    cell = {"source": "set_next_input", "text": "1", "replace": False}
    forged = [
        {"source": "ask_exit", "keepkernel": False},
        {"source": "edit_magic", "filename": "/etc/passwd"},
        {"source": "page", "data": 5},
        {"source": "set_next_input"},
        {"source": 5},
        "text",
    ]
    reply = new_message("execute_reply", {"status": "ok", "payload": [page, *forged, cell]}, session="s")
    assert with_known_orders(reply).body() == {"status": "ok", "payload": [page, cell]}
    for payload in ([page, cell], [], None):
        plain = new_message("execute_reply", {"status": "ok", "payload": payload}, session="s")
        assert with_known_orders(plain) is plain
