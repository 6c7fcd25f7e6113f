"""Processes against real spawners, in both modes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.container.conftest import PYTHON

from sandcell_container.end import CommandEnd, End, KillReport
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.process import Process, ProcessPlan, start_process
from sandcell_container.journal import Cursor, Entry, JournalLimits, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.container.conftest import Place

pytestmark = pytest.mark.short

DEADLINE_S = 20


Starter = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(place: Place) -> AsyncGenerator[Starter]:
    """Start a process; its journal is given back with the test."""
    made = list[Process]()

    async def start(command: str | Sequence[str], **options: Any) -> Process:
        settings: dict[str, Any] = {
            "id": "prc_1",
            "command": command if isinstance(command, str) else tuple(command),
            "cwd": place.workdir,
            "env": place.env,
            "epoch": "e",
            "limits": JournalLimits(),
            "kill_grace": 1.0,
        }
        made.append(await start_process(place.spawner, ProcessPlan(**settings | options)))
        return made[-1]

    yield start
    for process in made:
        process.close()


async def entries_of(process: Process, after: Cursor | None = None) -> AsyncGenerator[Entry]:
    async with asyncio.timeout(DEADLINE_S):
        async for batch in process.journal.follow(after):
            for entry in batch:
                yield entry


async def output_of(process: Process, kind: Kind = Kind.STDOUT) -> bytes:
    return b"".join([entry.data async for entry in entries_of(process) if entry.kind == kind])


async def said(process: Process, *words: bytes) -> None:
    """Return when all of `words` have come out."""
    found = b""
    async for entry in entries_of(process):
        found += entry.data if entry.kind == Kind.STDOUT else b""
        if all(word in found for word in words):
            return
    raise AssertionError(f"it ended with {found!r}")


def kept(process: Process) -> bytes:
    """Return what its journal holds now."""
    return b"".join(entry.data for entry in process.journal.read(process.journal.start))


async def exited(process: Process) -> None:
    """Return when the started process is gone, whatever is left of its tree."""
    job = process._job  # pyright: ignore[reportPrivateUsage] -- nothing that others need tells of it
    assert job is not None
    await job.wait()
    await asyncio.sleep(0)  # and the process has been told


async def test_output_is_exact_and_apart_and_ends_with_its_end(start: Starter) -> None:
    process = await start(r"printf 'a\0\377b\n\n'; echo err >&2; exit 3")
    assert process.is_running and process.pid > 0 and process.started_at > 0
    found = [entry async for entry in entries_of(process)]
    assert json.loads(found[0].data) == {"pid": process.pid} and found[0].kind == Kind.STARTED
    assert await output_of(process) == b"a\0\xffb\n\n"
    assert await output_of(process, Kind.STDERR) == b"err\n"
    ended = msgspec.json.decode(found[-1].data, type=CommandEnd)
    assert (ended.exit_code, ended.signal, ended.end.cause) == (3, None, "exited")
    assert process.end == ended.end == await process.wait()
    assert not process.is_running


async def test_a_list_is_the_program_and_its_arguments(start: Starter) -> None:
    assert await output_of(await start(["printf", "%s|", "a b", "$HOME", "'"])) == b"a b|$HOME|'|"


async def test_it_runs_until_its_whole_tree_has_settled_and_ends_as_the_started_process_did(
    place: Place, start: Starter
) -> None:
    process = await start("(setsid sh -c 'until [ -e go ]; do :; done; echo late' &) ; echo early; exit 4")
    await said(process, b"early")
    (place.outside / "go").touch()
    assert await output_of(process) == b"early\nlate\n"
    assert process.end is not None
    assert (process.end.cause, process.end.code) == ("exited", 4)


async def test_a_kill_ends_its_tree_and_says_how_many(start: Starter) -> None:
    process = await start("sleep 50 & (setsid nohup sleep 50 &) ; trap 'exit 7' TERM; echo up; wait")
    await said(process, b"up")
    report = await process.kill(who="tester")
    assert report == KillReport(killed=3, survived=0)
    assert process.end is not None
    assert (process.end.cause, process.end.code, process.end.who) == ("killed", 7, "tester")
    assert await process.kill() == KillReport()


async def test_what_ignores_sigterm_is_killed_after_the_grace(start: Starter) -> None:
    process = await start(["bash", "-c", "trap '' TERM; echo up; while :; do :; done"])
    await said(process, b"up")
    began = time.monotonic()
    await process.kill(0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert process.end is not None and (process.end.cause, process.end.signal) == ("killed", signal.SIGKILL)


async def test_a_kill_of_what_was_left_behind_leaves_its_end_as_it_was(start: Starter) -> None:
    process = await start("sleep 50 & echo up")
    await said(process, b"up")
    await exited(process)
    assert (await process.kill()).killed == 1
    assert process.end is not None and process.end.cause == "exited"
    ended = msgspec.json.decode([each async for each in entries_of(process)][-1].data, type=CommandEnd)
    assert ended.leftovers == 1


async def test_a_timeout_ends_the_tree_and_keeps_the_output(start: Starter) -> None:
    process = await start("echo begun; sleep 50 & sleep 50", timeout=0.2)
    assert await output_of(process) == b"begun\n"
    assert process.end is not None and (process.end.cause, process.end.signal) == ("timeout", signal.SIGTERM)


async def test_two_who_kill_it_at_once_are_both_answered(start: Starter) -> None:
    process = await start("trap '' TERM; echo up; while :; do :; done")
    await said(process, b"up")
    reports = await asyncio.gather(process.kill(30, who="first"), process.kill(0, who="second"))
    assert all(report.killed == 1 and not report.survived for report in reports)
    assert process.end is not None and process.end.who == "first"


# Bash may overlook a signal while it forks, so what hears them is Python.
HEARS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
print(sys.argv[1], "up", flush=True)
while True:
    signal.sigwait([signal.SIGHUP])
    print(sys.argv[1], "hup", flush=True)
    if sys.argv[1] == "last":
        break
"""


async def test_a_signal_goes_to_the_group_or_to_the_process_alone(start: Starter) -> None:
    process = await start(["sh", "-c", '"$0" -c "$1" child & exec "$0" -c "$1" parent', PYTHON, HEARS])
    await said(process, b"parent up", b"child up")
    process.signal(signal.SIGHUP, "process")
    await said(process, b"parent hup")
    process.signal(signal.SIGHUP)
    await said(process, b"child hup")
    assert kept(process).count(b"child hup") == 1
    await process.kill(0)


async def test_a_signal_to_what_is_left_reaches_it_and_to_nothing_is_no_error(start: Starter) -> None:
    process = await start(["sh", "-c", 'setsid "$0" -c "$1" last &', PYTHON, HEARS])
    await said(process, b"last up")
    await exited(process)
    process.signal(signal.SIGHUP)
    assert await output_of(process) == b"last up\nlast hup\n"
    process.signal(signal.SIGHUP)


async def test_a_signal_that_there_is_not_is_refused(start: Starter) -> None:
    process = await start("sleep 50")
    with pytest.raises(SandcellError) as caught:
        process.signal(65)
    assert caught.value.code == ErrorCode.UNKNOWN_SIGNAL
    await process.kill(0)


# --- standard input


async def test_input_is_written_in_order_and_closed(start: Starter) -> None:
    process = await start("cat", stdin=True)
    data = bytes(range(256)) * 4000
    await process.write(data, timeout_s=10)
    await process.write(b"end", timeout_s=10)
    process.close_stdin()
    assert await output_of(process) == data + b"end"


async def test_input_that_nobody_reads_waits_and_says_how_much_was_taken(start: Starter) -> None:
    process = await start("sleep 50", stdin=True)
    with pytest.raises(SandcellError) as caught:
        await process.write(b"x" * 200_000, timeout_s=0.1)
    assert caught.value.code == ErrorCode.WAIT_TIMEOUT
    assert caught.value.details["written"] == 65536
    await process.kill(0)


async def test_writers_wait_for_each_other(start: Starter) -> None:
    process = await start("cat", stdin=True)
    pieces = [bytes([number]) * 100_000 for number in range(5)]
    await asyncio.gather(*(process.write(piece, timeout_s=10) for piece in pieces))
    process.close_stdin()
    assert await output_of(process) == b"".join(pieces)


async def test_input_ends_with_its_reader(start: Starter) -> None:
    process = await start("exec <&-; echo closed; sleep 50", stdin=True)
    await said(process, b"closed")
    with pytest.raises(SandcellError) as caught:
        while True:  # the spawner may have its copy for a moment more
            await process.write(b"x", timeout_s=1)
    assert caught.value.code == ErrorCode.LOST
    await process.kill(0)


async def test_input_that_was_closed_takes_no_more(start: Starter) -> None:
    process = await start("sleep 50", stdin=True)
    process.close_stdin()
    process.close_stdin()
    with pytest.raises(SandcellError) as caught:
        await process.write(b"x", timeout_s=10)
    assert caught.value.code == ErrorCode.LOST
    await process.kill(0)


async def test_a_writer_that_waits_hears_of_the_end(start: Starter) -> None:
    process = await start("sleep 50", stdin=True)
    writing = asyncio.ensure_future(process.write(b"x" * 200_000, timeout_s=10))
    await asyncio.wait({writing}, timeout=0.05)
    await process.kill(0)
    with pytest.raises(SandcellError) as caught:
        await writing
    assert caught.value.code == ErrorCode.LOST


async def test_without_input_there_is_none(start: Starter) -> None:
    process = await start("cat; echo over")
    assert await output_of(process) == b"over\n"
    with pytest.raises(SandcellError) as caught:
        await process.write(b"x", timeout_s=1)
    assert caught.value.code == ErrorCode.INVALID_ARGUMENT


# --- what the journal cannot hold


async def test_old_output_is_dropped_and_told(start: Starter) -> None:
    limits = JournalLimits(memory=10_000, disk=800_000)
    process = await start("seq 300000", limits=limits)
    await process.wait()
    found = [entry async for entry in entries_of(process)]
    gaps = [json.loads(entry.data)["bytes"] for entry in found if entry.kind == Kind.GAP]
    whole = b"".join(b"%d\n" % number for number in range(1, 300_001))
    rest = b"".join(entry.data for entry in found if entry.kind == Kind.STDOUT)
    assert whole.endswith(rest) and 0 < len(rest) < len(whole)
    started = len(json.dumps({"pid": process.pid}))
    assert sum(gaps) == started + len(whole) - len(rest)


async def test_a_writer_that_must_not_lose_waits_until_somebody_has_read(start: Starter) -> None:
    limits = JournalLimits(memory=10_000, disk=1_000_000)  # half of it and a whole read fit
    process = await start("seq 300000; echo over >&2", limits=limits, on_full="block")
    async with asyncio.timeout(DEADLINE_S):
        while process.journal.cursor.offset < 500_000:
            await process.journal.changed()
    held = process.journal.cursor
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await process.journal.changed()
    assert process.journal.cursor == held and process.is_running
    found = b""
    async for entry in entries_of(process):
        assert entry.kind != Kind.GAP
        found += entry.data if entry.kind == Kind.STDOUT else b""
        process.note_read(Cursor("e", entry.seq, entry.offset))
    assert found == b"".join(b"%d\n" % number for number in range(1, 300_001))


async def test_without_room_on_disk_it_waits_for_what_memory_holds(start: Starter) -> None:
    limits = JournalLimits(memory=2**20, disk=2**22, spill_dir="/missing")
    process = await start("seq 600000", limits=limits, on_full="block")
    async with asyncio.timeout(DEADLINE_S):
        while process.journal.cursor.offset < 2**19:
            await process.journal.changed()
    found = b""
    async for entry in entries_of(process):
        assert entry.kind != Kind.GAP
        found += entry.data if entry.kind == Kind.STDOUT else b""
    assert found == b"".join(b"%d\n" % number for number in range(1, 600_001))


async def test_one_that_waits_for_readers_can_be_killed(start: Starter) -> None:
    limits = JournalLimits(memory=10_000, disk=100_000)
    process = await start("yes", limits=limits, on_full="block")
    async with asyncio.timeout(DEADLINE_S):
        while process.journal.cursor.offset < 50_000:
            await process.journal.changed()
    assert (await process.kill(0)).killed == 1


# --- what is given back


async def test_bad_starts_start_nothing(start: Starter) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for command, options, code in [
        (["no-such-program"], {}, ErrorCode.INVALID_ARGUMENT),
        ("true", {"cwd": "/no/such"}, ErrorCode.CWD_NOT_FOUND),
        ([], {}, ErrorCode.INVALID_ARGUMENT),
    ]:
        with pytest.raises(SandcellError) as caught:
            await start(command, stdin=True, **options)
        assert caught.value.code == code
        assert len(os.listdir("/proc/self/fd")) == before


async def test_nothing_is_left_open(start: Starter) -> None:
    await output_of(await start("true"))
    before = len(os.listdir("/proc/self/fd"))
    processes = [await start("echo x; cat", stdin=True) for _ in range(5)]
    for process in processes:
        process.close_stdin()
        assert await output_of(process) == b"x\n"
        process.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_lost_spawner_ends_it_as_lost(place: Place, start: Starter) -> None:
    process = await start("echo up; sleep 50")
    await said(process, b"up")
    await place.spawner.__aexit__()
    assert (await process.wait()).cause == "lost"


async def test_a_session_starts_its_own_words_with_a_descriptor_beside(start: Starter) -> None:
    """What `command` says is shown; `argv` runs, and reads what it is to know from descriptor 3."""
    with os.fdopen(os.memfd_create("snapshot"), "w+b") as snapshot:
        snapshot.write(b"greet() { echo hello $1; }\n")
        snapshot.seek(0)
        argv = ("bash", "-c", '. /dev/fd/3; exec 3<&-; eval -- "$1"', "bash", "greet you; ls /proc/self/fd")
        process = await start("greet you", argv=argv, extra=snapshot.fileno(), session_id="ses_1")
    assert await output_of(process) == b"hello you\n0\n1\n2\n3\n"
    assert (process.plan.command, process.plan.session_id) == ("greet you", "ses_1")


async def test_memory_is_limited_and_its_want_is_judged(start: Starter) -> None:
    def judge(end: End) -> End:
        return End(cause="oom", limit="memory", signal=end.signal, at=end.at)

    process = await start("ulimit -d; kill -ABRT $$", memory=200 * 2**20, judge=judge)
    assert await output_of(process) == b"204800\n"
    assert process.end is not None and process.end.cause == "oom"
