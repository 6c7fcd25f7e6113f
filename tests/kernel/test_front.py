from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.end import CommandEnd, End
from sandcell_kernel.actions import (
    Answer,
    AskComms,
    AskKernelInfo,
    Forward,
    Interrupt,
    Perform,
    Restart,
    Shutdown,
    Submit,
    TakeTicket,
)
from sandcell_kernel.answers import Problem
from sandcell_kernel.cells import ShellCell
from sandcell_kernel.front import Front
from sandcell_kernel.requests import command_problem
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


def end_work(front: Front, asked: Message, ended: CommandEnd, *, interrupted: bool = False) -> list[Action]:
    return front.end_work(asked.key, command_problem(ended, interrupted=interrupted))


# --- cells


def test_a_cell_goes_to_the_context_as_it_came() -> None:
    asked = execute("%matplotlib inline\nx = 1", silent=False)
    assert make_front().receive("shell", asked) == [Submit(asked)]


def test_reply_follows_the_outputs_and_idle_is_last() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    actions = say(front, asked, BUSY, reply(), ("iopub", "stream", {"name": "stdout", "text": "out"}), IDLE)
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
    inner = from_kernel(asked, "comm_msg", {"comm_id": "c", "data": 1}, buffers=[b"\xff\x00"])
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


def test_output_of_a_kernel_beyond_the_bound_is_said_to_be_missing() -> None:
    front, asked = make_front(max_shell_output=1000), execute("print('x' * 5000)")
    front.receive("shell", asked)
    first = say(front, asked, BUSY, ("iopub", "stream", {"name": "stdout", "text": "x" * 5000}))
    assert "what follows is counted" in show(first)[-1]
    assert say(front, asked, ("iopub", "stream", {"name": "stdout", "text": "more"})) == []
    say(front, asked, reply(), IDLE)
    told = front.end_run(asked.msg_id, cause="exited", reason="", lost=False, whole="look there")
    assert "3.9 KiB more of output are not shown: look there" in show(told)[0]


def test_late_output_is_passed_on_and_a_late_status_is_not() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    run_python(front, asked)
    assert show(say(front, asked, ("iopub", "stream", {"name": "stdout", "text": "late"}))) == [
        "iopub:stream:late"
    ]
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
    return [*front.receive("shell", asked), *front.give_ticket(asked.key, count)]


def test_a_shell_cell_takes_a_number_and_runs_in_its_session() -> None:
    front, asked = make_front(), execute("%%shell build\nmake")
    assert show(front.receive("shell", asked)) == ["iopub:status:busy", "TakeTicket"]
    actions = front.give_ticket(asked.key, 5)
    assert show(actions) == ["iopub:execute_input", "Perform"]
    assert messages(actions, "execute_input")[0].body() == {
        "code": "%%shell build\nmake",
        "execution_count": 5,
    }
    assert actions[-1] == Perform(asked.key, ShellCell("build", "make"))
    shown = front.show_output(asked.key, "stdout", b"out\n") + front.show_output(
        asked.key, "stderr", b"err\n"
    )
    assert [message.body()["name"] for message in messages(shown, "stream")] == ["stdout", "stderr"]
    done = end_work(front, asked, command_end())
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
    actions = end_work(front, asked, ended)
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
        *front.show_output(asked.key, "stdout", "é".encode()[:1]),
        *front.show_output(asked.key, "stdout", "é".encode()[1:]),
        *front.show_output(asked.key, "stdout", b"\xff"),
        *front.show_output(asked.key, "stdout", b"\xe2\x82"),
        *end_work(front, asked, command_end()),
    ]
    assert [message.body()["text"] for message in messages(actions, "stream")] == ["é", "\ufffd", "\ufffd"]


def test_output_beyond_the_bound_is_counted() -> None:
    front, asked = make_front(max_shell_output=4), execute("%%shell\nyes")
    start_shell(front, asked)
    assert show(front.show_output(asked.key, "stdout", b"123456")) == ["iopub:stream:1234"]
    assert front.show_output(asked.key, "stdout", b"78") == []
    assert "4 more bytes" in show(end_work(front, asked, command_end()))[0]


def test_what_a_job_of_a_shell_cell_says_late_is_shown_in_that_cell() -> None:
    front, asked, other = make_front(max_shell_output=8), execute("%%shell\nwork &"), execute()
    start_shell(front, asked)
    end_work(front, asked, command_end())
    front.receive("shell", other)
    (late,) = messages(front.show_output(asked.key, "stdout", b"late\n"), "stream")
    assert (late.body()["text"], late.parent_header) == ("late\n", asked.header)
    assert show(front.show_output(asked.key, "stdout", b"too much")) == ["iopub:stream:too"]


@pytest.mark.parametrize("options", [{"silent": True}, {"store_history": False}])
def test_a_shell_cell_outside_history_takes_no_number(options: dict[str, bool]) -> None:
    front, first, asked = make_front(), execute("%%shell\n"), execute("%%shell\nls", **options)
    start_shell(front, first, count=7)
    end_work(front, first, command_end())
    actions = front.receive("shell", asked)
    assert "TakeTicket" not in show(actions)
    assert bool(messages(actions, "execute_input")) is not options.get("silent", False)
    done = end_work(front, asked, command_end())
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
    ("code", "matches"),
    [("%%shell", ["%%shell"]), ("%process", ["%process"]), ("%process l", ["list", "logs"])],
)
def test_our_words_are_completed_and_the_question_is_answered_once(code: str, matches: list[str]) -> None:
    actions = make_front().receive("shell", request("complete_request", code=code, cursor_pos=len(code)))
    assert show(actions) == ["iopub:status:busy", "shell:complete_reply:ok", "iopub:status:idle"]
    assert messages(actions, "complete_reply")[0].body()["matches"] == matches


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


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("%%shell\nls", "incomplete"),
        ("%%shell\nls\n\n", "complete"),
        ("%process list", "complete"),
        ("%process fly", "invalid"),
    ],
)
def test_completeness_of_a_cell_of_ours_is_as_ipython_has_it(code: str, status: str) -> None:
    actions = make_front().receive("shell", request("is_complete_request", code=code))
    assert messages(actions, "is_complete_reply")[0].body()["status"] == status


# --- cells of other contexts


def test_an_interpreter_that_died_counts_from_its_start_and_not_from_the_one_before() -> None:
    front = make_front()
    first, dying, wrong = execute(), execute(), execute("%%shell a b")
    front.receive("shell", first)
    run_python(front, first, count=23)
    front.receive("shell", dying)
    say(front, dying, BUSY, ("iopub", "execute_input", {"code": "1", "execution_count": 2}))
    (died,) = messages(end(front, dying, cause="signaled", lost=True), "execute_reply")
    assert died.body()["execution_count"] == 2
    front.receive("shell", again := execute())
    run_python(front, again, count=1)
    (refused,) = messages(front.receive("shell", wrong), "execute_reply")
    assert refused.body()["execution_count"] == 1


@pytest.mark.parametrize(("has_tickets", "then"), [(True, 1), (False, 25)])
def test_an_interpreter_that_died_before_it_said_its_number_had_the_next_one(
    *, has_tickets: bool, then: int
) -> None:
    front = make_front(has_tickets=has_tickets)
    front.receive("shell", first := execute())
    run_python(front, first, count=23)
    before = 23 if has_tickets else 1
    for count in (before + 1, then if has_tickets else before + 2):
        front.receive("shell", dying := execute())
        say(front, dying, BUSY)
        (died,) = messages(end(front, dying, cause="signaled", lost=True), "execute_reply")
        assert died.body()["execution_count"] == count


@pytest.mark.parametrize(
    ("said", "is_helped"),
    [("ERROR: No matching distribution found for x", True), ("Requirement already satisfied: x", False)],
)
@pytest.mark.parametrize("code", ["%pip install x", "%%shell\npip install x"])
def test_an_installation_that_finds_no_index_is_helped_and_one_that_needs_none_is_not(
    code: str, said: str, *, is_helped: bool
) -> None:
    front, asked = make_front(), execute(code)
    if code.startswith("%%shell"):
        start_shell(front, asked)
        told = front.show_output(asked.key, "stdout", said.encode()) + end_work(front, asked, command_end(1))
    else:
        front.receive("shell", asked)
        told = say(front, asked, BUSY, ("iopub", "stream", {"name": "stdout", "text": said}), reply(), IDLE)
        told += end(front, asked)
    notes = [each.body()["text"] for each in messages(told, "stream") if "[sandcell]" in each.body()["text"]]
    assert any("--package x" in note for note in notes) is is_helped


def test_what_no_front_end_can_read_is_dropped_and_its_cell_goes_on() -> None:
    front, asked = make_front(), execute()
    front.receive("shell", asked)
    forged: list[Said] = [
        ("iopub", "error", {}),
        ("iopub", "shutdown_reply", {}),
        ("stdin", "input_request", {}),
    ]
    for said in forged:
        with pytest.raises(BadMessage):
            say(front, asked, said)
    assert show(run_python(front, asked))[-1] == "iopub:status:idle"


def test_the_error_of_a_cell_is_bounded_in_its_reply_as_well() -> None:
    front, asked = make_front(max_shell_output=1000), execute()
    front.receive("shell", asked)
    error = {"ename": "E", "evalue": "x" * 9000, "traceback": ["E: " + "x" * 9000]}
    told = say(
        front,
        asked,
        BUSY,
        ("iopub", "error", error),
        ("shell", "execute_reply", {"status": "error", **error}),
        IDLE,
    )
    told += end(front, asked)
    for kind in ("error", "execute_reply"):
        (message,) = messages(told, kind)
        assert len(message.content) < 1000


OTHER = "%%context other --language js\nx = 1"


def test_a_cell_of_another_context_has_the_notebooks_number_and_its_own_code() -> None:
    front, asked = make_front(), execute(OTHER)
    front.receive("shell", asked)
    actions = front.give_ticket(asked.key, 5)
    assert messages(actions, "execute_input")[0].body() == {"code": OTHER, "execution_count": 5}
    (submitted,) = [each for each in actions if isinstance(each, Submit)]
    assert (submitted.context_id, submitted.language) == ("other", "js")
    assert submitted.request.body()["code"] == "x = 1"
    assert submitted.request.header == asked.header
    said: list[Said] = [
        BUSY,
        ("iopub", "execute_input", {"code": "x = 1", "execution_count": 1}),
        ("iopub", "execute_result", {"data": {}, "metadata": {}, "execution_count": 1}),
        ("shell", "execute_reply", {"status": "ok", "execution_count": 1}),
        IDLE,
    ]
    told = [*say(front, asked, *said), *end(front, asked)]
    assert show(told) == ["iopub:execute_result", "shell:execute_reply:ok", "iopub:status:idle"]
    assert messages(told, "execute_result")[0].body()["execution_count"] == 5
    assert messages(told, "execute_reply")[0].body()["execution_count"] == 5


def test_an_editor_asks_the_context_of_its_cell_about_what_stands_there() -> None:
    front = make_front()
    front.note_context("other")
    asked = request("complete_request", code=OTHER, cursor_pos=len(OTHER))
    (forward,) = front.receive("shell", asked)
    assert isinstance(forward, Forward)
    assert forward.message.body() == {"code": "x = 1", "cursor_pos": 5}
    assert (forward.context_id, forward.is_limited) == ("other", True)
    answer: Said = (
        "shell",
        "complete_reply",
        {
            "matches": ["1.0"],
            "cursor_start": 4,
            "cursor_end": 5,
            "metadata": {"_jupyter_types_experimental": [{"start": 4, "end": 5, "text": "1.0"}, 7]},
        },
    )
    body = messages(say(front, asked, answer), "complete_reply")[0].body()
    at = len(OTHER) - 1
    assert (body["cursor_start"], body["cursor_end"]) == (at, at + 1)
    assert body["metadata"]["_jupyter_types_experimental"][0]["start"] == at


def test_a_context_that_no_cell_has_used_is_not_asked() -> None:
    actions = make_front().receive("shell", request("complete_request", code=OTHER, cursor_pos=len(OTHER)))
    assert messages(actions, "complete_reply")[0].body()["matches"] == []


def test_comms_go_to_the_context_that_opened_them() -> None:
    front, opened = make_front(), new_message("comm_open", {"comm_id": "c1"}, session="inner")
    front.note_context("other")
    front.relay("iopub", opened, "other")
    asked, own = request("comm_msg", comm_id="c1"), request("comm_msg", comm_id="c2")
    assert front.receive("shell", asked) == [Forward("shell", asked, context_id="other")]
    assert front.receive("shell", own) == [Forward("shell", own)]
    question = request("comm_info_request", target_name="t")
    assert front.receive("shell", question)[-1] == AskComms(question.key, "t", ("other",))
    told = front.tell_comms(question.key, {"c1": {"target_name": "t"}})
    assert messages(told, "comm_info_reply")[0].body()["comms"] == {"c1": {"target_name": "t"}}
    front.receive("shell", request("comm_close", comm_id="c1"))
    again = request("comm_msg", comm_id="c1")
    assert front.receive("shell", again) == [Forward("shell", again)]


def test_a_context_that_dies_fails_what_waited_for_it_and_nothing_else() -> None:
    front, own = make_front(), request("history_request")
    front.note_context("other")
    front.receive("shell", own)
    asked = request("complete_request", code=OTHER, cursor_pos=len(OTHER))
    front.receive("shell", asked)
    cell = execute(OTHER)
    front.receive("shell", cell)
    front.give_ticket(cell.key, 1)
    told = front.end_run(cell.msg_id, cause="oom", reason="too much", lost=True, context_id="other")
    assert "shell:complete_reply:error" in show(told)
    assert "shell:history_reply:error" not in show(told)


def test_a_front_whose_kernel_counts_for_itself_has_its_own_numbers() -> None:
    front = make_front(has_tickets=False)
    first, shell, last = execute("1"), execute("%%shell\nls"), execute("2")
    front.receive("shell", first)
    run_python(front, first, count=1)
    assert show(front.receive("shell", shell)) == ["iopub:status:busy", "iopub:execute_input", "Perform"]
    assert messages(end_work(front, shell, command_end()), "execute_reply")[0].body()["execution_count"] == 2
    front.receive("shell", last)
    told = run_python(front, last, count=2)
    assert messages(told, "execute_reply")[0].body()["execution_count"] == 3


# --- work that asks and shows


def test_work_asks_whoever_runs_its_cell() -> None:
    front, asked = make_front(), execute("%%shell\nread x", allow_stdin=True)
    assert start_shell(front, asked)[-1] == Perform(asked.key, ShellCell("shell", "read x"), may_ask=True)
    (question,) = messages(front.ask(asked.key, "name? ", password=True), "input_request")
    assert question.body() == {"prompt": "name? ", "password": True}
    assert question.parent_header == asked.header
    assert front.receive("stdin", request("input_reply", value="me")) == [Answer(asked.key, "me")]
    assert front.receive("stdin", request("input_reply", value="again")) == []
    front.ask(asked.key, "more? ")
    front.withdraw(asked.key)
    assert front.receive("stdin", request("input_reply", value="late")) == []


def test_work_shows_what_can_be_replaced() -> None:
    front, asked = make_front(), execute("%process list")
    start_shell(front, asked)
    (first,) = messages(front.show(asked.key, {"text/plain": "1"}, display_id="d"), "display_data")
    (second,) = messages(
        front.show(asked.key, {"text/plain": "2"}, display_id="d", is_update=True), "update_display_data"
    )
    assert first.body()["transient"] == second.body()["transient"] == {"display_id": "d"}
    done = front.end_work(asked.key, payload=[{"source": "set_next_input", "text": "1", "replace": False}])
    assert messages(done, "execute_reply")[0].body()["payload"][0]["text"] == "1"


def test_a_question_for_a_magic_is_a_page_and_takes_no_number() -> None:
    front = make_front()
    actions = front.receive("shell", execute("%%shell?"))
    assert show(actions) == ["iopub:status:busy", "shell:execute_reply:ok", "iopub:status:idle"]
    (page,) = messages(actions, "execute_reply")[0].body()["payload"]
    assert (page["source"], page["start"]) == ("page", 0)


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


def test_what_is_not_announced_is_refused() -> None:
    actions = make_front().receive("control", request("connect_request"))
    assert show(actions) == ["iopub:status:busy", "control:connect_reply:error", "iopub:status:idle"]


# --- subshells and the debugger


def for_subshell(plain: Message) -> Message:
    return Message(plain.header.replace(b"{", b'{"subshell_id":"1",', 1), content=plain.content)


def test_a_cell_of_a_subshell_runs_beside_the_one_that_runs() -> None:
    front, beside = make_front(), for_subshell(execute("2"))
    front.receive("shell", execute("while True: pass"))
    assert front.receive("shell", beside) == [Forward("shell", beside)]
    told = say(front, beside, BUSY, ("iopub", "stream", {"name": "stdout", "text": "2"}), reply(), IDLE)
    assert show(told) == [
        "iopub:status:busy",
        "iopub:stream:2",
        "shell:execute_reply:ok",
        "iopub:status:idle",
    ]


def test_a_cell_of_ours_runs_in_no_subshell() -> None:
    actions = make_front().receive("shell", for_subshell(execute("%%shell\nls")))
    assert "iopub:error:UNSUPPORTED" in show(actions)


def test_input_of_a_subshell_is_answered() -> None:
    front, asked = make_front(), for_subshell(execute("input()", allow_stdin=True))
    front.receive("shell", asked)
    assert show(say(front, asked, ("stdin", "input_request", {"prompt": "?"}))) == ["stdin:input_request"]
    answer = request("input_reply", value="yes")
    assert front.receive("stdin", answer) == [Forward("stdin", answer)]


@pytest.mark.parametrize("kind", ["create_subshell_request", "list_subshell_request", "debug_request"])
def test_what_the_kernel_announces_is_handed_on(kind: str) -> None:
    front, asked = make_front(), request(kind)
    assert front.receive("control", asked) == [Forward("control", asked)]


def test_a_cell_that_runs_elsewhere_cannot_be_debugged_and_that_is_said() -> None:
    front = make_front()
    asked = request("debug_request", command="dumpCell", seq=4, arguments={"code": "%%shell\nls"})
    (answer,) = messages(front.receive("control", asked), "debug_reply")
    body = answer.body()
    assert (body["success"], body["request_seq"], body["command"]) == (False, 4, "dumpCell")
    assert "%%shell" in body["message"]


# --- the kernel itself


INNER: dict[str, Any] = {
    "language_info": {"name": "python", "version": "3.11.2"},
    "banner": "Python 3.11.2",
    "help_links": [],
    "supported_features": ["kernel subshells", "debugger", "something new"],
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
    assert (body["protocol_version"], body["debugger"]) == ("5.5", True)
    assert body["supported_features"] == ["debugger", "kernel subshells"]
    assert body["language_info"] == INNER["language_info"]
    assert front.learn_kernel(INNER) == []
    known = front.receive("shell", request("kernel_info_request"))
    assert show(known) == ["iopub:status:busy", "shell:kernel_info_reply:ok", "iopub:status:idle"]


def test_what_is_answered_while_a_cell_runs_leaves_the_kernel_busy() -> None:
    front, asked = make_front(), execute("while True: pass")
    front.learn_kernel(INNER)
    front.receive("shell", asked)
    say(front, asked, BUSY)
    actions = front.receive("shell", request("kernel_info_request"))
    assert show(actions)[-3:] == ["shell:kernel_info_reply:ok", "iopub:status:idle", "iopub:status:busy"]
    assert messages(actions, "status")[-1].parent_header == asked.header
    actions = [*say(front, asked, reply(), IDLE), *end(front, asked)]
    assert show(actions)[-1] == "iopub:status:idle"


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
    assert front.receive("control", stop)[-1] == Interrupt(stop.key, asked.key)
    front.finish(stop.key)
    actions = end_work(front, asked, command_end(130), interrupted=True)
    assert show(actions)[:2] == ["iopub:error:KeyboardInterrupt", "shell:execute_reply:error"]


def test_interrupt_before_the_command_started_runs_nothing() -> None:
    front, asked = make_front(), execute("%%shell\nsleep 60")
    assert front.receive("shell", asked)[-1] == TakeTicket(asked.key)
    stopped = front.receive("control", request("interrupt_request"))
    assert show(stopped)[1] == "control:interrupt_reply:ok"
    actions = front.give_ticket(asked.key, 3)
    assert "Perform" not in show(actions)
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
