"""The state of a session as another bash begins with it."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.container.session_house import Settings, boot, open_files, run

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.files import Files, ListPlan
from sandcell_container.guest.session import Session, Sessions
from sandcell_container.guest.session_command import CommandOrder
from sandcell_container.guest.session_snapshot import Snapshot, take_snapshot
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from tests.container.conftest import Place


AWKWARD = "a'b\"c\\d $HOME `id` $(id)\n\t*!漢\udcff; exit 1\n"


class Studio:
    """A session and what its snapshots are taken and used with."""

    def __init__(self, place: Place, files: Files, sessions: Sessions, session: Session) -> None:
        self.place, self.files, self.sessions, self.session = place, files, sessions, session

    async def take(self, *, cwd: str | None = None, env: Mapping[str, str | None] | None = None) -> Snapshot:
        order = CommandOrder(text="", cwd=cwd, env=env or {})
        return await take_snapshot(self.session, order, self.files, f"{self.place.workdir}/.snapshots")

    async def start(self, snapshot: Snapshot, command: str | Sequence[str]) -> bytes:
        """Start a command from a snapshot, which is given back, and return what it wrote to both streams."""
        read_end, write_end = os.pipe()
        try:
            start = Start(
                argv=snapshot.argv(command),
                env=snapshot.env(self.place.env["PATH"]),
                cwd=snapshot.cwd,
                stdout=write_end,
                stderr=write_end,
                extra=snapshot.fd,
            )
            job = await self.place.spawner.start(start)
            await job.wait()
            os.set_blocking(read_end, False)
            return os.read(read_end, 2**16)
        finally:
            for fd in (read_end, write_end, snapshot.fd):
                os.close(fd)

    async def say(self, command: str | Sequence[str], **more: object) -> bytes:
        return await self.start(await self.take(**more), command)  # type: ignore[arg-type]  # of `take`


@asynccontextmanager
async def open_studio(place: Place) -> AsyncGenerator[Studio]:
    there = boot(place)
    async with (
        open_files(place) as files,
        Sessions(place.spawner, there, Settings(), files) as sessions,
    ):
        yield Studio(place, files, sessions, await sessions.create("s"))


@pytest.fixture
async def studio(place: Place) -> AsyncIterator[Studio]:
    async with open_studio(place) as opened:
        yield opened


async def test_the_state_is_there(studio: Studio) -> None:
    await run(
        studio.session,
        """mkdir sub; cd sub; plain=1; export out=2; list=(a "b c"); declare -A map=([k]='v w'); declare -i num=3
        f() { echo "f $plain"; }; g-h() { cat <<EOF\nin $1\nEOF\n}; alias ll='echo aliased'; shopt -s extglob nullglob
        x() { case $1 in +(a|b)) echo ext;; esac; }; set -o pipefail -o noglob; umask 027; export -f f; unset LANG""",
    )
    said = await studio.say(
        "basename $PWD; echo $plain ${list[1]} ${map[k]} $num; printenv out; f; g-h 1; x ab; ll; bash -c f; umask; "
        "shopt -q nullglob && echo null; echo $-; false | true || echo pipe; echo ${LANG-none}; num=1+1; echo $num"
    )
    *lines, flags, piped, lang, number = said.decode().splitlines()
    assert lines == ["sub", "1 b c v w 3", "2", "f 1", "in 1", "ext", "aliased", "f ", "0027", "null"]
    assert ("f" in flags, piped, lang, number) == (True, "pipe", "none", "2")


async def test_values_are_as_they_were(studio: Studio) -> None:
    session = studio.session
    await run(session, 'export A=$B; plain=$B; f() { printf %s "$A"; }', env={"B": AWKWARD})
    said = await studio.say('f; [ "$plain" = "$A" ] && printf same')
    assert said == AWKWARD.encode(errors="surrogateescape") + b"same"


async def test_nothing_of_ours_is_there(studio: Studio) -> None:
    await run(studio.session, "(exit 3)")
    await run(studio.session, "true")
    said = await studio.say(
        "compgen -v __sandcell; compgen -A function; echo ${BASH_ENV-none} $#; ls /proc/self/fd; echo $0"
    )
    assert said == b"none 0\n0\n1\n2\n3\nbash\n"  # 3 is the folder that ls reads


async def test_words_are_a_program_and_its_arguments(studio: Studio) -> None:
    assert await studio.say(["printf", "%s|", "a b", "$x", ""]) == b"a b|$x||"
    assert b"no-such-program" in await studio.say(["no-such-program"])


async def test_it_is_taken_in_a_folder_and_with_variables_of_its_own(studio: Studio) -> None:
    await run(studio.session, "mkdir sub; export x=old; y=old")
    assert (
        await studio.say("basename $PWD; printenv x y", cwd="sub", env={"x": "new", "y": "2"})
        == b"sub\nnew\n2\n"
    )
    assert await studio.say("echo ${x-none}", env={"x": None}) == b"none\n"
    assert (await run(studio.session, "echo $x $y; basename $PWD")).out != b"new 2\nsub\n"
    with pytest.raises(SandcellError) as caught:
        await studio.take(cwd="no/such")
    assert caught.value.code is ErrorCode.CWD_NOT_FOUND


async def test_nothing_is_written_back(studio: Studio) -> None:
    await run(studio.session, "x=1")
    await studio.say("x=2; cd /; f() { :; }; set -e; echo done")
    assert (await run(studio.session, "echo $x; type -t f; [ $PWD = / ] || echo here")).out == b"1\nhere\n"


@pytest.mark.parametrize(
    "setup",
    [
        "set -eu",
        "set -x",
        "set -v",
        "set -o noclobber",
        "trap 'echo noise; echo more noise >&2' DEBUG",
        "set -o posix",
    ],
)
async def test_options_and_traps_do_not_spoil_it(studio: Studio, setup: str) -> None:
    await run(studio.session, f"x=5; {setup}")
    said = await studio.say("echo $x 2>/dev/null")
    assert said.splitlines()[-1] == b"5" and b"noise" not in said
    assert (await run(studio.session, "echo $x")).out.endswith(b"5\n")


async def test_a_job_that_talks_does_not_get_into_it(studio: Studio) -> None:
    await run(studio.session, "(while echo echo intruder; do :; done) & x=1")
    assert await studio.say("echo $x") == b"1\n"


async def test_what_changes_the_file_does_not_change_it(studio: Studio) -> None:
    snapshot = await studio.take()
    await asyncio.sleep(0)  # it is removed by a task of its own, which has to have asked first
    assert (await studio.files.list(".snapshots", ListPlan())).files == []
    assert await studio.start(snapshot, "echo fine") == b"fine\n"


async def test_it_waits_for_its_turn_and_its_session(studio: Studio) -> None:
    session = studio.session
    running = session.run(CommandOrder(text="read -t 0.1 < <(sleep 5); x=set"))
    assert await studio.say("echo $x") == b"set\n"
    await running.over()
    await run(session, "exit 2")
    with pytest.raises(SandcellError) as caught:
        await studio.take()
    assert caught.value.code is ErrorCode.SESSION_ENDED


async def test_one_that_cannot_be_written_is_told(studio: Studio) -> None:
    (studio.place.outside / ".snapshots").touch()
    with pytest.raises(SandcellError):
        await studio.take()
    assert (await run(studio.session, "echo alive")).out == b"alive\n"


async def test_a_full_disk_is_told(studio: Studio) -> None:
    if studio.place.mode != "marks":
        pytest.skip("only the bwrap has a small file system")
    await run(studio.session, "v=$(head -c 2000000 /dev/zero | tr '\\0' x)")
    with pytest.raises(SandcellError) as caught:
        await take_snapshot(studio.session, CommandOrder(text=""), studio.files, "/small/snapshots")
    assert caught.value.code is ErrorCode.START_FAILED


async def test_descriptors_are_given_back(studio: Studio) -> None:
    await studio.say("echo x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert await studio.say("echo x") == b"x\n"
    assert len(os.listdir("/proc/self/fd")) == before
