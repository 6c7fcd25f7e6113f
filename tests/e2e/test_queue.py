"""Runs that wait: first come first served, visible, with an end to waiting, and not dropped for somebody else's error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import start_new_kernel

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.events import InputRequested

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution

DEADLINE = 20.0


@pytest.fixture
def context(sandbox: Sandbox) -> Generator[Context]:
    made = sandbox.create_context()
    yield made
    made.delete()


@pytest.fixture
def busy(context: Context) -> Execution:
    """A run that runs until it gets a line of input."""
    live = context.start_code("order = []; input()")
    next(event for event in live.follow() if isinstance(event, InputRequested))
    return live


def test_runs_go_first_come_first_served_and_know_their_place(context: Context, busy: Execution) -> None:
    waiting = [context.start_code(f"order.append({number}); order") for number in range(5)]
    assert [each.refresh().position for each in waiting] == [0, 1, 2, 3, 4]
    assert {each.status for each in waiting} == {"queued"}
    assert context.refresh().queued == 5
    assert busy.refresh().position is None
    waiting[1].interrupt()
    assert [each.refresh().position for each in waiting] == [0, None, 1, 2, 3]
    busy.send_input("")
    assert waiting[-1].wait(timeout=DEADLINE).value == [0, 2, 3, 4]
    assert waiting[1].wait().end.cause == "interrupted"


def test_waiting_has_an_end_where_one_is_asked_for(context: Context, busy: Execution) -> None:
    with pytest.raises(SandcellError) as caught:
        context.run_code("order.append('never')", queue_timeout=0.1)
    assert caught.value.code is ErrorCode.BUSY
    assert "0.1 s" in caught.value.message
    busy.send_input("")
    assert context.run_code("order").value == []


def test_time_in_the_queue_is_none_of_the_runs_time(context: Context, busy: Execution) -> None:
    live = context.start_code("import time; time.sleep(0.05); 'ran'", timeout=5)
    with pytest.raises(SandcellError):
        live.wait(timeout=0.2)
    busy.send_input("")
    run = live.wait(timeout=DEADLINE)
    assert (run.value, run.timed_out) == ("ran", False)
    assert run.duration < 5


def test_who_does_not_want_to_wait_is_told_who_is_there(context: Context, busy: Execution) -> None:
    with pytest.raises(SandcellError) as caught:
        context.run_code("order.append('never')", on_busy="reject")
    assert caught.value.code is ErrorCode.BUSY
    assert caught.value.details == {"origin": "sdk", "queued": 0}
    busy.send_input("")
    busy.wait(timeout=DEADLINE)
    assert context.run_code("order", on_busy="reject").value == []


def test_a_full_queue_is_said_and_takes_more_later(context: Context, busy: Execution) -> None:
    waiting = [context.start_code("1") for _ in range(64)]
    with pytest.raises(SandcellError) as caught:
        context.run_code("1", id="one-more")
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    busy.send_input("")
    waiting[-1].wait(timeout=DEADLINE)
    assert context.run_code("'later'", id="one-more").value == "later"


def test_an_error_of_one_program_drops_none_of_its_other_runs(context: Context, busy: Execution) -> None:
    failing, after = context.start_code("1 / 0"), context.start_code("'after'")
    busy.send_input("")
    assert not failing.wait(timeout=DEADLINE).ok
    assert after.wait(timeout=DEADLINE).value == "after"


def test_an_error_in_a_notebook_drops_what_the_notebook_sent_and_nothing_else(
    kernelspec: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox.create(engine="local", name="shared-queue") as sandbox:
        monkeypatch.setenv("SANDCELL_SANDBOX", "shared-queue")
        manager, kernel = start_new_kernel(kernel_name="sandcell-python")
        try:
            busy = sandbox.start_code("order = []; input()")
            next(event for event in busy.follow() if isinstance(event, InputRequested))
            cells = [kernel.execute(code) for code in ("1 / 0", "order.append('of the notebook')")]
            mine = sandbox.start_code("order.append('of the program'); order")
            busy.send_input("")
            replies = [_reply_to(kernel, msg_id) for msg_id in cells]
            assert [reply["status"] for reply in replies] == ["error", "aborted"]
            assert mine.wait(timeout=DEADLINE).value == ["of the program"]
        finally:
            kernel.stop_channels()
            manager.shutdown_kernel(now=True)


def _reply_to(kernel: Any, msg_id: str) -> dict[str, Any]:
    while True:
        reply = kernel.get_shell_msg(timeout=DEADLINE)
        if reply["parent_header"].get("msg_id") == msg_id:
            content: dict[str, Any] = reply["content"]
            return content
