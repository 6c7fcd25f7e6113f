"""The spawner and its client, together: real processes in a real bwrap (marks) and in a plain process (keepers)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.container.conftest import BASE_ENV, MODES, PYTHON, UNPRIVILEGED, Place

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sandcell_container.guest.job import Job, JobExit

pytestmark = pytest.mark.short

DAEMON = "setsid nohup bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' >/dev/null 2>&1 &"


class Ran:
    """What a process said on stdout, and how it ended."""

    def __init__(self, out: bytes, ended: JobExit) -> None:
        self.out = out
        self.ended = ended
        self.code = os.waitstatus_to_exitcode(ended.status)


def shell(place: Place, text: str, **fields: Any) -> Start:
    usual: dict[str, Any] = {"argv": ("bash", "-c", text), "env": place.env, "cwd": place.workdir}
    return Start(**usual | fields)


async def read_all(fd: int) -> bytes:
    """Return what comes until every writer has closed its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        return await reader.read()
    finally:
        transport.close()


async def run(place: Place, start: Start | str) -> Ran:
    begun = shell(place, start) if isinstance(start, str) else start
    read_end, write_end = os.pipe()
    try:
        job = await place.spawner.start(replace(begun, stdout=write_end))
    finally:
        os.close(write_end)
    out = await read_all(read_end)
    return Ran(out, await job.wait())


async def code_of(call: Coroutine[Any, Any, object]) -> ErrorCode:
    with pytest.raises(SandcellError) as caught:
        await call
    return caught.value.code


def say(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def wait_until_it_says(place: Place, text: str) -> tuple[Job, int]:
    """Start `text`, return its job and the read end of its stdout once it has said a line."""
    read_end, write_end = os.pipe()
    job = await place.spawner.start(shell(place, text, stdout=write_end))
    os.close(write_end)
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(read_end, say, ready)
    await ready
    asyncio.get_running_loop().remove_reader(read_end)
    assert os.read(read_end, 100) == b"on\n"
    return job, read_end


# --- starting


async def test_a_process_gets_what_was_asked_and_nothing_else(place: Place) -> None:
    env = {"PATH": "/usr/bin:/bin", "A B": "quote\" ' \n$x", "EMPTY": "", "BYTES": "\udcff"}
    ran = await run(place, Start(argv=("env", "-0"), env=env, cwd="/"))
    told = [f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in env.items()]
    assert sorted(ran.out.split(b"\0")) == sorted([*told, b""])
    assert (
        await run(place, Start(argv=("pwd",), env=env, cwd=place.workdir))
    ).out.decode() == place.workdir + "\n"
    ran = await run(place, Start(argv=("printf", "%s|", "", "a b", "\udcff", "-n"), env=env, cwd="/"))
    assert ran.out == b"|a b|\xff|-n|"


async def test_it_has_three_descriptors_its_own_session_and_plain_signals(place: Place) -> None:
    code = (
        "import os, signal as s\n"
        "fds = sorted(map(int, os.listdir('/proc/self/fd')))[:-1]\n"  # the last one is that folder itself
        "ignored = [n for n in s.valid_signals() if s.getsignal(n) == s.SIG_IGN and n not in (s.SIGPIPE, s.SIGXFSZ)]\n"
        "print(fds, os.getsid(0) == os.getpid(), s.pthread_sigmask(s.SIG_BLOCK, []), ignored, os.read(0, 9))\n"
    )
    ran = await run(place, Start(argv=(PYTHON, "-c", code), env=place.env, cwd="/"))
    assert ran.out == b"[0, 1, 2] True set() [] b''\n"
    ran = await run(place, "grep SigIgn /proc/self/status")
    assert int(ran.out.split()[1], 16) & ~(3 << 31) == 0  # 32 and 33 are the C library's own


async def test_how_it_ended_is_told(place: Place) -> None:
    assert (await run(place, "exit 7")).code == 7
    assert (await run(place, "kill -9 $$")).code == -9
    ended = (await run(place, "x=0; while ((x++ < 20000)); do :; done")).ended
    assert 0 < ended.cpu_user + ended.cpu_system < 10
    ended = (await run(place, Start(argv=(PYTHON, "-c", "x = b'x' * 50_000_000"), env={}, cwd="/"))).ended
    assert 50_000_000 < (ended.peak_memory or 0) < 200_000_000


async def test_the_peak_of_memory_is_never_the_spawners(place: Place) -> None:
    large = {f"A{at}": "x" * 100_000 for at in range(15)}
    await run(place, Start(argv=("true",), env={**place.env, **large}, cwd="/"))
    for _ in range(2):
        assert (await run(place, Start(argv=("true",), env=place.env, cwd="/"))).ended.peak_memory is None


async def test_the_program_is_searched_in_the_path_of_the_process(place: Place) -> None:
    for name, mode in [("one", 0o755), ("two", 0o644)]:
        (place.outside / name).write_text("#!/bin/sh\necho $0\n")
        (place.outside / name).chmod(mode)
    env = {"PATH": f"/nowhere:{place.workdir}"}
    assert (await run(place, Start(argv=("one",), env=env, cwd="/"))).out.decode() == f"{place.workdir}/one\n"
    assert (await run(place, Start(argv=("./one",), env={}, cwd=place.workdir))).out == b"./one\n"
    assert await code_of(run(place, Start(argv=("two",), env=env, cwd="/"))) == ErrorCode.INVALID_ARGUMENT


async def test_each_problem_has_its_code_and_the_next_start_works(place: Place) -> None:
    (place.outside / "text").write_text("echo no first line\n")
    (place.outside / "text").chmod(0o755)
    (place.outside / "lost").write_text("#!/no/such/interpreter\n")
    (place.outside / "lost").chmod(0o755)
    for start, code in [
        (shell(place, "true", cwd="/no/such"), ErrorCode.CWD_NOT_FOUND),
        (shell(place, "true", cwd="/etc/passwd"), ErrorCode.CWD_NOT_FOUND),
        (shell(place, "true", cwd="relative"), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "true", cwd="/x\0"), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=("no-such",)), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=("/no/such",)), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=("/usr",)), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=(f"{place.workdir}/text",)), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=(f"{place.workdir}/lost",)), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=()), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "", argv=("",)), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "a\0b"), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "\ud800"), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "x" * 2**17), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "true", env={"X": "x" * 2**17}), ErrorCode.INVALID_ARGUMENT),
        (shell(place, "true", env={"": "x"}), ErrorCode.INVALID_ENV_NAME),
        (shell(place, "true", env={"A=B": "x"}), ErrorCode.INVALID_ENV_NAME),
        (shell(place, "true", env={"A\0": "x"}), ErrorCode.INVALID_ENV_NAME),
        (shell(place, "true", env={"A": "\0"}), ErrorCode.INVALID_ARGUMENT),
    ]:
        assert await code_of(run(place, start)) == code, start
        assert (await run(place, "echo on")).out == b"on\n"


async def test_a_folder_that_may_not_be_entered_is_refused(place: Place) -> None:
    (place.outside / "closed").mkdir(mode=0)
    if os.getuid() == 0 and place.mode == "keepers":
        return  # root may enter any
    assert (
        await code_of(run(place, shell(place, "true", cwd=f"{place.workdir}/closed")))
        == ErrorCode.PERMISSION_DENIED
    )


async def test_long_arguments_and_environments_arrive_whole(place: Place) -> None:
    env = place.env | {f"V{number}": "v" * 100_000 for number in range(5)}
    ran = await run(place, shell(place, f"echo ${{#V0}} ${{#V4}} ${{#1}}; : {'x' * 90_000}", env=env))
    assert ran.out == b"100000 100000 0\n"


async def test_many_starts_at_once(place: Place) -> None:
    ran = await asyncio.gather(*(run(place, f"echo {number}; exit {number}") for number in range(40)))
    assert [(each.out, each.code) for each in ran] == [(b"%d\n" % number, number) for number in range(40)]


async def test_a_cancelled_start_leaves_nothing(place: Place) -> None:
    read_end, write_end = os.pipe()
    starting = asyncio.ensure_future(place.spawner.start(shell(place, "sleep 50", stdout=write_end)))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    os.close(write_end)
    assert await read_all(read_end) == b""


# --- trees


async def test_a_tree_is_ended_whole_and_its_neighbours_are_not(place: Place) -> None:
    neighbour = await place.spawner.start(shell(place, f"{DAEMON} sleep 50"))
    job = await place.spawner.start(shell(place, f"{DAEMON} env -i {DAEMON} (sleep 50 &) ; exit 3"))
    ended = await job.wait()
    assert os.waitstatus_to_exitcode(ended.status) == 3
    assert not job.is_settled
    assert await job.kill_tree() >= 3
    await job.settled()
    assert await job.pids() == []
    assert len(await neighbour.pids()) >= 3
    await neighbour.kill_tree()


async def test_a_tree_is_settled_when_its_last_process_ends(place: Place) -> None:
    os.mkfifo(place.outside / "fifo", 0o666)
    os.chmod(place.outside / "fifo", 0o666)
    job = await place.spawner.start(shell(place, "(setsid bash -c 'read x < fifo' &)"))
    await job.wait()
    assert not job.is_settled
    with (place.outside / "fifo").open("w"):
        pass
    async with asyncio.timeout(10):
        await job.settled()


async def test_what_needs_no_end_is_settled_with_its_exit(place: Place) -> None:
    job = await place.spawner.start(shell(place, "true"))
    await job.wait()
    assert job.is_settled
    assert await job.kill_tree() == 0
    job.signal(9)


async def test_random_trees_are_never_settled_early(place: Place) -> None:
    """The last process of each tree holds a pipe: settled and its end of file must not be the wrong way round."""

    async def grow(text: str) -> None:
        read_end, write_end = os.pipe()
        job = await place.spawner.start(shell(place, text, stdout=write_end))
        os.close(write_end)
        await job.settled()
        os.set_blocking(read_end, False)
        while os.read(read_end, 100):  # BlockingIOError: one of the tree has it open still
            continue
        os.close(read_end)

    for _ in range(5):
        await asyncio.gather(
            grow("(setsid bash -c 'echo a; sleep 0.01; (sleep 0.01; echo b) & exit' &) ; exit"),
            grow("bash -c 'bash -c \"sleep 0.02 &\" & sleep 0.01' & exit"),
            grow("env -i setsid bash -c 'sleep 0.01' & kill -9 $$"),
            grow("for i in 1 2 3 4 5; do (sleep 0.00$i; (true &) &) & done"),
            grow("true"),
        )


async def test_sigterm_first_and_sigkill_after_the_grace(place: Place) -> None:
    job, fd = await wait_until_it_says(
        place, "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.01; done"
    )
    await job.kill_tree(10.0)
    assert os.waitstatus_to_exitcode((await job.wait()).status) == 5
    assert await read_all(fd) == b"bye\n"
    job, fd = await wait_until_it_says(place, "trap '' TERM; echo on; while :; do :; done")
    await job.kill_tree(0.1)
    assert os.waitstatus_to_exitcode((await job.wait()).status) == -9
    os.close(fd)


async def test_a_stopped_tree_hears_sigterm(place: Place) -> None:
    job, fd = await wait_until_it_says(
        place, "trap 'exit 6' TERM; echo on; kill -STOP $$; while :; do :; done"
    )
    await job.kill_tree(10.0)
    assert os.waitstatus_to_exitcode((await job.wait()).status) == 6
    os.close(fd)


async def test_processes_are_told_with_their_parent_and_whether_they_run_a_program_of_their_own(
    place: Place,
) -> None:
    job, fd = await wait_until_it_says(place, "(sh -c 'echo on; exec sleep 50'; :) & exec sleep 40")
    found = await job.forks()
    assert sorted(each.pid for each in found) == sorted(await job.pids())
    root = next(each for each in found if each.pid == job.pid)
    subshell = next(each for each in found if each.parent == job.pid)
    program = next(each for each in found if each.parent == subshell.pid)
    assert (root.is_forked, subshell.is_forked, program.is_forked) == (False, True, False)
    await job.kill_tree()
    assert await job.forks() == []
    os.close(fd)


async def test_signals_reach_the_process_its_group_or_its_tree(place: Place) -> None:
    text = "trap 'echo root' USR1; (trap 'echo child; exit' USR1; echo on; while :; do :; done) & wait; wait; exit 0"
    job, fd = await wait_until_it_says(place, text)
    job.signal(signal.SIGUSR1, "group")
    await job.wait()
    assert sorted((await read_all(fd)).split()) == [b"child", b"root"]
    job, fd = await wait_until_it_says(place, "sleep 50 & exec sh -c 'echo on; exec sleep 40'")
    assert len(await job.pids()) == 2
    job.signal(signal.SIGTERM, "process")
    assert os.waitstatus_to_exitcode((await job.wait()).status) == -15
    assert len(await job.pids()) == 1
    job.signal(signal.SIGKILL, "tree")
    await job.settled()
    os.close(fd)
    with pytest.raises(SandcellError):
        job.signal(65)


async def test_a_storm_of_forks_is_ended(place: Place) -> None:
    text = "f() { [ -e stop ] || { f & f & wait; }; }; echo on; f"
    (place.outside / "stop").touch()
    assert (
        await run(place, f"ulimit -u 4000; {text}")
    ).code == 0  # it stops by itself: what follows cannot run away
    (place.outside / "stop").unlink()
    text = "for i in {1..30}; do (while :; do (sleep 0.001 &) ; sleep 0.002; done) & done; echo on; wait"
    job, fd = await wait_until_it_says(place, text)
    async with asyncio.timeout(20):
        assert await job.kill_tree() >= 30
        await job.settled()
    os.close(fd)
    assert (await run(place, "echo alive")).out == b"alive\n"


async def test_no_zombie_is_left(place: Place) -> None:
    for _ in range(5):
        job = await place.spawner.start(shell(place, "(sleep 0.01 &) ; (true &) ; exit"))
        await job.settled()
    ran = await run(place, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '")
    if place.mode == "marks":  # nobody else's processes are seen
        assert ran.out == b"0\n"


# --- the spawner itself


async def test_everything_ends_with_the_socket(place: Place) -> None:
    job, fd = await wait_until_it_says(
        place, f"trap '' TERM HUP INT; {DAEMON.replace('>/dev/null', '')} echo on; sleep 50"
    )
    await place.spawner.__aexit__()
    async with asyncio.timeout(10):
        await read_all(fd)
    for call in (job.wait(), job.settled(), job.kill_tree(), job.pids(), run(place, "true")):
        assert await code_of(call) == ErrorCode.SANDBOX_GONE
    await place.spawner.gone()
    assert place.spawner.problem is not None


async def test_a_dead_spawner_is_told_and_leaves_nothing() -> None:
    with MODES["keepers"]() as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("keepers", spawner, outside)
            job, fd = await wait_until_it_says(
                place, "trap '' TERM HUP; (setsid sleep 50 &) ; echo on; sleep 50"
            )
            os.kill(parent_of(parent_of(job.pid)), signal.SIGKILL)
            async with asyncio.timeout(10):
                await spawner.gone()
                await read_all(fd)
            assert await code_of(job.wait()) == ErrorCode.SANDBOX_GONE


async def test_a_spawner_that_does_not_answer_is_given_up() -> None:
    with MODES["keepers"]() as (sock, outside):
        async with Spawner(sock, deadline_s=0.2) as spawner:
            place = Place("keepers", spawner, outside)
            job = await spawner.start(shell(place, "sleep 50"))
            keeper = parent_of(job.pid)
            os.kill(parent_of(keeper), signal.SIGSTOP)
            assert await code_of(run(place, "true")) == ErrorCode.SANDBOX_GONE
            assert "0.2 s" in str(spawner.problem)
            assert await code_of(job.wait()) == ErrorCode.SANDBOX_GONE
            os.kill(parent_of(keeper), signal.SIGCONT)


async def test_a_guest_that_stood_still_reads_the_answer_before_it_looks_at_the_clock() -> None:
    """A machine that slept, a loop that was held up: the spawner has answered meanwhile."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.send(b"ready 1")
        async with Spawner(ours, deadline_s=0.05) as spawner, asyncio.TaskGroup() as group:
            start = Start(argv=("true",), env={}, cwd="/")
            starting = group.create_task(spawner.start(start))
            await asyncio.sleep(0)
            request = theirs.recv(1000).split(b"\0")
            theirs.send(b"started %s 7" % request[1])
            stand_still(0.1)
            assert (await starting).pid == 7
            assert spawner.problem is None


def stand_still(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


async def test_a_killed_keeper_takes_its_tree_with_it_and_no_other() -> None:
    with MODES["keepers"]() as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("keepers", spawner, outside)
            neighbour, other = await wait_until_it_says(place, "(setsid sleep 50 &) ; echo on; sleep 50")
            job, fd = await wait_until_it_says(place, f"{DAEMON.replace('>/dev/null', '')} echo on; sleep 50")
            os.kill(parent_of(job.pid), signal.SIGKILL)
            async with asyncio.timeout(10):
                assert os.waitstatus_to_exitcode((await job.wait()).status) == -9
                await job.settled()
                await read_all(fd)
            assert len(await neighbour.pids()) == 2
            assert await neighbour.kill_tree() == 2
            os.close(other)


async def test_a_program_that_kills_its_keeper_at_once_has_been_started() -> None:
    """It may be faster than its keeper's word that it runs."""
    with MODES["keepers"]() as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("keepers", spawner, outside)
            for _ in range(30):
                start = shell(place, "", argv=("sh", "-c", "kill -9 $PPID; sleep 60"))
                async with asyncio.timeout(20):
                    job = await spawner.start(start)
                    assert os.waitstatus_to_exitcode((await job.wait()).status) == -9
                    await job.settled()
            assert (await run(place, "echo on")).out == b"on\n"


async def test_a_stopped_keeper_cannot_keep_its_tree_alive() -> None:
    with MODES["keepers"]() as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("keepers", spawner, outside)
            job, fd = await wait_until_it_says(place, "echo on; sleep 50")
            os.kill(parent_of(job.pid), signal.SIGSTOP)
            async with asyncio.timeout(15):
                assert await job.kill_tree() == 1
                assert os.waitstatus_to_exitcode((await job.wait()).status) == -9
            os.close(fd)


async def test_user_code_has_no_power_over_the_spawner() -> None:
    with MODES["marks"]() as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("marks", spawner, outside)
            await run(place, "for s in {1..64}; do kill -$s 1; done; kill -9 -1")
            ran = await run(
                place, "grep -h ^Cap /proc/self/status; ls /proc/1/fd /proc/1/ns; cat /proc/1/environ"
            )
            assert [line.split()[1] for line in ran.out.splitlines()[:4]] == [b"0" * 16] * 3 + [
                ran.out.splitlines()[3].split()[1]
            ]
            assert len(ran.out.splitlines()) == 5
            ran = await run(
                place, "cat /proc/self/oom_score_adj; unshare -u true; echo $?; renice -n 5 1; echo $?"
            )
            assert ran.out == b"500\n1\n1\n"


async def test_limits_hold_for_what_is_started() -> None:
    settings = '{"limits": {"memory": 200000000, "pids": 20, "cpus": 1}}'
    with MODES["marks"](settings) as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("marks", spawner, outside)
            code = "import os\nprint(len(os.sched_getaffinity(0)))\ntry: bytes(300_000_000)\nexcept MemoryError: print('full')"
            ran = await run(place, Start(argv=(PYTHON, "-c", code), env=BASE_ENV, cwd="/"))
            assert ran.out == b"1\nfull\n"
            jobs: list[Job] = []
            with pytest.raises(SandcellError) as caught:
                while len(jobs) < 30:
                    jobs += [await spawner.start(Start(argv=("sleep", "50"), env=BASE_ENV, cwd="/"))]
            assert caught.value.code == ErrorCode.START_FAILED and "process limit" in caught.value.message
            assert caught.value.retryable and len(jobs) >= 10
            await jobs[0].kill_tree()
            await spawner.start(Start(argv=("sleep", "50"), env=BASE_ENV, cwd="/"))


async def test_a_spawner_that_never_was_ready_is_told() -> None:
    with MODES["keepers"]("not json") as (sock, _), pytest.raises(SandcellError) as caught:
        async with Spawner(sock) as spawner:
            await spawner.gone()
            raise spawner.problem or AssertionError
    assert caught.value.code == ErrorCode.SANDBOX_GONE


async def test_too_many_open_files_refuse_a_start_and_nothing_else() -> None:
    with MODES["marks"]() as (sock, outside):
        async with Spawner(sock) as spawner:
            place = Place("marks", spawner, outside)
            await limit_files(place, 40)
            jobs: list[Job] = []
            with pytest.raises(SandcellError) as caught:
                while len(jobs) < 60:
                    jobs += [await spawner.start(Start(argv=("sleep", "50"), env=BASE_ENV, cwd="/"))]
            assert caught.value.code == ErrorCode.START_FAILED and "open files" in caught.value.message
            long = shell(place, "true", env=place.env | {f"V{number}": "v" * 100_000 for number in range(3)})
            assert await code_of(spawner.start(long)) == ErrorCode.START_FAILED
            await asyncio.gather(*(job.kill_tree() for job in jobs))
            assert (await run(place, "echo on")).out == b"on\n"


async def limit_files(place: Place, count: int) -> None:
    """What the seccomp filter of an engine forbids: user code lowers the limit of PID 1."""
    code = f"import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, ({count}, {count}))"
    assert (await run(place, Start(argv=(PYTHON, "-c", code), env=BASE_ENV, cwd="/"))).code == 0


# --- terminals


async def test_a_terminal_controls_what_is_started_on_it(place: Place) -> None:
    ours, theirs = os.openpty()
    text = "read line < /dev/tty; echo $line $$ $(ps -o tpgid= -p $$) >&2; exit 3"
    try:
        if place.mode == "marks" and os.getuid() == 0:
            os.fchown(theirs, UNPRIVILEGED, UNPRIVILEGED)
        os.write(ours, b"typed\n")
        job = await place.spawner.start(shell(place, text, terminal=theirs))
        ended = await job.wait()
        said = os.read(ours, 2**16)
    finally:
        os.close(ours)
        os.close(theirs)
    assert os.waitstatus_to_exitcode(ended.status) == 3
    assert said == b"typed\r\ntyped %d %d\r\n" % (job.pid, job.pid)


# --- what there is


async def test_every_process_is_told_with_what_it_belongs_to(place: Place) -> None:
    mine, end = await wait_until_it_says(place, "setsid sleep 60 & (setsid sleep 60 &); echo on; wait")
    ours, other_end = await wait_until_it_says(place, "echo on; exec sleep 60")
    assert await place.spawner.processes() == []
    mine.owner = "prc_1"
    found = await place.spawner.processes()
    assert sorted(found) == sorted((pid, "prc_1") for pid in await mine.pids())
    assert len(found) == 3
    ours.owner = "exe_1"
    assert (ours.pid, "exe_1") in await place.spawner.processes()
    await mine.kill_tree()
    assert await place.spawner.processes() == [(ours.pid, "exe_1")]
    await ours.kill_tree()
    for fd in (end, other_end):
        os.close(fd)


# --- beside the usual


async def test_a_fourth_descriptor_is_handed_on_where_one_is_given(place: Place) -> None:
    with os.fdopen(os.memfd_create("extra"), "w+b") as extra:
        extra.write(b"from beside")
        extra.seek(0)
        done = await run(place, shell(place, "cat <&3; exec 3<&-; ls /proc/self/fd", extra=extra.fileno()))
    assert done.out == b"from beside0\n1\n2\n3\n", "ls itself opens the folder as 3"


GREEDY = "import sys; bytearray(int(sys.argv[1]))"
FREED = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))"


async def test_memory_is_limited_from_the_first_instruction_on_and_for_children(place: Place) -> None:
    limit, code = 200 * 2**20, "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"

    async def python(*words: str) -> int:
        return (await run(place, shell(place, "", argv=(PYTHON, "-c", *words), memory=limit))).code

    assert await python(GREEDY, str(100 * 2**20)) == 0
    assert await python(GREEDY, str(300 * 2**20)) == 1
    assert await python(code, PYTHON, "-c", GREEDY, str(300 * 2**20)) == 1
    assert await python(FREED) == 1


async def test_a_limited_start_differs_in_nothing_else(place: Place) -> None:
    shown = (
        "trap; ulimit -d; ps -o pid=,sid= -p $$ | tr -s ' ' | awk '{print $1 == $2}'; ls /proc/self/fd; pwd"
    )
    limited = await run(place, shell(place, shown, memory=200 * 2**20))
    plain = await run(place, shown)
    assert limited.out.replace(b"204800", b"unlimited") == plain.out
    job = await place.spawner.start(shell(place, "setsid sleep 50 & sleep 50", memory=200 * 2**20))
    assert await job.kill_tree() >= 1
    assert job.is_settled


@pytest.mark.parametrize(
    ("program", "mode", "code"),
    [("no-such-program", 0o755, "ENOENT"), ("./odd", 0o644, "EACCES"), ("./odd", 0o755, "ENOEXEC")],
)
async def test_a_limited_start_that_fails_says_why(place: Place, program: str, mode: int, code: str) -> None:
    (place.outside / "odd").write_text("no program")
    (place.outside / "odd").chmod(mode)
    with pytest.raises(SandcellError) as caught:
        await place.spawner.start(shell(place, "", argv=(program,), memory=200 * 2**20))
    assert caught.value.details["errno"] == code
