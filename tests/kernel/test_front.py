from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.end import CommandEnd, End
from sandcell_kernel.actions import (
    AskKernelInfo,
    Forward,
    Interrupt,
    Restart,
    RunShell,
    Shutdown,
    Submit,
    TakeTicket,
)
from sandcell_kernel.answers import Problem
from sandcell_kernel.front import Front
from sandcell_kernel.seen import Seen
from sandcell_kernel.wire import BadMessage, ChannelMessage, Message, new_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.end import Cause
    from sandcell_kernel.actions import Action
    from sandcell_kernel.wire import Channel


def make_front(**options: Any) -> Front:
    return Front(session="front", version="1.2.3", **options)


def request(kind: str, **content: Any) -> Message:
    return new_message(kind, content, session="client")


def execute(code: str = "1", **content: Any) -> Message:
    return request("execute_request", code=code, **content)


def from_kernel(asked: Message, kind: str, content: dict[str, Any], buffers: Sequence[bytes] = ()) -> Message:
    return new_message(kind, content, session="inner", parent=asked.header, buffers=buffers)


def status(asked: Message, state: str) -> Message:
    return from_kernel(asked, "status", {"execution_state": state})


def show(actions: list[Action]) -> list[str]:
    """Write actions as short words: messages as channel:type[:what matters], the rest by their names."""
    return [_word(action) for action in actions]


def _word(action: Action) -> str:
    if not isinstance(action, ChannelMessage):
        return type(action).__name__
    channel, message = action
    body = message.body()
    detail = body.get("execution_state") or body.get("status") or body.get("ename") or body.get("text")
    return ":".join(filter(None, [channel, message.msg_type, detail]))


def messages(actions: list[Action], kind: str) -> list[Message]:
    return [
        action.message
        for action in actions
        if isinstance(action, ChannelMessage) and action.message.msg_type == kind
    ]


Said = tuple["Channel", str, dict[str, Any]]


def say(front: Front, asked: Message, *said: Said) -> list[Action]:
    actions: list[Action] = []
    for channel, kind, content in said:
        actions += front.relay(channel, from_kernel(asked, kind, content))
    return actions


BUSY: Said = ("iopub", "status", {"execution_state": "busy"})
IDLE: Said = ("iopub", "status", {"execution_state": "idle"})


def reply(status: str = "ok", count: int = 1) -> Said:
    return ("shell", "execute_reply", {"status": status, "execution_count": count})


def end(
    front: Front,
    asked: Message,
    *,
    cause: Cause = "exited",
    reason: str = "",
    lost: bool = False,
) -> list[Action]:
    return front.end_run(asked.msg_id, cause=cause, reason=reason, lost=lost)


def run_python(front: Front, asked: Message, status: str = "ok", count: int = 1) -> list[Action]:
    return [*say(front, asked, BUSY, reply(status, count), IDLE), *end(front, asked)]


def command_end(code: int | None = 0, signal: int | None = None, cause: Cause = "exited") -> CommandEnd:
    return CommandEnd(end=End(cause=cause, code=code), exit_code=code, signal=signal, duration=0.1)


# --- cells


def test_a_cell_goes_to_the_context_as_it_came() -> None:
    asked = execute("%matplotlib inline\nx = 1", silent=False)
    assert make_front().receive("shell", asked) == [Submit(asked)]


def test_reply_follows_the_outputs_and_idle_is_last() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    actions = say(front, asked, BUSY, reply(), ("iopub", "stream", {"text": "out"}), IDLE)
    assert show(actions) == ["iopub:status:busy", "iopub:stream:out"]
    assert show(end(front, asked)) == ["shell:execute_reply:ok", "iopub:status:idle"]


def test_idle_that_comes_before_the_reply_is_held_back() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    assert show(say(front, asked, BUSY, IDLE, reply())) == ["iopub:status:busy"]
    assert show(end(front, asked)) == ["shell:execute_reply:ok", "iopub:status:idle"]


def test_relayed_messages_keep_their_ids_and_parents_and_get_the_session_of_the_front() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    inner = from_kernel(asked, "comm_msg", {"data": 1}, buffers=[b"\xff\x00"])
    (sent,) = front.relay("iopub", inner)
    assert isinstance(sent, ChannelMessage)
    assert sent.message.parent_header == asked.header
    assert sent.message.parts()[2:] == inner.parts()[2:]
    assert (sent.message.msg_id, sent.message.head.session) == (inner.msg_id, "front")
    assert sent.message.head.date == inner.head.date


def test_cells_run_one_after_another() -> None:
    front, first, second = make_front(), execute("1"), execute("2")
    assert show(front.receive("shell", first)) == ["Submit"]
    assert front.receive("shell", second) == []
    assert run_python(front, first)[-1] == Submit(second)
    assert front.is_busy
    run_python(front, second)
    assert not front.is_busy


def test_an_error_aborts_the_cells_that_wait() -> None:
    front, first, second, third = make_front(), execute("1"), execute("%%shell\nls"), execute("3")
    for asked in (first, second, third):
        front.receive("shell", asked)
    actions = run_python(front, first, status="error")
    aborted = ["iopub:status:busy", "shell:execute_reply:aborted", "iopub:status:idle"]
    assert show(actions)[1:] == ["shell:execute_reply:error", "iopub:status:idle", *aborted, *aborted]
    assert [m.parent_id for m in messages(actions, "execute_reply")[1:]] == [second.msg_id, third.msg_id]


@pytest.mark.parametrize("options", [{"stop_on_error": False}, {"silent": True}])
def test_an_error_that_stops_nothing_lets_the_next_cell_run(options: dict[str, bool]) -> None:
    front, first, second = make_front(), execute("1", **options), execute("2")
    front.receive("shell", first)
    front.receive("shell", second)
    assert run_python(front, first, status="error")[-1] == Submit(second)


@pytest.mark.parametrize(
    ("cause", "name"),
    [("interrupted", "KeyboardInterrupt"), ("timeout", "TimeoutError"), ("replaced", "ContextDied")],
)
def test_a_cell_that_never_got_its_turn_says_why(cause: Cause, name: str) -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    actions = end(front, asked, cause=cause, reason="another restarted the context")
    assert show(actions) == [
        "iopub:status:busy",
        f"iopub:error:{name}",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]
    assert messages(actions, "error")[0].body()["evalue"] == "another restarted the context"


def test_death_of_the_kernel_ends_the_cell_with_an_error() -> None:
    front, asked, waiting = make_front(), execute(), execute("2")
    front.receive("shell", asked)
    front.receive("shell", waiting)
    say(front, asked, BUSY)
    actions = end(front, asked, cause="oom", reason="the kernel was ended: out of memory", lost=True)
    assert show(actions) == [
        "iopub:stream:[sandcell] the kernel was ended: out of memory\n",
        "iopub:error:ContextDied",
        "shell:execute_reply:error",
        "iopub:status:idle",
        "iopub:status:busy",
        "shell:execute_reply:aborted",
        "iopub:status:idle",
    ]
    body = messages(actions, "execute_reply")[0].body()
    assert body["evalue"] == "the kernel was ended: out of memory"
    assert body["traceback"] == ["ContextDied: the kernel was ended: out of memory"]


def test_death_after_the_reply_is_no_error_of_the_cell() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    say(front, asked, BUSY, reply())
    assert show(end(front, asked, cause="lost", lost=True)) == ["shell:execute_reply:ok", "iopub:status:idle"]


def test_death_answers_whatever_waited_for_the_kernel() -> None:
    front, asked, history = make_front(), execute(), request("history_request")
    front.receive("shell", asked)
    front.receive("shell", history)
    actions = end(front, asked, cause="lost", reason="gone", lost=True)
    assert "shell:history_reply:error" in show(actions)


def test_a_refused_run_shows_code_and_hint() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    actions = front.fail(asked.key, Problem(name="BUSY", value="the queue is full", lines=("wait",)))
    assert show(actions) == [
        "iopub:status:busy",
        "iopub:error:BUSY",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]
    assert messages(actions, "error")[0].body()["traceback"] == ["BUSY: the queue is full", "wait"]


def test_a_queue_beyond_its_bound_refuses() -> None:
    front = make_front(max_waiting=1)
    front.receive("shell", execute())
    front.receive("shell", execute())
    assert "iopub:error:BUSY" in show(front.receive("shell", execute()))


@pytest.mark.parametrize("content", [{}, {"code": 3}, {"code": None}])
def test_an_execute_request_without_code_is_answered(content: dict[str, Any]) -> None:
    actions = make_front().receive("shell", request("execute_request", **content))
    assert show(actions)[-2:] == ["shell:execute_reply:error", "iopub:status:idle"]


def test_content_that_is_no_json_is_answered() -> None:
    asked = Message(execute().header, content=b"\xff")
    assert show(make_front().receive("shell", asked))[-1] == "iopub:status:idle"


def test_late_output_is_passed_on_and_a_late_status_is_not() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    run_python(front, asked)
    assert show(say(front, asked, ("iopub", "stream", {"text": "late"}))) == ["iopub:stream:late"]
    assert say(front, asked, BUSY, reply()) == []


def test_a_kernel_that_writes_nonsense_breaks_nothing() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    with pytest.raises(BadMessage):
        front.relay("iopub", Message(b"nonsense", asked.header))
    front.relay("iopub", Message(status(asked, "busy").header, asked.header, content=b"[]"))
    front.relay("shell", Message(from_kernel(asked, "execute_reply", {}).header, asked.header, content=b"x"))
    actions = end(front, asked)
    assert show(actions)[-2:] == ["shell:execute_reply:error", "iopub:status:idle"]
    assert messages(actions, "execute_reply")[0].body()["evalue"]


# --- input


def test_input_is_asked_and_answered_for_the_running_cell_only() -> None:
    front, asked = make_front(), execute("input()", allow_stdin=True)
    early, answer, again = (request("input_reply", value=text) for text in ("a", "b", "c"))
    front.receive("shell", asked)
    assert front.receive("stdin", early) == []
    assert show(say(front, asked, ("stdin", "input_request", {"prompt": "?"}))) == ["stdin:input_request"]
    assert front.receive("stdin", answer) == [Forward("stdin", answer)]
    assert front.receive("stdin", again) == []


def test_an_answer_to_a_cell_that_ended_is_dropped() -> None:
    front, asked = make_front(), execute("input()", allow_stdin=True)
    front.receive("shell", asked)
    say(front, asked, ("stdin", "input_request", {"prompt": "?"}))
    run_python(front, asked)
    front.receive("shell", execute("input()"))
    assert front.receive("stdin", request("input_reply", value="late")) == []


# --- shell cells


def start_shell(front: Front, asked: Message, count: int = 5) -> list[Action]:
    return [*front.receive("shell", asked), *front.start_shell(asked.key, count)]


def test_a_shell_cell_takes_a_number_and_runs_in_its_session() -> None:
    front, asked = make_front(), execute("%%shell build\nmake")
    assert show(front.receive("shell", asked)) == ["iopub:status:busy", "TakeTicket"]
    actions = front.start_shell(asked.key, 5)
    assert show(actions) == ["iopub:execute_input", "RunShell"]
    assert messages(actions, "execute_input")[0].body() == {
        "code": "%%shell build\nmake",
        "execution_count": 5,
    }
    assert actions[-1] == RunShell(asked.key, "build", "make")
    shown = front.show_shell(asked.key, "stdout", b"out\n") + front.show_shell(asked.key, "stderr", b"err\n")
    assert [message.body()["name"] for message in messages(shown, "stream")] == ["stdout", "stderr"]
    done = front.end_shell(asked.key, command_end())
    assert show(done) == ["shell:execute_reply:ok", "iopub:status:idle"]
    assert messages(done, "execute_reply")[0].body()["execution_count"] == 5


@pytest.mark.parametrize(
    ("ended", "value"),
    [
        (command_end(3), "the command ended with exit status 3"),
        (command_end(None, 9, "signaled"), "the command ended with signal 9"),
        (command_end(None, 9, "timeout"), "the command ended with signal 9 (timeout)"),
    ],
)
def test_a_command_that_fails_is_an_error_that_names_its_end(ended: CommandEnd, value: str) -> None:
    front, asked, waiting = make_front(), execute("%%shell\nfalse"), execute()
    start_shell(front, asked)
    front.receive("shell", waiting)
    actions = front.end_shell(asked.key, ended)
    assert show(actions)[:3] == [
        "iopub:error:CommandFailed",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]
    body = messages(actions, "execute_reply")[0].body()
    assert (body["evalue"], body["execution_count"]) == (value, 5)
    assert "shell:execute_reply:aborted" in show(actions)


def test_characters_are_not_cut_between_chunks() -> None:
    front, asked = make_front(), execute("%%shell\ncat")
    start_shell(front, asked)
    actions = [
        *front.show_shell(asked.key, "stdout", "é".encode()[:1]),
        *front.show_shell(asked.key, "stdout", "é".encode()[1:]),
        *front.show_shell(asked.key, "stdout", b"\xff"),
        *front.show_shell(asked.key, "stdout", b"\xe2\x82"),
        *front.end_shell(asked.key, command_end()),
    ]
    assert [message.body()["text"] for message in messages(actions, "stream")] == ["é", "\ufffd", "\ufffd"]


def test_output_beyond_the_bound_is_counted() -> None:
    front, asked = make_front(max_shell_output=4), execute("%%shell\nyes")
    start_shell(front, asked)
    assert show(front.show_shell(asked.key, "stdout", b"123456")) == ["iopub:stream:1234"]
    assert front.show_shell(asked.key, "stdout", b"78") == []
    assert "4 more bytes" in show(front.end_shell(asked.key, command_end()))[0]


@pytest.mark.parametrize("options", [{"silent": True}, {"store_history": False}])
def test_a_shell_cell_outside_history_takes_no_number(options: dict[str, bool]) -> None:
    front, first, asked = make_front(), execute("%%shell\n"), execute("%%shell\nls", **options)
    start_shell(front, first, count=7)
    front.end_shell(first.key, command_end())
    actions = front.receive("shell", asked)
    assert "TakeTicket" not in show(actions)
    assert bool(messages(actions, "execute_input")) is not options.get("silent", False)
    done = front.end_shell(asked.key, command_end())
    assert messages(done, "execute_reply")[0].body()["execution_count"] == 7


def test_a_first_line_that_cannot_be_followed_runs_nothing() -> None:
    actions = make_front().receive("shell", execute("%%shell a b\nls"))
    assert show(actions) == [
        "iopub:status:busy",
        "iopub:error:UsageError",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]


def test_a_shell_that_cannot_be_started_fails_its_cell() -> None:
    front, asked = make_front(), execute("%%shell\nls")
    start_shell(front, asked)
    actions = front.fail(asked.key, Problem(name="START_FAILED", value="no processes left"))
    assert show(actions)[:2] == ["iopub:error:START_FAILED", "shell:execute_reply:error"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("complete_request", {"matches": [], "cursor_start": 9, "cursor_end": 9, "metadata": {}}),
        ("inspect_request", {"found": False, "data": {}, "metadata": {}}),
    ],
)
def test_editors_are_told_nothing_of_shell_cells(kind: str, expected: dict[str, Any]) -> None:
    actions = make_front().receive("shell", request(kind, code="%%shell\nl", cursor_pos=9))
    assert show(actions)[0] == "iopub:status:busy"
    assert messages(actions, kind.replace("request", "reply"))[0].body() == {"status": "ok", **expected}


def test_completeness_of_a_shell_cell_is_unknown() -> None:
    actions = make_front().receive("shell", request("is_complete_request", code="%%shell\nls"))
    assert messages(actions, "is_complete_reply")[0].body() == {"status": "unknown"}


# --- requests that the kernel answers


def test_requests_are_forwarded_and_their_idle_is_last() -> None:
    front, asked = make_front(), request("history_request")
    assert front.receive("shell", asked) == [Forward("shell", asked)]
    assert show(say(front, asked, BUSY, IDLE)) == ["iopub:status:busy"]
    answer: Said = ("shell", "history_reply", {"status": "ok"})
    assert show(say(front, asked, answer)) == ["shell:history_reply:ok", "iopub:status:idle"]
    assert say(front, asked, IDLE) == []


def test_comm_messages_are_forwarded_untouched() -> None:
    front = make_front()
    asked = new_message(
        "comm_msg", {"comm_id": "c"}, session="s", metadata={"version": "2"}, buffers=[b"\xff"]
    )
    assert front.receive("shell", asked) == [Forward("shell", asked)]
    said = say(front, asked, BUSY, ("iopub", "comm_msg", {"comm_id": "c"}), IDLE)
    assert show(said) == ["iopub:status:busy", "iopub:comm_msg", "iopub:status:idle"]


def test_editors_get_an_empty_answer_when_the_kernel_takes_too_long() -> None:
    front, asked = make_front(), request("complete_request", code="os.pa", cursor_pos=5)
    assert front.receive("shell", asked) == [Forward("shell", asked, is_limited=True)]
    assert show(front.expire(asked.key)) == [
        "iopub:status:busy",
        "shell:complete_reply:ok",
        "iopub:status:idle",
    ]
    late: Said = ("shell", "complete_reply", {"status": "ok", "matches": ["os.path"]})
    assert say(front, asked, BUSY, late, IDLE) == []
    assert front.expire(asked.key) == []


def test_an_answer_in_time_does_not_expire() -> None:
    front, asked = make_front(), request("inspect_request", code="os")
    front.receive("shell", asked)
    say(front, asked, BUSY, ("shell", "inspect_reply", {"status": "ok", "found": True}))
    assert front.expire(asked.key) == []
    assert show(say(front, asked, IDLE)) == ["iopub:status:idle"]


def test_a_forwarded_request_that_fails_is_answered() -> None:
    front, asked = make_front(), request("history_request")
    front.receive("shell", asked)
    actions = front.fail(asked.key, Problem(name="CONTEXT_DIED", value="gone"))
    assert show(actions)[-2:] == ["shell:history_reply:error", "iopub:status:idle"]


@pytest.mark.parametrize("kind", ["debug_request", "create_subshell_request", "connect_request"])
def test_what_is_not_announced_is_refused(kind: str) -> None:
    actions = make_front().receive("control", request(kind))
    answer = kind.replace("request", "reply")
    assert show(actions) == ["iopub:status:busy", f"control:{answer}:error", "iopub:status:idle"]


def test_a_message_for_a_subshell_is_refused() -> None:
    plain = execute()
    header = plain.header.replace(b"{", b'{"subshell_id":"1",', 1)
    actions = make_front().receive("shell", Message(header, content=plain.content))
    assert "shell:execute_reply:error" in show(actions)


# --- the kernel itself


INNER: dict[str, Any] = {
    "language_info": {"name": "python", "version": "3.11.2"},
    "banner": "Python 3.11.2",
    "help_links": [],
}


def test_kernel_info_names_us_and_the_language_of_the_kernel() -> None:
    front, first, second = make_front(), request("kernel_info_request"), request("kernel_info_request")
    assert show(front.receive("shell", first)) == ["iopub:status:busy", "AskKernelInfo"]
    assert show(front.receive("control", second)) == ["iopub:status:busy", "AskKernelInfo"]
    actions = front.learn_kernel(INNER)
    assert show(actions) == [
        "shell:kernel_info_reply:ok",
        "iopub:status:idle",
        "control:kernel_info_reply:ok",
        "iopub:status:idle",
    ]
    body = messages(actions, "kernel_info_reply")[0].body()
    assert (body["implementation"], body["implementation_version"]) == ("sandcell", "1.2.3")
    assert (body["protocol_version"], body["supported_features"], body["debugger"]) == ("5.5", [], False)
    assert body["language_info"] == INNER["language_info"]
    assert front.learn_kernel(INNER) == []
    known = front.receive("shell", request("kernel_info_request"))
    assert show(known) == ["iopub:status:busy", "shell:kernel_info_reply:ok", "iopub:status:idle"]


def test_kernel_info_is_answered_without_a_kernel() -> None:
    front, asked = make_front(), request("kernel_info_request")
    assert front.receive("shell", asked)[-1] == AskKernelInfo(asked.key)
    actions = front.fail(asked.key, Problem(name="START_FAILED", value="no kernel"))
    body = messages(actions, "kernel_info_reply")[0].body()
    assert (body["status"], body["language_info"]["name"]) == ("ok", "python")


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_interrupt_reaches_the_context(channel: Channel) -> None:
    front, asked = make_front(), request("interrupt_request")
    front.receive("shell", execute("while True: pass"))
    assert front.receive(channel, asked)[-1] == Interrupt(asked.key, None)
    assert show(front.finish(asked.key)) == [f"{channel}:interrupt_reply:ok", "iopub:status:idle"]


def test_interrupt_reaches_the_command_of_a_shell_cell() -> None:
    front, asked, stop = make_front(), execute("%%shell build\nsleep 60"), request("interrupt_request")
    start_shell(front, asked)
    assert front.receive("control", stop)[-1] == Interrupt(stop.key, "build")
    front.finish(stop.key)
    actions = front.end_shell(asked.key, command_end(130))
    assert show(actions)[:2] == ["iopub:error:KeyboardInterrupt", "shell:execute_reply:error"]


def test_interrupt_before_the_command_started_runs_nothing() -> None:
    front, asked = make_front(), execute("%%shell\nsleep 60")
    assert front.receive("shell", asked)[-1] == TakeTicket(asked.key)
    stopped = front.receive("control", request("interrupt_request"))
    assert show(stopped)[1] == "control:interrupt_reply:ok"
    actions = front.start_shell(asked.key, 3)
    assert "RunShell" not in show(actions)
    assert show(actions)[-3:] == [
        "iopub:error:KeyboardInterrupt",
        "shell:execute_reply:error",
        "iopub:status:idle",
    ]


def test_an_interrupt_that_fails_is_told() -> None:
    front, asked = make_front(), request("interrupt_request")
    front.receive("control", asked)
    actions = front.fail(asked.key, Problem(name="CONTEXT_DIED", value="gone"))
    assert show(actions) == ["control:interrupt_reply:error", "iopub:status:idle"]


def test_shutdown_is_answered_and_every_client_is_told() -> None:
    front = make_front()
    actions = front.receive("control", request("shutdown_request", restart=False))
    assert show(actions) == [
        "iopub:status:busy",
        "control:shutdown_reply:ok",
        "iopub:shutdown_reply:ok",
        "iopub:status:idle",
        "Shutdown",
    ]
    assert actions[-1] == Shutdown()


def test_restart_is_answered_when_it_is_done() -> None:
    front, asked = make_front(), request("shutdown_request", restart=True)
    assert front.receive("control", asked)[-1] == Restart(asked.key)
    actions = front.finish(asked.key)
    assert show(actions)[:2] == ["control:shutdown_reply:ok", "iopub:shutdown_reply:ok"]
    assert messages(actions, "shutdown_reply")[0].body()["restart"] is True


# --- asked twice


def test_a_request_that_is_sent_again_runs_once() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    assert front.receive("shell", asked) == []
    run_python(front, asked, count=4)
    again = front.receive("shell", asked)
    assert show(again) == ["shell:execute_reply:ok", "iopub:status:idle"]
    assert messages(again, "execute_reply")[0].body()["execution_count"] == 4


def test_a_comm_message_that_is_sent_again_is_idle() -> None:
    front, asked = make_front(), request("comm_msg")
    front.receive("shell", asked)
    say(front, asked, BUSY, IDLE)
    assert show(front.receive("shell", asked)) == ["iopub:status:idle"]


def test_a_reply_that_is_no_longer_kept_is_said_to_be_lost() -> None:
    front, first, second = make_front(seen=Seen(max_bytes=500)), execute(), execute("2")
    for asked in (first, second):
        front.receive("shell", asked)
        run_python(front, asked)
    again = front.receive("shell", first)
    assert show(again) == ["shell:execute_reply:error", "iopub:status:idle"]
    assert messages(again, "execute_reply")[0].body()["ename"] == "LOST"


def test_what_was_seen_is_bounded() -> None:
    seen = Seen(max_requests=2)
    a, b, c = (execute(code) for code in "abc")
    assert [seen.add(each) for each in (a, b, a, c, a)] == [True, True, False, True, True]


def test_requests_of_one_id_are_told_apart() -> None:
    """jupyter_client's manager and client share a session, and both number their messages from 0."""
    front, cell = make_front(), execute("while True: pass")
    stop = Message(cell.header.replace(b"execute_request", b"interrupt_request"))
    front.receive("shell", cell)
    assert front.receive("control", stop)[-1] == Interrupt(stop.key, None)
    assert show(front.finish(stop.key)) == ["control:interrupt_reply:ok", "iopub:status:idle"]
    assert show(run_python(front, cell))[-2:] == ["shell:execute_reply:ok", "iopub:status:idle"]
