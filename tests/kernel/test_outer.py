from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandcell_kernel.answers import Problem
from sandcell_kernel.outer import Answered, Errand, ErrandsOver, OuterKernel, Stop, Up, Wake
from sandcell_kernel.wire import ChannelMessage, Message, new_message

if TYPE_CHECKING:
    from sandcell_kernel.outer import OuterAction
    from sandcell_kernel.wire import Channel

GONE = Problem(name="SANDBOX_GONE", value="the sandbox has ended", lines=("restart the kernel",))


def make_kernel(*, connected: bool = True) -> OuterKernel:
    kernel = OuterKernel(session="front", version="1.2.3")
    if connected:
        kernel.connect()
    return kernel


def request(kind: str, **content: Any) -> Message:
    return new_message(kind, content, session="client")


def answer(asked: Message, kind: str, **content: Any) -> Message:
    return new_message(kind, content, session="front", parent=asked.header)


def words(actions: list[OuterAction]) -> list[str]:
    return [_word(action) for action in actions]


def _word(action: OuterAction) -> str:
    match action:
        case ChannelMessage(channel, message):
            body = message.body()
            detail = body.get("execution_state") or body.get("status") or body.get("ename")
            return ":".join(filter(None, [channel, message.msg_type, detail]))
        case Up(channel, message):
            return f"up:{channel}:{message.msg_type}"
        case Stop():
            return "stop"
        case Wake():
            return "wake"
        case Errand(_, number, order, may_ask, _):
            return f"errand:{number}:{order.verb}:{may_ask}"
        case ErrandsOver():
            return "over"
        case Answered(_, text):
            return f"answered:{text}"


def busy(kernel: OuterKernel, asked: Message) -> list[OuterAction]:
    return kernel.hear("iopub", answer(asked, "status", execution_state="busy"))


def idle(kernel: OuterKernel, asked: Message) -> list[OuterAction]:
    return kernel.hear("iopub", answer(asked, "status", execution_state="idle"))


def reply(kernel: OuterKernel, asked: Message, channel: Channel = "shell") -> list[OuterAction]:
    kind = asked.msg_type.replace("request", "reply")
    return kernel.hear(channel, answer(asked, kind, status="ok"))


def test_requests_wait_for_the_sandbox_and_go_up_in_order() -> None:
    kernel = make_kernel(connected=False)
    asked = [request("kernel_info_request"), request("execute_request")]
    for each in asked:
        assert kernel.receive("shell", each) == []
    assert kernel.connect() == [Up("shell", each) for each in asked]


def test_messages_go_up_and_down_untouched() -> None:
    kernel, asked = make_kernel(), request("execute_request")
    assert kernel.receive("shell", asked) == [Up("shell", asked)]
    output = answer(asked, "stream")
    assert kernel.hear("iopub", output) == [ChannelMessage("iopub", output)]
    assert words(busy(kernel, asked)) == ["iopub:status:busy"]
    assert words(reply(kernel, asked)) == ["shell:execute_reply:ok"]
    assert words(idle(kernel, asked)) == ["iopub:status:idle"]


def test_what_was_not_answered_is_sent_again_after_a_broken_connection() -> None:
    kernel = make_kernel()
    done, running, answered = (request("execute_request") for _ in range(3))
    for each in (done, running, answered):
        kernel.receive("shell", each)
    reply(kernel, done)
    idle(kernel, done)
    busy(kernel, running)
    reply(kernel, answered)
    kernel.disconnect()
    new = request("complete_request")
    assert kernel.receive("shell", new) == []
    assert kernel.connect() == [Up("shell", each) for each in (running, answered, new)]


def test_an_answer_that_comes_twice_is_passed_on_once() -> None:
    kernel, asked = make_kernel(), request("execute_request")
    kernel.receive("shell", asked)
    assert reply(kernel, asked) and idle(kernel, asked)
    assert reply(kernel, asked) == []
    assert idle(kernel, asked) == []
    assert words(kernel.hear("iopub", answer(asked, "stream"))) == ["iopub:stream"]  # of a thread


def test_a_comm_message_is_done_when_it_is_idle() -> None:
    kernel, asked = make_kernel(), request("comm_msg")
    kernel.receive("shell", asked)
    idle(kernel, asked)
    assert kernel.connect() == []


def test_input_is_not_sent_again_after_its_cell() -> None:
    kernel, asked, line = make_kernel(), request("execute_request"), request("input_reply", value="x")
    kernel.receive("shell", asked)
    assert kernel.receive("stdin", line) == [Up("stdin", line)]
    assert Up("stdin", line) in kernel.connect()
    reply(kernel, asked)
    idle(kernel, asked)
    assert kernel.connect() == []


def test_a_guest_that_is_gone_ends_what_runs_with_its_reason() -> None:
    kernel = make_kernel()
    running, waiting, replied = (request("execute_request") for _ in range(3))
    for each in (running, waiting, replied):
        kernel.receive("shell", each)
    busy(kernel, running)
    reply(kernel, replied)
    kernel.receive("stdin", request("input_reply"))
    actions = kernel.give_up(GONE)
    assert words(actions) == [
        "iopub:error:SANDBOX_GONE",
        "shell:execute_reply:error",
        "iopub:status:idle",
        "iopub:status:busy",
        "iopub:error:SANDBOX_GONE",
        "shell:execute_reply:error",
        "iopub:status:idle",
        "iopub:status:idle",
    ]
    first = actions[1]
    assert isinstance(first, ChannelMessage)
    assert first.message.parent_header == running.header
    assert first.message.body()["traceback"] == ["SANDBOX_GONE: the sandbox has ended", "restart the kernel"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("execute_request", ["iopub:error:SANDBOX_GONE", "shell:execute_reply:error"]),
        ("history_request", ["shell:history_reply:error"]),
        ("kernel_info_request", ["shell:kernel_info_reply:ok"]),
        ("interrupt_request", ["shell:interrupt_reply:ok"]),
        ("comm_msg", ["iopub:stream"]),
    ],
)
def test_later_requests_say_why_there_is_no_sandbox(kind: str, expected: list[str]) -> None:
    kernel = make_kernel(connected=False)
    kernel.give_up(GONE)
    said = words(kernel.receive("shell", request(kind)))
    assert said == ["iopub:status:busy", *expected, "iopub:status:idle"]
    assert kernel.receive("stdin", request("input_reply")) == []
    assert kernel.interrupt() == []


def test_a_stopped_sandbox_is_started_by_the_next_cell_alone() -> None:
    kernel, running = make_kernel(), request("execute_request")
    kernel.receive("shell", running)
    busy(kernel, running)
    assert words(kernel.rest(GONE)) == [
        "iopub:error:SANDBOX_GONE",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]
    told = words(kernel.receive("shell", request("complete_request")))
    assert told == ["iopub:status:busy", "shell:complete_reply:error", "iopub:status:idle"]
    cell, next_cell = request("execute_request"), request("execute_request")
    assert kernel.receive("shell", cell) == [Wake()]
    assert kernel.receive("shell", next_cell) == []
    first, *ups = kernel.connect()
    assert isinstance(first, ChannelMessage)
    assert first.message.parent_header == cell.header
    assert "started again" in first.message.body()["text"]
    assert ups == [Up("shell", cell), Up("shell", next_cell)]
    kernel.disconnect()
    assert kernel.connect() == ups  # it is told once


def test_a_sandbox_that_does_not_start_is_tried_again_by_the_next_cell() -> None:
    kernel = make_kernel()
    kernel.rest(GONE)
    assert kernel.receive("shell", request("execute_request")) == [Wake()]
    failed = Problem(name="START_FAILED", value="no room")
    assert "iopub:error:START_FAILED" in words(kernel.rest(failed))
    assert kernel.receive("shell", request("execute_request")) == [Wake()]
    assert "shell:execute_reply:error" in words(kernel.give_up(GONE))
    assert Wake() not in kernel.receive("shell", request("execute_request"))


def test_what_the_guest_said_of_the_kernel_is_remembered() -> None:
    kernel, asked = make_kernel(), request("kernel_info_request")
    kernel.receive("shell", asked)
    kernel.hear("shell", answer(asked, "kernel_info_reply", status="ok", banner="told"))
    kernel.give_up(GONE)
    known = kernel.receive("control", request("kernel_info_request"))[1]
    assert isinstance(known, ChannelMessage)
    assert known.message.body()["banner"] == "told"


def test_an_interrupt_of_our_own_is_answered_to_nobody() -> None:
    kernel = make_kernel()
    (up,) = kernel.interrupt()
    assert isinstance(up, Up)
    assert (up.channel, up.message.msg_type) == ("control", "interrupt_request")
    assert busy(kernel, up.message) == []
    assert reply(kernel, up.message, "control") == []
    assert idle(kernel, up.message) == []
    assert kernel.connect() == []


def test_shutdown_stays_here_and_is_answered_when_all_has_ended() -> None:
    kernel, asked = make_kernel(), request("shutdown_request", restart=True)
    actions = kernel.receive("control", asked)
    assert words(actions) == ["iopub:status:busy", "stop"]
    assert words(kernel.answer_stop(Stop("control", asked))) == [
        "control:shutdown_reply:ok",
        "iopub:shutdown_reply:ok",
        "iopub:status:idle",
    ]


def test_lost_messages_are_told_to_the_cell_that_runs_and_asked_for_again() -> None:
    kernel, running, waiting = make_kernel(), request("execute_request"), request("execute_request")
    kernel.receive("shell", running)
    kernel.receive("shell", waiting)
    busy(kernel, running)
    assert words(kernel.lose(7)) == ["iopub:stream", "up:shell:execute_request", "up:shell:execute_request"]


def test_more_than_may_wait_is_refused() -> None:
    kernel = OuterKernel(session="front", version="1", max_open=1)
    kernel.receive("shell", request("execute_request"))
    assert "shell:execute_reply:error" in words(kernel.receive("shell", request("execute_request")))


def errand(asked: Message, number: int = 0) -> Message:
    return new_message("errand_request", {"number": number}, session="front", parent=asked.header)


def uploading(
    code: str = "%process list\n%sandbox upload a b", **content: Any
) -> tuple[OuterKernel, Message]:
    kernel, asked = make_kernel(), request("execute_request", code=code, **content)
    kernel.receive("shell", asked)
    busy(kernel, asked)
    return kernel, asked


def test_an_errand_is_what_the_front_end_has_sent_and_is_done_once() -> None:
    kernel, asked = uploading(allow_stdin=True)
    (begun,) = kernel.hear("control", errand(asked, 1))
    assert isinstance(begun, Errand)
    assert (begun.key, begun.order.operands, begun.may_ask) == (asked.key, ("a", "b"), True)
    assert kernel.hear("control", errand(asked, 1)) == []
    assert words(kernel.show(asked.key, {"text/plain": "half"})) == ["iopub:display_data"]
    (said,) = kernel.end_errand(asked.key, 1, None)
    assert isinstance(said, Up)
    assert (said.channel, said.message.body()) == ("control", {"number": 1})


def test_an_errand_of_a_silent_cell_shows_nothing() -> None:
    kernel, asked = uploading(silent=True)
    kernel.hear("control", errand(asked, 1))
    assert kernel.show(asked.key, {"text/plain": "half"}) == kernel.say(asked.key, "done") == []


@pytest.mark.parametrize("number", [0, 2, -1, 10**9])
def test_a_guest_that_asks_for_what_nobody_has_sent_is_refused(number: int) -> None:
    kernel, asked = uploading()
    (said,) = kernel.hear("control", errand(asked, number))
    assert isinstance(said, Up)
    assert said.message.body()["problem"]["ename"] == "FORBIDDEN"


def test_a_guest_cannot_have_another_cell_do_errands() -> None:
    kernel, python = uploading("print('%sandbox upload a b')")
    assert words(kernel.hear("control", errand(python))) == ["up:control:errand_reply"]
    assert kernel.hear("control", errand(request("execute_request", code="%terminal"))) == []


def test_an_errand_is_given_up_when_its_cell_ends() -> None:
    kernel, asked = uploading()
    kernel.hear("control", errand(asked, 1))
    assert words(reply(kernel, asked)) == ["shell:execute_reply:ok"]
    assert words(idle(kernel, asked)) == ["iopub:status:idle", "over"]
    assert kernel.say(asked.key, "late") == kernel.ask(asked.key, "late?") == []
    assert kernel.end_errand(asked.key, 1, None) == []
    gone, asked = uploading()
    gone.hear("control", errand(asked, 1))
    assert words(gone.give_up(GONE))[-1] == "over"


def test_how_an_errand_went_is_said_again_after_a_broken_connection() -> None:
    kernel, asked = uploading()
    kernel.hear("control", errand(asked, 1))
    kernel.disconnect()
    assert kernel.end_errand(asked.key, 1, GONE) == []
    assert words(kernel.connect()) == ["up:shell:execute_request", "up:control:errand_reply"]


def test_an_answer_to_a_question_of_this_machine_stays_here() -> None:
    kernel, asked = uploading(allow_stdin=True)
    kernel.hear("control", errand(asked, 1))
    (question,) = kernel.ask(asked.key, "may I?")
    assert isinstance(question, ChannelMessage)
    assert (question.channel, question.message.body()) == ("stdin", {"prompt": "may I?", "password": False})
    line = request("input_reply", value="yes")
    assert kernel.receive("stdin", line) == [Answered(asked.key, "yes")]
    assert words(kernel.receive("stdin", request("input_reply", value="again"))) == ["up:stdin:input_reply"]


def test_a_cell_whose_last_line_has_started_the_sandbox_anew_ends_well_and_the_next_one_runs() -> None:
    kernel, asked = uploading()
    kernel.hear("iopub", answer(asked, "execute_input", code="", execution_count=7))
    (begun,) = kernel.hear("control", errand(asked, 1))
    assert isinstance(begun, Errand)
    assert begun.is_last
    following = request("execute_request", code="1")
    kernel.receive("shell", following)
    kernel.disconnect()
    replied, ended = kernel.end_cell(asked.key)
    assert words([replied, ended]) == ["shell:execute_reply:ok", "iopub:status:idle"]
    assert isinstance(replied, ChannelMessage)
    assert replied.message.body()["execution_count"] == 7
    assert kernel.connect() == [Up("shell", following)]
    assert kernel.end_cell(asked.key) == []
