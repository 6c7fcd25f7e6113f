"""A context with a limit on its memory: the code's own MemoryError, or a death that names the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.context import Context

LIMIT = 256 * 2**20
# What C++ does that is given no memory: it takes some, piece by piece, and aborts.
GREEDY = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
while piece := libc.malloc(2**20):
    libc.memset(ctypes.c_void_p(piece), 1, 2**20)
libc.abort()
"""


@pytest.fixture
def context(sandbox: Sandbox) -> Generator[Context]:
    made = sandbox.create_context(memory="256MiB")
    yield made
    made.delete()


def test_a_context_knows_its_limit_and_what_does_not_hold(context: Context) -> None:
    info = context.refresh()
    assert info.memory == LIMIT
    assert any("each process" in warning for warning in info.warnings)


def test_python_that_wants_too_much_gets_an_error_and_goes_on(context: Context) -> None:
    run = context.run_code("kept = 1\nx = bytearray(300 * 2**20)")
    assert run.error is not None
    assert (run.error.name, run.end.cause, run.end.state) == ("MemoryError", "exited", "kept")
    assert context.run_code("kept").value == 1


def test_what_the_limit_allows_can_be_had(context: Context) -> None:
    run = context.run_code("x = bytearray(150 * 2**20); len(x)")
    assert run.value == 150 * 2**20


def test_a_death_for_want_of_memory_says_so_with_limit_and_peak(context: Context) -> None:
    context.run_code("kept = 1")
    run = context.run_code(GREEDY)
    assert (run.end.cause, run.end.limit, run.end.state) == ("oom", "memory", "lost")
    assert LIMIT * 0.9 <= (run.end.peak_memory or 0) <= LIMIT * 1.2
    assert run.error is not None
    assert "256 MiB" in run.error.value
    after = context.run_code("'kept' in globals()")
    assert after.value is False
    assert "want of memory" in (after.fresh_state or "")


def test_the_limit_holds_again_after_a_restart_and_for_children(context: Context) -> None:
    context.restart()
    greedy_child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'bytearray(400 * 2**20)'], capture_output=True).returncode"
    assert context.run_code(greedy_child).value == 1
    raised = context.run_code("import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))").error
    assert raised is not None
    assert raised.name == "ValueError"


def test_others_are_not_limited_by_it(sandbox: Sandbox, context: Context) -> None:
    assert sandbox.run_code("len(bytearray(300 * 2**20))").value == 300 * 2**20
    assert sandbox.create_context(id="unlimited").run_code("len(bytearray(300 * 2**20))").ok
    assert context.run_code("1").ok


def test_too_little_is_refused_and_makes_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.create_context(id="tiny", memory="1MiB")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(SandcellError):
        sandbox.context("tiny")


def test_the_limit_of_a_sandbox_is_told_in_the_same_way() -> None:
    with Sandbox.create(engine="local", memory="512MiB") as limited:
        over = limited.run_code("kept = 1; x = bytearray(600 * 2**20)")
        assert over.error is not None
        # A control group ends what takes too much; elsewhere the allocation fails.
        wanted = ("ContextDied", "lost", None) if over.end.cause == "oom" else ("MemoryError", "kept", 1)
        assert (over.error.name, over.end.state, limited.run_code("globals().get('kept')").value) == wanted
        run = limited.run_code(GREEDY)
        assert (run.end.cause, run.end.limit, run.end.state) == ("oom", "memory", "lost")
        assert limited.run_code("1").ok
