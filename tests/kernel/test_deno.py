"""The dialect of Deno's kernel, as a machine: a run is over when all that it has shown is there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sandcell_kernel.deno import VALUE_MIME, DenoDialect
from sandcell_kernel.wire import Channel, ChannelMessage, Message, new_message


class Kernel:
    """What Deno's kernel would say to one request, and what others get to hear of it."""

    def __init__(self, code: str = "1 + 1", *, want: list[str] | None = None) -> None:
        self.dialect = DenoDialect("javascript")
        metadata = {"sandcell": {"want": want}} if want else None
        self.request = new_message("execute_request", {"code": code}, session="front", metadata=metadata)
        self.dialect.tell("shell", self.request)
        self.heard: list[ChannelMessage] = []
        self.asked: list[ChannelMessage] = []

    def say(self, channel: Channel, msg_type: str, content: dict[str, Any]) -> None:
        message = new_message(msg_type, content, session="deno", parent=self.request.header)
        shown, asked = self.dialect.hear(channel, message)
        self.heard += shown
        self.asked += asked

    def answer(self, content: dict[str, Any]) -> None:
        """Reply to the run, and say idle."""
        self.say("shell", "execute_reply", {"execution_count": 1, **content})
        self.say("iopub", "status", {"execution_state": "idle"})

    def settle(self, **told: Any) -> None:
        """Answer what was asked: busy, the mark, the reply, idle."""
        self.say("iopub", "status", {"execution_state": "busy"})
        self.say("iopub", "execute_input", {"code": "", "execution_count": 1})
        self.say("iopub", "sandcell_settled", {"token": self.token, **told})
        self.say("shell", "execute_reply", {"status": "ok"})
        self.say("iopub", "status", {"execution_state": "idle"})

    @property
    def call(self) -> str:
        """The code that it was asked to run."""
        (asked,) = self.asked
        code = asked.message.body()["code"]
        assert isinstance(code, str)
        return code

    @property
    def token(self) -> str:
        found = re.search(r'\.(?:settle|explain)\("(\w+)"', self.call)
        assert found is not None
        return found[1]

    @property
    def kinds(self) -> list[str]:
        return [message.msg_type for _, message in self.heard]

    def the(self, kind: str) -> Message:
        (found,) = [message for _, message in self.heard if message.msg_type == kind]
        return found


def stream(text: str) -> tuple[Channel, str, dict[str, Any]]:
    return "iopub", "stream", {"name": "stdout", "text": text}


def test_what_comes_after_idle_comes_before_it() -> None:
    kernel = Kernel()
    kernel.say("iopub", "status", {"execution_state": "busy"})
    kernel.say(*stream("one"))
    kernel.answer({"status": "ok"})
    kernel.say(*stream("two"))
    assert kernel.kinds == ["status", "stream", "stream"]
    kernel.settle()
    assert kernel.kinds == ["status", "stream", "stream", "execute_reply", "status"]
    assert kernel.the("execute_reply").parent_id == kernel.request.msg_id


def test_the_mark_is_asked_for_once_and_as_if_by_the_run() -> None:
    kernel = Kernel()
    kernel.answer({"status": "ok"})
    (asked,) = kernel.asked
    assert asked.channel == "shell"
    assert asked.message.header == kernel.request.header
    assert asked.message.body()["silent"] is True
    kernel.settle()
    assert len(kernel.asked) == 1


@pytest.mark.parametrize(("want", "shown"), [(["value"], {VALUE_MIME: [2]}), (None, {})])
def test_the_plain_value_is_for_who_asks(want: list[str] | None, shown: dict[str, Any]) -> None:
    kernel = Kernel(want=want)
    kernel.say("iopub", "execute_result", {"data": {"text/plain": "[ 2 ]"}, "metadata": {}})
    kernel.answer({"status": "ok"})
    kernel.settle(value=[2])
    assert kernel.the("execute_result").body()["data"] == {"text/plain": "[ 2 ]", **shown}


def test_code_that_cannot_be_parsed_is_explained() -> None:
    kernel = Kernel('x = "\u2028" +')
    kernel.answer({"status": "error", "ename": "Error", "evalue": "Execution failed", "traceback": []})
    assert '.explain("' in kernel.call
    assert '"x = \\"\\u2028\\" +"' in kernel.call
    said = "error: SyntaxError: Expression expected\n  |\n2 | let y =\n    at file:///w/_stdin.ts:2:5\n\nStack backtrace:\n 0"
    kernel.settle(problem=said)
    told = kernel.the("error").body()
    assert (told["ename"], told["evalue"]) == ("SyntaxError", "Expression expected")
    assert told["traceback"][0] == "Cell In[1], line 2, column 5"
    assert "Stack" not in "".join(told["traceback"])
    assert kernel.the("execute_reply").body()["ename"] == "SyntaxError"


def test_code_that_parses_and_does_not_run_says_what_may_be_missing() -> None:
    kernel = Kernel()
    kernel.answer({"status": "error", "ename": "Error", "evalue": "Execution failed", "traceback": []})
    kernel.settle(problem="")
    assert "network" in kernel.the("error").body()["evalue"]


def test_an_interrupted_run_is_called_so() -> None:
    kernel = Kernel()
    kernel.dialect.tell("control", new_message("interrupt_request", {}, session="sandcell"))
    kernel.answer({"status": "error", "ename": "Error", "evalue": "Execution failed", "traceback": []})
    assert ".settle(" in kernel.call
    kernel.settle()
    assert kernel.the("error").body()["ename"] == "KeyboardInterrupt"


def test_one_that_was_interrupted_inside_of_deno_itself_does_not_go_on() -> None:
    kernel = Kernel()
    kernel.dialect.tell("control", new_message("interrupt_request", {}, session="sandcell"))
    kernel.answer(
        {"status": "error", "ename": "Error", "evalue": "Error: Uncaught null\n    at x", "traceback": []}
    )
    assert (kernel.kinds, kernel.asked) == ([], [])


def test_a_thrown_value_has_a_traceback() -> None:
    kernel = Kernel()
    thrown = {"ename": "Error", "evalue": "5", "traceback": [""]}
    kernel.say("iopub", "error", thrown)
    kernel.answer({"status": "error", **thrown})
    kernel.settle()
    assert kernel.the("error").body()["traceback"] == ["Error: 5"]
    assert kernel.the("execute_reply").body()["traceback"] == ["Error: 5"]


def test_a_run_ends_though_its_code_broke_the_mark() -> None:
    kernel = Kernel("Deno.jupyter = 5")
    kernel.answer({"status": "ok"})
    kernel.say("iopub", "sandcell_settled", {"token": "forged"})
    kernel.say("iopub", "error", {"ename": "TypeError", "evalue": "of the mark", "traceback": []})
    kernel.say("shell", "execute_reply", {"status": "error"})
    kernel.say("iopub", "status", {"execution_state": "idle"})
    assert kernel.kinds == ["execute_reply", "status"]


def test_a_run_with_tools_is_led_to_them_first() -> None:
    tools = {"address": "@a", "secret": 's"'}
    request = new_message(
        "execute_request", {"code": "1"}, session="s", metadata={"sandcell": {"tools": tools}}
    )
    ((channel, before),) = DenoDialect("typescript").tell("shell", request)
    assert (channel, before.msg_type) == ("shell", "execute_request")
    assert before.msg_id != request.msg_id
    assert before.body()["code"].endswith('.link("@a", "s\\"")')


def test_changes_of_the_environment_are_brought_to_the_kernel() -> None:
    news = {"A": 'b"', "C": None}
    request = new_message(
        "execute_request", {"code": "1"}, session="s", metadata={"sandcell": {"environ": news}}
    )
    ((_, before),) = DenoDialect("typescript").tell("shell", request)
    assert before.body()["code"].endswith('.environ({"A": "b\\"", "C": null})')


def test_what_belongs_to_others_goes_through() -> None:
    kernel = Kernel()
    other = new_message("complete_reply", {}, session="deno", parent=new_message("x", {}, session="s").header)
    assert kernel.dialect.hear("shell", other).shown == [ChannelMessage("shell", other)]
    late = new_message("stream", {}, session="deno", parent=new_message("x", {}, session="s").header)
    assert kernel.dialect.hear("iopub", late).shown == [ChannelMessage("iopub", late)]


def test_a_control_request_ends_with_idle_and_the_language_has_its_name() -> None:
    kernel = Kernel()
    info = {"language_info": {"name": "typescript", "version": "6"}}
    kernel.say("control", "kernel_info_reply", info)
    assert kernel.kinds == ["kernel_info_reply", "status"]
    told = kernel.the("kernel_info_reply").body()["language_info"]
    assert (told["name"], told["file_extension"], told["version"]) == ("javascript", ".js", "6")
