"""The machine of one execution: what comes in from a kernel, and what comes out for the journal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.content import ResultLimits
from sandcell.events import (
    Ended,
    ErrorRaised,
    Event,
    Failed,
    InputRequested,
    OutputCleared,
    ResultAdded,
    ResultUpdated,
    Started,
    Stderr,
    Stdout,
    Truncated,
    encode,
)
from sandcell.execution import DIED, Death, ExecutionMachine, Phase, Stop
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.wire import BadMessage, Channel, ChannelMessage, Message, new_message

REQUEST = new_message("execute_request", {"code": "1+1"}, session="client")
LIMITS = ResultLimits(text=1000, image=2000)


def said(channel: Channel, msg_type: str, **content: Any) -> ChannelMessage:
    """Return a message of the kernel that answers REQUEST."""
    return ChannelMessage(channel, new_message(msg_type, content, session="kernel", parent=REQUEST.header))


def raw(channel: Channel, msg_type: str, content: bytes) -> ChannelMessage:
    message = said(channel, msg_type).message
    return ChannelMessage(channel, Message(message.header, message.parent_header, content=content))


def stream(text: str, name: str = "stdout") -> ChannelMessage:
    return said("iopub", "stream", name=name, text=text)


def result(data: dict[str, Any], **more: Any) -> ChannelMessage:
    return said("iopub", "execute_result", data=data, metadata={}, execution_count=1, **more)


def display(data: dict[str, Any], **more: Any) -> ChannelMessage:
    return said("iopub", "display_data", data=data, metadata={}, **more)


def raised(
    name: str = "ValueError", value: str = "no", *, traceback: list[str] | None = None
) -> ChannelMessage:
    return said("iopub", "error", ename=name, evalue=value, traceback=traceback or [])


def reply(status: str = "ok", **more: Any) -> ChannelMessage:
    return said("shell", "execute_reply", status=status, execution_count=1, **more)


BUSY = said("iopub", "status", execution_state="busy")
IDLE = said("iopub", "status", execution_state="idle")
INPUT = said("iopub", "execute_input", code="1+1", execution_count=1)


def running(*, silent: bool = False, fresh_state: str | None = None) -> ExecutionMachine:
    machine = ExecutionMachine("python", LIMITS, silent=silent)
    machine.sent(100.0, fresh_state=fresh_state)
    return machine


def feed(machine: ExecutionMachine, *messages: ChannelMessage, at: float = 102.0) -> list[Event]:
    return [event for channel, message in messages for event in machine.receive(channel, message, at)]


def run(*messages: ChannelMessage) -> list[Event]:
    return feed(running(), BUSY, INPUT, *messages)


def ended(events: list[Event]) -> Ended:
    assert isinstance(events[-1], Ended)
    return events[-1]


# --- an ordinary run


def test_a_run_starts_outputs_and_ends() -> None:
    events = run(stream("hi\n"), stream("oh", "stderr"), result({"text/plain": "2"}), reply(), IDLE)
    assert events == [
        Started(execution_count=1, context_id="python"),
        Stdout(text="hi\n"),
        Stderr(text="oh"),
        ResultAdded(data={"text/plain": "2"}, is_main=True),
        Ended(
            end=End(cause="exited", code=0, at=102.0),
            execution_count=1,
            duration=2.0,
            usage={"stdout_bytes": 3, "stderr_bytes": 2},
        ),
    ]


@pytest.mark.parametrize("last", [(reply(), IDLE), (IDLE, reply())], ids=["idle last", "reply last"])
def test_it_ends_when_reply_and_idle_were_seen(last: tuple[ChannelMessage, ChannelMessage]) -> None:
    machine = running()
    feed(machine, BUSY, INPUT)
    assert feed(machine, last[0]) == []
    assert machine.phase is Phase.RUNNING
    assert [type(event) for event in feed(machine, last[1])] == [Ended]


def test_the_start_is_told_once_and_before_anything_else() -> None:
    events = feed(running(fresh_state="was killed"), stream("early"), INPUT, INPUT)
    assert events == [Started(context_id="python", fresh_state="was killed"), Stdout(text="early")]


def test_a_silent_run_has_a_start_too() -> None:
    machine = running(silent=True)
    feed(machine, BUSY)
    assert machine.interruptible
    assert [type(event) for event in feed(machine, reply(), IDLE)] == [Started, Ended]
    assert machine.execution_count == 1


def test_it_can_be_interrupted_once_the_kernel_runs_the_code() -> None:
    machine = running()
    feed(machine, BUSY)
    assert not machine.interruptible
    feed(machine, INPUT)
    assert machine.interruptible


# --- results


def test_the_plain_value_goes_to_the_end_and_out_of_the_bundle() -> None:
    data = {"text/plain": "[1]", "application/vnd.sandcell.value+json": [1]}
    events = run(result(data), reply(), IDLE)
    assert events[1] == ResultAdded(data={"text/plain": "[1]"}, is_main=True)
    assert ended(events).value == [1]


def test_a_display_is_not_the_main_result_and_may_be_updated() -> None:
    update = said("iopub", "update_display_data", data={"a": "2"}, metadata={}, transient={"display_id": "d"})
    events = run(display({"a": "1"}, transient={"display_id": "d"}), update)
    assert events[1:] == [
        ResultAdded(data={"a": "1"}, display_id="d"),
        ResultUpdated(data={"a": "2"}, display_id="d"),
    ]


def test_output_may_be_cleared() -> None:
    clear = said("iopub", "clear_output", wait=True), said("iopub", "clear_output")
    assert run(*clear)[1:] == [OutputCleared(wait=True), OutputCleared(wait=False)]


def test_what_the_runtime_left_out_is_told() -> None:
    events = run(
        said("iopub", "display_data", data={"text/plain": "[note]"}, metadata={"sandcell": {"left_out": 9}})
    )
    assert events[2] == Truncated(stream="result", bytes=9, total_bytes=9)


@pytest.mark.parametrize(
    "content",
    [b'{"data": {"a": [' + b"[]," * 600_000 + b'0]}, "metadata": {}}', b'{"data": "' + b"\xff" * 5_000_000],
    ids=["too complex", "too long to be forgiven"],
)
def test_a_display_that_would_be_huge_in_memory_is_left_out(content: bytes) -> None:
    added, cut = run(raw("iopub", "display_data", content))[1:]
    assert isinstance(added, ResultAdded)
    assert f"{len(content)} bytes left out" in added.data["text/plain"]
    assert cut == Truncated(stream="result", bytes=len(content), total_bytes=len(content))


def test_what_the_runtime_put_into_files_is_told() -> None:
    told = {"a/b": {"path": "/x", "size": 9}, "c/d": {"path": None, "size": 8}, "forged": {"path": "/y"}}
    data = said(
        "iopub", "display_data", data={"text/plain": "[note]"}, metadata={"sandcell": {"spilled": told}}
    )
    assert run(data)[2:] == [
        Truncated(stream="a/b", bytes=9, total_bytes=9, path="/x"),
        Truncated(stream="c/d", bytes=8, total_bytes=8),
    ]


# --- text


def test_a_flood_in_one_message_becomes_pieces() -> None:
    text = "😀" * 200_000
    pieces = [event for event in run(stream(text)) if isinstance(event, Stdout)]
    assert "".join(piece.text for piece in pieces) == text
    assert max(len(piece.text) for piece in pieces) <= 64 * 2**10


@pytest.mark.parametrize(
    "content",
    [rb'{"name": "stdout", "text": "a\ud800b"}', b'{"name": "stdout", "text": "a\xffb"}'],
    ids=["lone surrogate", "no utf-8"],
)
def test_text_that_is_no_unicode_is_marked(content: bytes) -> None:
    out = run(raw("iopub", "stream", content))[1]
    assert out == Stdout(text="a\ufffdb")
    assert encode(out).data.decode() == "a\ufffdb"


def test_a_pair_of_surrogates_is_one_character() -> None:
    content = rb'{"name": "stdout", "text": "\ud800 \ud83d\ude00"}'
    assert run(raw("iopub", "stream", content))[1] == Stdout(text="\ufffd 😀")


# --- errors


def test_an_error_is_told_once_with_its_line() -> None:
    traceback = [
        "---",
        "\x1b[36mCell In[1]\x1b[39m\x1b[32m, line 3\x1b[39m",
        "Cell In[7], line 9",
        "ValueError: no",
    ]
    events = run(raised(traceback=traceback), reply("error", ename="ValueError", evalue="no"), IDLE)
    assert events[1] == ErrorRaised(name="ValueError", value="no", traceback=traceback, line=3)
    assert [type(event) for event in events] == [Started, ErrorRaised, Ended]
    assert ended(events).end == End(cause="exited", code=1, at=102.0)


def test_an_error_that_only_the_reply_tells_is_told_as_well() -> None:
    events = run(reply("error", ename="KeyboardInterrupt", evalue="", traceback=[]), IDLE)
    assert events[1] == ErrorRaised(name="KeyboardInterrupt")


def test_a_huge_error_is_cut() -> None:
    event = run(raised(value="v" * 5000, traceback=["t" * 900, "u" * 900]))[1]
    assert isinstance(event, ErrorRaised)
    assert event.value.endswith("(4000 characters more)")
    assert event.traceback == ["... (1 entries left out)", "u" * 900]


def test_a_folder_that_is_missing_fails_the_run_with_its_code() -> None:
    machine = running()
    refused = reply("error", ename="CWD_NOT_FOUND", evalue="/no", sandcell={"refused": "CWD_NOT_FOUND"})
    events = feed(machine, BUSY, INPUT, refused, IDLE)
    assert isinstance(events[-1], Failed)
    assert events[-1].error["error"]["code"] == "CWD_NOT_FOUND"
    assert machine.phase is Phase.ENDED


# --- ends that are not the code's own


def test_a_run_that_was_stopped_is_named_after_its_cause() -> None:
    machine = running()
    machine.stop(Stop("timeout"))
    machine.stop(Stop("interrupted", "sdk"))
    events = feed(machine, INPUT, raised("KeyboardInterrupt"), reply("error"), IDLE)
    assert ended(events).end == End(cause="timeout", at=102.0)


def test_a_run_that_finished_in_spite_of_an_interrupt_has_finished() -> None:
    machine = running()
    machine.stop(Stop("interrupted", "sdk"))
    assert ended(feed(machine, INPUT, reply(), IDLE)).end.cause == "exited"


def test_a_run_that_finished_after_its_time_has_timed_out() -> None:
    machine = running()
    machine.stop(Stop("timeout"))
    assert ended(feed(machine, INPUT, reply(), IDLE)).end.cause == "timeout"


def test_an_interpreter_that_leaves_takes_its_state_along() -> None:
    machine = running()
    events = feed(machine, INPUT, reply(payload=[{"source": "ask_exit", "keepkernel": None}]), IDLE)
    assert machine.leaving
    assert ended(events).end == End(cause="exited", code=0, at=102.0, state="lost")
    kept = running()
    feed(kept, reply(payload=["?", {"source": "ask_exit", "keepkernel": True}]))
    assert not kept.leaving


def test_a_death_is_an_error_and_an_end() -> None:
    machine = running()
    feed(machine, INPUT, stream("so far"))
    death = Death(end=End(cause="signaled", signal=11, peak_memory=5), reason="killed by SIGSEGV")
    assert machine.die(103.0, death) == [
        ErrorRaised(name=DIED, value="killed by SIGSEGV"),
        Ended(
            end=End(cause="signaled", signal=11, peak_memory=5, at=103.0, state="lost"),
            execution_count=1,
            duration=3.0,
            usage={"stdout_bytes": 6, "stderr_bytes": 0},
        ),
    ]
    assert machine.die(104.0, death) == []


@pytest.mark.parametrize(
    ("stop", "name"), [(Stop("timeout"), "TimeoutError"), (Stop("interrupted"), "KeyboardInterrupt")]
)
def test_a_death_that_was_asked_for_is_named_after_why(stop: Stop, name: str) -> None:
    machine = running()
    machine.stop(stop)
    events = machine.die(103.0, Death(end=End(cause="killed", signal=9), reason="did not stop"))
    assert events[:2] == [Started(context_id="python"), ErrorRaised(name=name, value="did not stop")]


def test_a_run_whose_interpreter_is_being_killed_ends_with_it() -> None:
    machine = running()
    machine.condemn()
    assert feed(machine, INPUT, stream("last"), reply(), IDLE)[-1] == Stdout(text="last")
    assert (
        ended(machine.die(103.0, Death(end=End(cause="killed"), reason="did not stop"))).end.state == "lost"
    )


def test_a_queued_run_is_aborted_without_a_start() -> None:
    machine = ExecutionMachine("python", LIMITS)
    assert machine.abort(5.0, cause="interrupted", reason="no", who="sdk") == [
        Ended(end=End(cause="interrupted", who="sdk", at=5.0))
    ]
    assert machine.abort(6.0, cause="lost", reason="") == []


def test_a_queued_run_whose_context_died_is_an_error() -> None:
    events = ExecutionMachine("python", LIMITS).abort(5.0, cause="lost", reason="the interpreter is gone")
    assert events[0] == ErrorRaised(name=DIED, value="the interpreter is gone")
    assert ended(events).end.cause == "lost"


def test_a_run_that_cannot_be_made_fails() -> None:
    machine = ExecutionMachine("python", LIMITS)
    failed = machine.refuse(5.0, error(ErrorCode.START_FAILED, "no interpreter"))
    assert failed == [Failed(error=error(ErrorCode.START_FAILED, "no interpreter").to_dict())]
    assert machine.refuse(5.0, error(ErrorCode.BUSY, "")) == []


def test_a_run_whose_whole_sandbox_ends_fails_as_whatever_else_is_asked_of_it() -> None:
    machine, problem = running(), error(ErrorCode.SANDBOX_GONE, "the sandbox ended")
    events = machine.die(5.0, Death(end=End(cause="lost"), reason="the sandbox ended", problem=problem))
    assert events == [Failed(error=problem.to_dict())]
    assert machine.end == End(cause="lost", at=5.0, state="lost")
    assert machine.die(6.0, Death(end=End(cause="lost"), reason="", problem=problem)) == []


# --- input


def test_a_question_waits_for_an_answer_until_the_end() -> None:
    machine = running()
    ask = said("stdin", "input_request", prompt="name? ", password=False)
    assert feed(machine, INPUT, ask)[-1] == InputRequested(prompt="name? ", password=False)
    assert machine.input_parent == ask.message.header
    feed(machine, reply(), IDLE)
    assert machine.input_parent is None


# --- what comes late, and what is forged


def test_what_comes_after_the_end_is_late() -> None:
    machine = running()
    feed(machine, INPUT, reply(), IDLE)
    assert feed(machine, stream("late"), reply(), IDLE, INPUT) == [Stdout(text="late", late=True)]


def test_forged_messages_end_a_run_once() -> None:
    machine = running()
    events = feed(machine, INPUT, IDLE, IDLE, BUSY, reply(), reply("error"), IDLE, raised())
    assert [type(event) for event in events] == [Started, Ended, ErrorRaised]
    assert events[-1].late


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"a":' + b"[" * 100_000, b"\xff", b"null"])
@pytest.mark.parametrize(
    "kind", ["status", "execute_input", "stream", "display_data", "execute_result", "clear_output", "error"]
)
def test_content_of_the_wrong_kind_is_empty_content(kind: str, content: bytes) -> None:
    for event in run(raw("iopub", kind, content)):
        encode(event)


@pytest.mark.parametrize("wrong", [None, 1, "x", [], {"a": 1}, True])
def test_fields_of_the_wrong_type_are_read_as_empty(wrong: Any) -> None:
    fields = [
        "execution_state",
        "name",
        "text",
        "data",
        "metadata",
        "transient",
        "wait",
        "ename",
        "evalue",
        "traceback",
        "execution_count",
    ]
    content = dict.fromkeys(fields, wrong)
    kinds = [
        "status",
        "stream",
        "display_data",
        "execute_result",
        "update_display_data",
        "clear_output",
        "error",
    ]
    machine = running()
    events = feed(machine, *(said("iopub", kind, **content) for kind in kinds))
    events += feed(machine, said("shell", "execute_reply", status=wrong, payload=wrong, sandcell=wrong))
    for event in events:
        json.dumps(event.to_dict())
        encode(event)


def test_messages_that_mean_nothing_for_a_run_are_left_alone() -> None:
    machine = running()
    assert (
        feed(machine, said("iopub", "comm_msg"), said("control", "execute_reply"), said("iopub", "nonsense"))
        == []
    )
    assert machine.phase is Phase.RUNNING


def test_a_header_that_is_none_is_a_bad_message() -> None:
    with pytest.raises(BadMessage):
        running().receive("iopub", Message(b"{"), 1.0)


SAMPLES = {
    "busy": BUSY,
    "input": INPUT,
    "idle": IDLE,
    "reply": reply(),
    "error reply": reply("error", ename="E", evalue="", traceback=[]),
    "stdout": stream("x"),
    "result": result({"text/plain": "2"}),
    "error": raised(),
    "clear": said("iopub", "clear_output", wait=False),
    "ask": said("stdin", "input_request", prompt=""),
}


@given(names=st.lists(st.sampled_from(sorted(SAMPLES))), stopped=st.booleans(), dies=st.booleans())
def test_any_order_ends_exactly_once(*, names: list[str], stopped: bool, dies: bool) -> None:
    machine = running()
    if stopped:
        machine.stop(Stop("interrupted"))
    events = feed(machine, *(SAMPLES[name] for name in names))
    if dies:
        events += machine.die(103.0, Death(end=End(cause="exited", code=3), reason="gone"))
    over = dies or ("idle" in names and ("reply" in names or "error reply" in names))
    assert (machine.phase is Phase.ENDED) == over
    kinds = [type(event) for event in events]
    assert kinds.count(Ended) == over
    assert kinds.count(Started) <= 1
    assert not kinds or kinds[0] is Started
    at = kinds.index(Ended) if over else len(events)
    assert all(event.late == (place > at) for place, event in enumerate(events))
