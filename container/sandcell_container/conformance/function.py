"""Checks that an engine does what its contract says. Each raises AssertionError where it does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.spec import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.conformance.subject import Subject
    from sandcell_container.spec import SandboxSpec

__all__ = ["FUNCTION_CHECKS"]

_MIB = 2**20
_ANY = "a 'b' $c\n\udcff"  # the last is a byte that is no UTF-8
_NAMES = {"HOME", "LANG", "PATH", "SHELL", "TERM", "TMPDIR", "USER"}


def probes_as_usable(subject: Subject) -> None:
    """The engine says that it works here."""
    probe = subject.engine.probe()
    assert probe.usable, f"{probe.reason}: {'; '.join(probe.remedies)}"
    assert probe.engine == subject.engine.name


def runs_programs(subject: Subject) -> None:
    """Programs run in the working directory, with exactly the variables that there are to be, and what was given."""
    with subject.sandbox(env={"GIVEN": _ANY}, secrets={"SECRET": "s"}) as box:
        assert box.python("import os; print(sorted(os.environ))") == str(sorted({*_NAMES, "GIVEN", "SECRET"}))
        assert box.python("import os; print(repr(os.environ['GIVEN']))") == repr(_ANY)
        assert box.output("pwd").endswith("workspace")
        assert box.run("sh", "-c", "exit 3").code == 3
        for folder in ('"$HOME"', '"$TMPDIR"', "."):
            box.output("sh", "-c", f"echo x > {folder}/written")


def is_found_and_listed(subject: Subject) -> None:
    """A sandbox is found by id and name, and listed, as what it is."""
    with subject.sandbox() as box:
        for name in (box.id, box.record.name):
            found = subject.engine.find(name)
            assert found is not None and (found.id, found.status, found.starts) == (box.id, "running", 1)
        assert box.id in {each.id for each in subject.engine.list()}
        assert box.id in subject.engine.prune().live
    assert subject.engine.find("no-such-sandbox") is None


def takes_a_name_once(subject: Subject) -> None:
    """A taken name is EXISTS, also that of a stopped sandbox, and the one that has it is not harmed."""
    with subject.sandbox(name="conformance-taken") as box:
        for _ in range(2):
            assert (
                _code(lambda: subject.engine.create(subject.spec(name="conformance-taken")))
                is ErrorCode.EXISTS
            )
            subject.engine.stop(box.id)
        assert subject.engine.start(box.id).id == box.id


def stops_and_starts(subject: Subject) -> None:
    """Over a stop files, environment, secrets, address and token stay; processes go; twice is fine."""
    with subject.sandbox(env={"A": "1", "ANY": _ANY}, secrets={"B": "2"}) as box:
        box.output("sh", "-c", "echo kept > file; echo kept > ~/file; (setsid sleep 600 > /dev/null 2>&1 &)")
        for _ in range(2):
            subject.engine.stop(box.id)
        stopped = subject.engine.find(box.id)
        assert stopped is not None and stopped.status == "stopped", stopped
        assert stopped.end is not None and stopped.end.cause == "killed", stopped
        again = subject.engine.start(box.id)
        assert (again.status, again.starts) == ("running", 2)
        assert (again.address, again.token) == (box.record.address, box.record.token)
        assert subject.engine.start(box.id).starts == 2
        assert box.output("sh", "-c", "cat file ~/file; echo $A$B").split() == ["kept", "kept", "12"]
        assert box.python("import os; print(repr(os.environ['ANY']))") == repr(_ANY)
        assert "sleep 600" not in box.output("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert subject.engine.restart(box.id).starts == 3
        assert box.output("cat", "file") == "kept"


def shares_one_start(subject: Subject) -> None:
    """All who start a stopped sandbox at once share one start."""
    with subject.sandbox() as box:
        subject.engine.stop(box.id)
        with ThreadPoolExecutor(4) as pool:
            starts = [pool.submit(subject.engine.start, box.id) for _ in range(4)]
            assert {each.result(120).starts for each in starts} == {2}
        box.output("true")


def removes_without_a_trace(subject: Subject) -> None:
    """What was removed is found no more; twice is fine; nothing else knows it."""
    spec = subject.spec()
    subject.engine.create(spec)
    for _ in range(2):
        subject.engine.remove(spec.id)
    assert subject.engine.find(spec.id) is None
    calls: tuple[Callable[[str], object], ...] = (
        subject.engine.start,
        subject.engine.stop,
        subject.engine.restart,
        subject.engine.stats,
    )
    for call in calls:
        assert _code(partial(call, spec.id)) is ErrorCode.NOT_FOUND, call


def tells_of_an_end(subject: Subject) -> None:
    """Who waits for the end of a sandbox is told at once, and one that goes on is waited for so long and no longer."""
    with subject.sandbox() as box, ThreadPoolExecutor(1) as pool:
        assert subject.engine.await_end(box.id, timeout=0.1) is None
        waiting = pool.submit(subject.engine.await_end, box.id, timeout=60)
        subject.engine.remove(box.id)
        assert waiting.result(30) is not None


def leaves_nothing_of_a_failure(subject: Subject) -> None:
    """A start that does not come up in time is told as such, and leaves nothing."""
    spec = subject.spec(start_timeout=0.001)
    assert _code(lambda: subject.engine.create(spec)) is ErrorCode.START_TIMEOUT
    assert subject.engine.find(spec.id) is None


def holds_memory(subject: Subject) -> None:
    """What wants more memory than there is does not get it, and the sandbox goes on."""
    with subject.sandbox(limits=Limits(memory=256 * _MIB)) as box:
        greedy = box.run("python", "-c", "held = bytearray(1024 * 2**20)")
        assert greedy.code != 0, "it got four times what there may be"
        box.output("true")
        stats = subject.engine.stats(box.id)
        assert stats.memory.limit == 256 * _MIB
        assert stats.memory.used is None or stats.memory.used < 256 * _MIB


def holds_processes(subject: Subject) -> None:
    """A fork bomb ends at the limit, and the sandbox goes on."""
    with subject.sandbox(limits=Limits(pids=64)) as box:
        assert box.python(_BOMB) == "refused"
        box.output("true")


_BOMB = """
import os, signal
children = []
try:
    while len(children) < 200:
        if (child := os.fork()) == 0:
            signal.pause()
        children.append(child)
    print("went on")
except BlockingIOError:
    print("refused")
for child in children:
    os.kill(child, signal.SIGKILL)
"""


def tells_what_it_cannot_limit(subject: Subject) -> None:
    """With `strict` a limit holds, or is refused as UNSUPPORTED and nothing is made."""
    spec = subject.spec(limits=Limits(memory=512 * _MIB, disk=1024 * _MIB, cpus=0.5, pids=100), strict=True)
    try:
        subject.engine.create(spec)
    except SandcellError as refused:
        assert refused.code is ErrorCode.UNSUPPORTED and refused.hint, refused
        assert subject.engine.find(spec.id) is None
    else:
        subject.engine.remove(spec.id)


def changes_and_keeps(subject: Subject) -> None:
    """A change of limits holds, now or after the restart that it says; files stay."""
    with subject.sandbox() as box:
        box.output("sh", "-c", "echo kept > file")

        def change(spec: SandboxSpec) -> SandboxSpec:
            return replace(spec, limits=replace(spec.limits, memory=256 * _MIB))

        done = subject.engine.update(box.id, change)
        record = subject.engine.find(box.id)
        assert record is not None and record.starts == 1 + done.restarted
        assert box.output("cat", "file") == "kept"
        assert subject.engine.stats(box.id).memory.limit == 256 * _MIB
        assert box.run("python", "-c", "held = bytearray(1024 * 2**20)").code != 0


def copies_a_sandbox(subject: Subject) -> None:
    """A snapshot begins another sandbox with its files, and is nobody's to write."""
    name = "conformance-snapshot"
    subject.engine.remove_snapshot(name)
    with subject.sandbox() as box:
        box.output("sh", "-c", "mkdir -p deep/er && echo then > deep/er/file && ln -s /etc/passwd link")
        made = subject.engine.snapshot(box.id, name)
        assert _code(lambda: subject.engine.snapshot(box.id, name)) is ErrorCode.EXISTS
        box.output("sh", "-c", "echo now > deep/er/file")
    try:
        assert made.name in {each.name for each in subject.engine.snapshots()}
        for _ in range(2):
            with subject.sandbox(image=made.name) as copy:
                found = copy.output("sh", "-c", "cat deep/er/file; readlink link; echo mine > deep/er/file")
                assert found.split() == ["then", "/etc/passwd"]
    finally:
        subject.engine.remove_snapshot(name)
    assert made.name not in {each.name for each in subject.engine.snapshots()}
    missing = _code(lambda: subject.engine.create(subject.spec(image=made.name)))
    assert missing is ErrorCode.IMAGE_NOT_FOUND, missing


def _code(call: Callable[[], object]) -> ErrorCode | None:
    """Return the code of the error that a call raises, None where it raises none."""
    try:
        call()
    except SandcellError as problem:
        return problem.code
    return None


FUNCTION_CHECKS = (
    probes_as_usable,
    runs_programs,
    is_found_and_listed,
    takes_a_name_once,
    stops_and_starts,
    shares_one_start,
    removes_without_a_trace,
    tells_of_an_end,
    leaves_nothing_of_a_failure,
    holds_memory,
    holds_processes,
    tells_what_it_cannot_limit,
    changes_and_keeps,
    copies_a_sandbox,
)
