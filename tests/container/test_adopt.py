"""What a fork server has forked becomes a job; what speaks for it is believed for that job alone."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.spawner import Channel, Kept, exit_words
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.container.conftest import Place

    from sandcell_container.guest.job import Job

pytestmark = pytest.mark.short
DEADLINE_S = 20


async def start(place: Place, *argv: str) -> Job:
    return await place.spawner.start(Start(argv=argv, env=place.env, cwd="/"))


@pytest.fixture
def ended() -> Iterator[tuple[int, int]]:
    """The number of a process that has ended, and its pidfd."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    pidfd = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    yield pid, pidfd
    os.close(pidfd)


@pytest.fixture
def keeper() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a keeper's socket: the keeper's own, and the one that the spawner gets."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(DEADLINE_S)
    with ours, theirs:
        yield ours, theirs


async def test_what_has_ended_cannot_be_owned(
    place: Place, ended: tuple[int, int], keeper: tuple[socket.socket, socket.socket]
) -> None:
    pid, pidfd = ended
    descriptors = {"marks": [pidfd, pidfd], "keepers": [keeper[1].fileno(), pidfd]}[place.mode]
    for given in (descriptors, descriptors[:1], []):
        with pytest.raises(SandcellError) as caught:
            await place.spawner.adopt(pid, given)
        assert caught.value.code is ErrorCode.START_FAILED
    assert (await (await start(place, "true")).wait()).status == 0


LIES = [
    "exit {other} 0 0 0.0 0.0 1",
    "settled {other}",
    "started {own} nonsense",
    "started {own}",
    "exit {own} 0 0 0.0 0.0 1 1",
    "exit {own} -1 0 0.0 0.0 1",
    "exit {own} 1.5 0 0.0 0.0 1",
    "failed {own} 1 exec",
    "killed c99 7",
    "pids c99 1 2",
    "ready 1",
    "nonsense",
    "",
    "\udcff",
]


@pytest.mark.parametrize("place", ["keepers"], indirect=True)
@pytest.mark.parametrize("lie", LIES)
async def test_a_keeper_that_lies_is_ended_and_harms_no_other(
    place: Place, keeper: tuple[socket.socket, socket.socket], lie: str
) -> None:
    other = await start(place, "sleep", "600")
    stand_in = await start(place, "sleep", "600")  # for the keeper's process
    ours, theirs = keeper
    pidfd = os.pidfd_open(stand_in.pid)
    adopting = asyncio.create_task(place.spawner.adopt(stand_in.pid, [theirs.fileno(), pidfd]))
    own = (await asyncio.to_thread(ours.recv, 1024)).decode()
    names = {"own": own, "other": other_name(own)}
    ours.send(lie.format(**names).encode("utf-8", "surrogateescape") or b" ")
    with pytest.raises(SandcellError) as caught:
        await asyncio.wait_for(adopting, DEADLINE_S)
    assert caught.value.code is ErrorCode.START_FAILED
    os.close(pidfd)
    assert os.WTERMSIG((await stand_in.wait()).status) == signal.SIGKILL
    assert await other.pids() == [other.pid]
    await other.kill_tree()


@pytest.mark.parametrize("seconds", [0.0, 1e-05, 0.0034999999999999996, 123456.7])
def test_the_end_of_a_job_is_told_in_words_that_are_believed(seconds: float) -> None:
    usage = resource.struct_rusage([seconds, seconds, 2**31, *[0] * 13])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        kept = Kept(os.getpid(), Channel(ours))
        kept.job = "j1"
        assert kept.believe(exit_words("j1", 11, usage, floor=0, settled=True).encode())


def other_name(own: str) -> str:
    """Return the name of the job that was started two before."""
    return f"{own[0]}{int(own[1:]) - 2}"
