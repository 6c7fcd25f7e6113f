"""Many contexts: one after another, side by side, and while others burn all there is."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pytest

from sandcell import ErrorCode, SandcellError
from sandcell.client.blocking.transport import Transport
from sandcell.client.host import the_host
from sandcell.client.protocol import Request, path_of
from sandcell.events import Stdout

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell import Sandbox
    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution

CYCLES = 50
SIDE_BY_SIDE = 20
PATIENCE = 1.0
BURN = "print('up', flush=True)\nwhile True: pass"
# As much memory as there may be, again and again: what is had is given back, and asked for anew.
HOARD = """
print('up', flush=True)
while True:
    held = []
    for _ in range(16): held.append(bytearray(16 * 2**20))
"""


class Guest(Protocol):
    pid: int
    launcher: int

    @property
    def memory(self) -> int: ...
    @property
    def descriptors(self) -> int: ...
    @property
    def descriptors_of_first(self) -> int: ...
    @property
    def threads(self) -> int: ...


def descendants(of: int) -> set[int]:
    """Return the processes below one, as this machine sees them."""
    children = dict[int, list[int]]()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, left = set[int](), [of]
    while left:
        below = children.get(left.pop(), [])
        found.update(below)
        left += below
    return found


def began(live: Execution) -> Execution:
    next(event for event in live.follow() if isinstance(event, Stdout))
    return live


def one_cycle(sandbox: Sandbox, number: int) -> None:
    """Make a context with all that hangs on one, and delete it in one of the ways that there are."""
    context = sandbox.create_context(id=f"cycle-{number}", memory="512MiB" if number % 5 == 0 else None)
    seen = context.run_code("'mine' in globals()")
    assert seen.value is False
    context.run_code(
        "import os, subprocess, tempfile, threading; mine = bytearray(2**20)\n"
        "job = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "os.chdir('/'); os.environ['LEAKED'] = 'yes'"
    )
    if number % 3 == 1:
        began(context.start_code(BURN))
    if number % 3 == 2:
        context.run_code("os._exit(1)")
        context.run_code("1")
    context.delete()


class Traces(NamedTuple):
    """What contexts leave behind, inside and outside; the numbers are counts."""

    inside: int
    outside: int
    descriptors: int
    descriptors_of_first: int
    threads: int
    files: list[str]
    contexts: list[str]

    def is_within(self, before: Traces) -> bool:
        return self.files == before.files and all(
            now <= then for now, then in zip(self[:5], before[:5], strict=True)
        )


def traces_of(sandbox: Sandbox, guest: Guest) -> Traces:
    return Traces(
        inside=len(sandbox.exec("ps -e").stdout.splitlines()),
        outside=len(descendants(guest.launcher)),
        descriptors=guest.descriptors,
        descriptors_of_first=guest.descriptors_of_first,
        threads=guest.threads,
        files=files_of(sandbox),
        contexts=[context.id for context in sandbox.contexts()],
    )


def test_fifty_contexts_made_and_deleted_leave_nothing(sandbox: Sandbox, guest: Guest) -> None:
    for number in range(
        5
    ):  # what the first ones bring is there to stay: a fork server, a child that is ready
        one_cycle(sandbox, number)
    settle(sandbox)
    before, memory = traces_of(sandbox, guest), guest.memory
    for number in range(CYCLES):
        one_cycle(sandbox, number)
    settle(sandbox)
    deadline = time.monotonic() + 10  # the last one's end may still be on its way
    while not (after := traces_of(sandbox, guest)).is_within(before) and time.monotonic() < deadline:
        pass
    assert after.is_within(before), f"{after} is more than {before}"
    assert after.contexts == []
    assert guest.memory - memory < 8 * 2**20


def settle(sandbox: Sandbox) -> None:
    """Return when nothing that the contexts had started is there any more."""
    left = sandbox.exec("while pgrep -fx 'sleep 600' > /dev/null; do sleep 0.02; done", timeout=20)
    assert left.ok
    sandbox.run_code("1", fresh=True)


def files_of(sandbox: Sandbox) -> list[str]:
    """Return what contexts could have left; what is bound there from the host is not theirs."""
    return sandbox.exec("find /tmp /workspace /home/user /dev/shm -xdev | sort").stdout.splitlines()


def test_twenty_contexts_side_by_side_stay_apart(sandbox: Sandbox) -> None:
    def live(number: int) -> list[object]:
        folder = f"/workspace/side-{number}"
        sandbox.files.mkdir(folder)
        context = sandbox.create_context(id=f"side-{number}", cwd=folder, env={"WHO": str(number)})
        context.run_code(
            f"import os, sys, random\nsys.modules['shared'] = mine = {number}\nopen('f', 'w').write(str(mine))"
        )
        context.run_code("os.environ['OWN'] = os.environ['WHO']; sys.path.append(os.environ['WHO'])")
        streamed = context.run_code("for i in range(50): print(mine)")
        assert streamed.stdout == f"{number}\n" * 50
        seen = context.run_code(
            "[mine, os.getcwd(), os.environ['OWN'], sys.modules['shared'], sys.path[-1], open('f').read(), os.getpid(), random.random()]"
        )
        context.delete()
        return list(seen.value)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        seen = list(pool.map(live, range(SIDE_BY_SIDE)))
    for number, what in enumerate(seen):
        text = str(number)
        assert what[:6] == [number, f"/workspace/side-{number}", text, number, text, text]
    assert len({str(what[6]) for what in seen}) == len({str(what[7]) for what in seen}) == SIDE_BY_SIDE


def test_two_clients_of_one_context_take_turns(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.run_code("count = 0")

    def add(_: int) -> bool:
        code = "before = count\nimport time; time.sleep(0.001)\ncount = before + 1"
        return sandbox.run_code(code, context=context.id).ok

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(add, range(40)))
    assert context.run_code("count").value == 40
    context.delete()


def test_contexts_made_used_and_deleted_at_once_end_cleanly(sandbox: Sandbox) -> None:
    """Everybody uses the same three ids: each call works, or says that the context is gone."""

    def meddle(number: int) -> set[ErrorCode]:
        seen = set[ErrorCode]()
        for turn in range(4):
            try:
                context = sandbox.create_context(id=f"race-{(number + turn) % 3}")
                context.run_code("1")
                context.restart() if number % 4 == 0 else context.delete()
            except SandcellError as problem:
                seen.add(problem.code)
        return seen

    with ThreadPoolExecutor(8) as pool:
        codes = set[ErrorCode]().union(*pool.map(meddle, range(8)))
    assert codes <= {ErrorCode.NOT_FOUND, ErrorCode.LOST, ErrorCode.CONTEXT_DIED}
    for context in sandbox.contexts():
        if context.id.startswith("race-"):
            assert context.run_code("2").value == 2
            context.delete()


@pytest.fixture
def burning(sandbox: Sandbox) -> Generator[list[Context]]:
    """Contexts that burn all cores twice over, and one that asks for memory again and again."""
    cores = os.cpu_count() or 1
    made = [sandbox.create_context() for _ in range(2 * cores)]
    greedy = sandbox.create_context(memory="512MiB")
    for context in made:
        began(context.start_code(BURN, timeout=None))
    began(greedy.start_code(HOARD, timeout=None))
    yield [*made, greedy]
    for context in (*made, greedy):
        context.delete()


def test_the_guest_answers_while_cells_burn_all_cores_and_memory(
    sandbox: Sandbox, burning: list[Context]
) -> None:
    record = the_host().find(sandbox.id).record
    transport = Transport(record.address, record.token, connect_timeout=5.0, reply_timeout=5.0)
    slowest = 0.0
    for _ in range(20):
        asked = time.monotonic()
        assert transport.fetch(Request(method="GET", path=path_of("health"))) == b'{"status":"ok"}'
        slowest = max(slowest, time.monotonic() - asked)
    transport.close()
    assert slowest < PATIENCE
    with_state = sandbox.create_context()
    with_state.run_code("numbers = [1]")
    asked = time.monotonic()
    assert "numbers" in with_state.complete("numb").matches
    assert with_state.inspect("numbers").found
    assert [each.name for each in with_state.variables()] == ["numbers"]
    assert time.monotonic() - asked < 3 * PATIENCE
    with_state.delete()
    assert sandbox.run_code("1", fresh=True).ok
    live = burning[0]
    live.interrupt()
    assert live.run_code("'free'").value == "free"
