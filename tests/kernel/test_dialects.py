"""Dialects of kernels that are not ours, but for Deno's."""

from __future__ import annotations

from typing import Any

from sandcell_kernel.dialects import Heard, Plain, RDialect
from sandcell_kernel.wire import Channel, ChannelMessage, Message, new_message

REQUEST = new_message("execute_request", {"code": "x"}, session="front")


def said(msg_type: str, content: dict[str, Any]) -> Message:
    return new_message(msg_type, content, session="r", parent=REQUEST.header)


def heard(*spoken: tuple[Channel, Message]) -> Heard:
    dialect = RDialect()
    dialect.tell("shell", REQUEST)
    all_heard = [dialect.hear(channel, message) for channel, message in spoken]
    return Heard(
        [each for one in all_heard for each in one.shown], [each for one in all_heard for each in one.asked]
    )


def display(**data: str) -> tuple[Channel, Message]:
    named = {name.replace("_", "/"): value for name, value in data.items()}
    return "iopub", said("display_data", {"data": named, "metadata": {}})


IDLE: tuple[Channel, Message] = ("iopub", said("status", {"execution_state": "idle"}))


def test_a_kernel_that_does_as_the_protocol_says_is_left_alone() -> None:
    message = said("stream", {})
    assert Plain().hear("iopub", message) == Heard([ChannelMessage("iopub", message)], [])


def test_the_last_value_is_the_result() -> None:
    shown = heard(display(text_plain="1"), display(text_plain="2", text_html="2"), IDLE).shown
    assert [each.message.msg_type for each in shown] == ["display_data", "execute_result", "status"]
    assert shown[1].message.body()["data"] == {"text/plain": "2", "text/html": "2"}
    assert shown[1].message.parent_id == REQUEST.msg_id


def test_a_plot_is_none_and_may_come_after_the_value() -> None:
    shown = heard(display(text_plain="1"), display(text_plain="p", image_png=""), IDLE).shown
    assert [each.message.msg_type for each in shown] == ["execute_result", "display_data", "status"]


def test_a_value_that_something_follows_is_none() -> None:
    stream: tuple[Channel, Message] = ("iopub", said("stream", {"name": "stdout", "text": "x"}))
    shown = heard(display(text_plain="1"), stream, IDLE, display(text_plain="p", image_png=""), IDLE).shown
    assert "execute_result" not in [each.message.msg_type for each in shown]


def test_a_run_is_lent_its_tools_and_the_next_one_has_them_no_more() -> None:
    tools = {"address": "a", "secret": 's"'}
    lent = new_message("execute_request", {"code": "x"}, session="s", metadata={"sandcell": {"tools": tools}})
    dialect = RDialect()
    told = [dialect.tell("shell", each) for each in (REQUEST, lent, lent, REQUEST, REQUEST)]
    codes = [[before.message.body()["code"] for before in each] for each in told]
    lending = 'Sys.setenv(SANDCELL_TOOLS = "a:s\\"")'
    assert codes == [[], [lending], [lending], ['Sys.unsetenv("SANDCELL_TOOLS")'], []]


def test_an_interrupted_run_is_an_error() -> None:
    ((_, reply),) = heard(("shell", said("execute_reply", {"status": "abort", "execution_count": 3}))).shown
    content = reply.body()
    assert (content["status"], content["ename"], content["execution_count"]) == (
        "error",
        "KeyboardInterrupt",
        3,
    )


def test_changes_of_the_environment_are_brought_to_r() -> None:
    environ = {"A": "b'\"", "C": None}
    request = new_message(
        "execute_request", {"code": "1"}, session="s", metadata={"sandcell": {"environ": environ}}
    )
    ((channel, before),) = RDialect().tell("shell", request)
    assert channel == "shell"
    assert before.body()["code"].splitlines() == [
        'do.call(Sys.setenv, stats::setNames(list("b\'\\""), "A"))',
        'Sys.unsetenv("C")',
    ]
    assert RDialect().tell("shell", REQUEST) == []


def test_quit_is_followed_by_what_ends_the_kernel() -> None:
    payload = [{"source": "ask_exit", "keepkernel": False}]
    ((channel, asked),) = heard(("shell", said("execute_reply", {"status": "ok", "payload": payload}))).asked
    assert (channel, asked.msg_type) == ("control", "shutdown_request")
    assert heard(("shell", said("execute_reply", {"status": "ok", "payload": 5}))).asked == []
