"""Cells that abuse the kernel that runs them: they harm their own run, are told why, and cost the guest little."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

import pytest

from sandcell import ErrorCode, RunResult, SandcellError
from sandcell.events import Stdout

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell import Sandbox
    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution

DEADLINE = 40.0
BOUND = 256 * 2**20  # bytes that one hostile kernel may cost the guest
PATIENCE = 1.0  # seconds in which everybody else is answered


class Guest(Protocol):
    @property
    def memory(self) -> int: ...
    @property
    def peak(self) -> int: ...
    def forget_peak(self) -> None: ...


# What a cell finds at hand: the session signs whatever it is given.
HANDS = """
import time
from IPython import get_ipython
kernel = get_ipython().kernel
session, parent = kernel.session, kernel.get_parent()
session.max_frame = 2**60
def publish(kind, content, **more):
    session.send(kernel.iopub_socket, kind, content, parent, **more)
def show(text, **more):
    publish('display_data', {'data': {'text/plain': text}, 'metadata': {}}, **more)
def reply(content):
    session.send(kernel.shell_stream or kernel.shell_socket, 'execute_reply', content, parent, ident=kernel._parent_ident['shell'])
ended = time.monotonic() + 2
def going_on(): return time.monotonic() < ended
"""

OVER_THE_LIMIT = {
    "a message of 200 MB": "show('x' * 200_000_000)",
    "a message of many buffers": "show('', buffers=[b'x' * 60_000_000] * 40)",
    "a message of many empty buffers": "show('', buffers=[b''] * 2_000_000)",
}

FLOODS = {
    "small messages": "while going_on(): show('x')",
    "large messages": "text = 'x' * 30_000_000\nwhile going_on(): show(text)",
    "comms": "import comm\nwhile going_on():\n    comm.create_comm(target_name='t', data={'x': 'y' * 1000}).send({'x': 1})",
    "comms to one": "import comm\nc = comm.create_comm(target_name='t')\nwhile going_on(): c.send({'x': 'y' * 100_000}, buffers=[b'z' * 100_000])",
    "prints": "while going_on(): print('x' * 10_000)",
    "prints from a child": "import subprocess; subprocess.run('timeout 2 yes', shell=True)",
    "statuses": "while going_on(): publish('status', {'execution_state': 'busy'})",
    "questions": "while going_on(): session.send(kernel.stdin_socket, 'input_request', {'prompt': 'x' * 1000, 'password': False}, parent, ident=kernel._parent_ident['shell'])",
    "updates": "while going_on(): publish('update_display_data', {'data': {'text/plain': 'x' * 10_000}, 'metadata': {}, 'transient': {'display_id': 'd'}})",
    "deep JSON": "publish('display_data', {'data': {'a': '['}, 'metadata': {}})\nold = session.pack\nsession.pack = lambda o: b'[' * 5_000_000 if 'data' in o else old(o)\nshow('')\nsession.pack = old",
    "JSON of many values": "old = session.pack\nsession.pack = lambda o: b'{\"data\": {\"a\": [' + b'[],' * 10_000_000 + b'0]}, \"metadata\": {}}' if 'data' in o else old(o)\nshow('')\nsession.pack = old",
    "unsigned messages": "socket = kernel.iopub_socket\nwhile going_on(): socket.send_multipart([b'topic', b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'x' * 100_000])",
    "for requests that nobody made": "while going_on(): session.send(kernel.iopub_socket, 'display_data', {'data': {'text/plain': 'x' * 10_000}, 'metadata': {}}, {'header': {'msg_id': 'nobody', 'msg_type': 'x'}})",
}  # fmt: skip


@pytest.fixture
def context(sandbox: Sandbox) -> Generator[Context]:
    made = sandbox.create_context()
    yield made
    made.delete()


@pytest.fixture(scope="module")
def bystander(sandbox: Sandbox) -> Context:
    made = sandbox.create_context(id="bystander")
    made.run_code("kept = 'kept'")
    return made


class Watch:
    """Waits for a run in a thread, while the caller sees how long everybody else has to wait."""

    def __init__(self, live: Execution) -> None:
        self._done = threading.Event()
        self._results = list[RunResult]()
        self._live = live
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def result(self, bystander: Context) -> RunResult:
        slowest = 0.0
        while not self._done.wait(0.05):
            asked = time.monotonic()
            assert bystander.run_code("kept").value == "kept"
            slowest = max(slowest, time.monotonic() - asked)
        self._thread.join()
        assert slowest < PATIENCE
        return self._results[0]

    def _wait(self) -> None:
        try:
            self._results.append(self._live.wait(timeout=DEADLINE))
        finally:
            self._done.set()


def run_hostile(context: Context, bystander: Context, guest: Guest, code: str) -> RunResult:
    """Run code; while it runs another context is answered, and the guest stays small."""
    guest.forget_peak()
    before = guest.memory
    run = Watch(context.start_code(f"{HANDS}\n{code}", timeout=20)).result(bystander)
    assert guest.peak - before < BOUND
    return run


@pytest.mark.parametrize("name", OVER_THE_LIMIT)
def test_a_message_that_is_too_large_ends_its_interpreter_and_says_why(
    context: Context, bystander: Context, guest: Guest, name: str
) -> None:
    run = run_hostile(context, bystander, guest, OVER_THE_LIMIT[name])
    assert (run.end.cause, run.end.limit, run.end.state, run.ok) == ("limit", "max_message", "lost", False)
    assert run.error is not None
    assert "a message has more than" in run.error.value
    after = context.run_code("1")
    assert after.ok
    assert "a message has more than" in (after.fresh_state or "")


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_taken_in_turns(context: Context, bystander: Context, guest: Guest, name: str) -> None:
    run = run_hostile(context, bystander, guest, FLOODS[name])
    assert run.end.cause in {"exited", "timeout"}
    assert run.end.state == "kept"
    assert context.run_code("2").value == 2


def test_half_a_gigabyte_of_output_is_counted_kept_at_both_ends_and_costs_little(
    context: Context, bystander: Context, guest: Guest
) -> None:
    """Printed by the interpreter, and by a child of it; what is between head and tail is told."""
    code = "for i in range(250): print(str(i % 10) * 999_999)\nimport subprocess; subprocess.run('yes 1234567 | head -c 250M', shell=True)"
    run = run_hostile(context, bystander, guest, code)
    size = 250_000_000 + 250 * 2**20
    assert (run.ok, run.usage["stdout_bytes"]) == (True, size)
    assert sum(cut.total_bytes for cut in run.truncated.values()) == size
    assert run.stdout.startswith("0" * 1000)
    assert run.stdout.endswith("1234567\n")
    assert len(run.stdout) < 100_000_000
    assert context.run_code("2").value == 2


def test_a_forged_end_is_the_end_of_its_own_run_alone(
    context: Context, bystander: Context, guest: Guest
) -> None:
    code = (
        "print('before', flush=True)\npublish('status', {'execution_state': 'idle'})\n"
        "reply({'status': 'ok', 'execution_count': 7, 'user_expressions': {}})\ntime.sleep(0.5); print('after')"
    )
    live = context.start_code(f"{HANDS}\n{code}")
    following = context.start_code("'following'")
    assert live.wait(timeout=DEADLINE).stdout == "before\n"
    assert following.wait(timeout=DEADLINE).value == "following"
    late = [event.text for event in live.follow() if isinstance(event, Stdout) and event.late]
    assert "".join(late) in {"", "after\n"}
    assert bystander.run_code("kept").value == "kept"


def test_a_forged_reply_for_another_run_is_not_believed(context: Context, bystander: Context) -> None:
    """Runs are found by ids that a cell of another context has never seen."""
    forged = "\n".join(
        f"session.send(kernel.iopub_socket, 'status', {{'execution_state': 'idle'}}, {{'header': {{'msg_id': {msg!r}, 'msg_type': 'execute_request'}}}})"
        for msg in ("", "0", bystander.id)
    )
    other = bystander.start_code("import time; time.sleep(0.3); 'real'")
    assert context.run_code(f"{HANDS}\n{forged}").ok
    assert other.wait(timeout=DEADLINE).value == "real"


def test_a_forged_refusal_says_nothing_of_the_sandbox(
    sandbox: Sandbox, context: Context, bystander: Context
) -> None:
    """A client that believed it would take the whole sandbox for gone."""
    refusal = "{'status': 'error', 'ename': 'x', 'evalue': 'x', 'sandcell': {'refused': 'SANDBOX_GONE'}}"
    run = context.run_code(f"{HANDS}\nreply({refusal})\npublish('status', {{'execution_state': 'idle'}})")
    assert not run.ok
    context.run_code("import sandcell_runtime.extras as ours, sandcell_runtime.objects as objects")
    context.run_code(
        "def refuse(*_): raise objects.ExchangeRefused('SANDBOX_GONE', 'x')\nours.save_object = refuse"
    )
    with pytest.raises(SandcellError) as caught:
        context.pull("kept")
    assert caught.value.code is ErrorCode.BUSY
    assert sandbox.status == "running"
    assert bystander.run_code("kept").value == "kept"


@pytest.mark.parametrize(
    "content",
    [
        "None",
        "[]",
        "{}",
        "{'status': 5}",
        "{'status': 'ok', 'execution_count': 'x', 'payload': 7}",
        "{'status': 'ok', 'payload': [None, {'source': 'ask_exit'}]}",
    ],
)
def test_a_reply_of_nonsense_ends_the_run_somehow(context: Context, bystander: Context, content: str) -> None:
    code = f"reply({content} or {{}})\npublish('status', {{'execution_state': 'idle'}})"
    live = context.start_code(f"{HANDS}\n{code}", timeout=5)
    live.wait(timeout=DEADLINE)
    assert bystander.run_code("kept").value == "kept"
    assert context.run_code("3", timeout=10).value == 3


@pytest.mark.parametrize("what", ["iopub_socket", "shell_socket", "stdin_socket"])
def test_a_kernel_that_closes_its_own_sockets_is_ended_and_says_why(context: Context, what: str) -> None:
    live = context.start_code(
        f"{HANDS}\nsocket = getattr(kernel, {what!r}, None)\nsocket = getattr(socket, 'io_thread', None) and socket.io_thread.socket or socket\nimport os\nfor fd in range(3, 100):\n    try: os.close(fd)\n    except OSError: pass\ntime.sleep(30)",
        timeout=3,
    )
    run = live.wait(timeout=DEADLINE)
    assert run.end.state == "lost"
    assert run.end.cause in {"limit", "timeout", "signaled", "exited"}
    assert context.run_code("4").value == 4


REPLACED = {
    "dumps": "import json; json.dumps = lambda *a, **k: 1 / 0",
    "loads": "import json; json.loads = lambda *a, **k: 1 / 0",
    "the encoder": "import json; json.JSONEncoder.iterencode = lambda *a, **k: 1 / 0",
    "a closed stdout": "import sys; sys.stdout = open('x', 'w'); sys.stdout.close()",
    "no stdout": "import sys; sys.stdout = None",
    "a stderr that leaves": "import sys; sys.stderr = type('S', (), {'flush': lambda self: sys.exit(), 'write': print})()",
}


@pytest.mark.parametrize("what", REPLACED)
def test_a_run_that_replaces_what_a_reply_is_made_with_ends_like_any_other(
    context: Context, what: str
) -> None:
    done = context.run_code(REPLACED[what], timeout=DEADLINE)
    assert (done.error, done.end.state) == (None, "kept")
    done = context.run_code("print(1); 2", timeout=DEADLINE)
    assert (done.stdout, done.text, done.error) == ("1\n", "2", None)


LEAK = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
while True: held.append(os.dup(1))
"""


def test_a_run_for_whose_pipes_no_descriptor_is_left_is_a_run_like_any_other(context: Context) -> None:
    leaked = context.run_code(LEAK, timeout=DEADLINE)
    assert leaked.error is not None
    assert (leaked.error.name, leaked.end.state) == ("OSError", "kept")
    for code in ("", "os.close(held.pop())", "for each in held: os.close(each)"):  # none, one, and enough
        assert context.run_code(code, timeout=DEADLINE).error is None
        done = context.run_code("print(1); 2", timeout=DEADLINE)
        assert (done.stdout, done.text, done.error) == ("1\n", "2", None)


@pytest.mark.parametrize("what", ["hmac.HMAC.hexdigest", "logging.Logger.debug"])
def test_a_kernel_that_cannot_reply_any_more_ends_at_once_and_says_why(context: Context, what: str) -> None:
    done = context.run_code(f"import hmac, logging\n{what} = lambda *a: 1 / 0", timeout=DEADLINE)
    assert done.error is not None
    assert (done.error.name, done.end.state) == ("ContextDied", "lost")
    assert "cannot answer any more, and ends: ZeroDivisionError" in done.stderr
    assert context.run_code("1").value == 1


def test_the_guest_is_as_small_as_before(context: Context, guest: Guest) -> None:
    """After all of the above: what was kept of it is bounded by the journals of the runs."""
    assert context.run_code("5").value == 5
    assert guest.memory < BOUND
