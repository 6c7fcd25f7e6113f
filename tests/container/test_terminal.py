"""Terminals on real spawners, in both modes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.pty import Size
from sandcell_container.guest.terminal import Terminal, TerminalPlan, Terminals
from sandcell_container.guest.user_worker import UserWorker
from sandcell_container.journal import Cursor, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from tests.container.conftest import Place

pytestmark = pytest.mark.short
DEADLINE_S = 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    kill_grace: float = 1.0
    max_records: int = 100
    journal_terminal: int = 2**15
    input_timeout: float = 5.0


class Room:
    """The terminals of a place."""

    def __init__(self, place: Place, terminals: Terminals) -> None:
        self.place = place
        self.terminals = terminals

    def plan(self, command: Any = None, **fields: Any) -> TerminalPlan:
        env = {**self.place.env, "HOME": f"{self.place.workdir}/.home", "TERM": "xterm-256color"}
        usual: dict[str, Any] = {"cwd": self.place.workdir, "env": env, "size": Size(80, 24)}
        return TerminalPlan(command=command, **usual | fields)

    async def open(self, command: Any = None, **fields: Any) -> Terminal:
        return await self.terminals.create(None, self.plan(command, **fields))


@asynccontextmanager
async def a_room(place: Place, *, is_other: bool = True, **settings: Any) -> AsyncGenerator[Room]:
    """`is_other`: the terminals are opened as in a container, where the guest is not the user."""
    async with UserWorker(place.spawner, "/usr/bin/python3", deadline_s=DEADLINE_S) as worker:
        home = place.outside / ".home"
        home.mkdir(mode=0o755)
        (home / ".bashrc").write_text("PS1='$ '\n")
        terminals = Terminals(place.spawner, worker if is_other else None, "epoch", Settings(**settings))
        yield Room(place, terminals)
        terminals.close()


@pytest.fixture
async def room(place: Place) -> AsyncIterator[Room]:
    async with a_room(place) as made:
        yield made


class Viewer:
    """Somebody who looks at a terminal, from its start or from a cursor on."""

    def __init__(self, terminal: Terminal, after: Cursor | None = None) -> None:
        self.at = terminal.replay_start if after is None else after
        self.seen = b""
        self.gaps = 0
        self.ended: CommandEnd | None = None
        self._journal = terminal.journal

    async def until(self, pattern: bytes) -> re.Match[bytes]:
        """Read on until what was seen has `pattern`, and forget all up to its end."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while (found := re.search(pattern, self.seen)) is None:
                    assert self.ended is None, self.seen
                    await self._read()
        except TimeoutError:
            raise AssertionError(f"{pattern!r} is not in {self.seen!r}") from None
        self.seen = self.seen[found.end() :]
        return found

    async def rest(self) -> bytes:
        """Return what comes until the end."""
        async with asyncio.timeout(DEADLINE_S):
            while self.ended is None:
                await self._read()
        return self.seen

    async def _read(self) -> None:
        batch = self._journal.read(self.at)
        for entry in batch:
            self.at = Cursor(self.at.epoch, entry.seq, entry.offset)
            match entry.kind:
                case Kind.STDOUT:
                    self.seen += entry.data
                case Kind.GAP:
                    self.gaps += 1
                case _:
                    self.ended = msgspec.json.decode(entry.data, type=CommandEnd)
        if not batch:
            await self._journal.changed()


async def code_of(call: Coroutine[Any, Any, object]) -> ErrorCode:
    with pytest.raises(SandcellError) as caught:
        await asyncio.wait_for(call, DEADLINE_S)
    return caught.value.code


# --- a terminal is one


async def test_a_shell_reads_its_rc_file_and_has_a_terminal(room: Room) -> None:
    home = room.place.outside / "home"
    home.mkdir(mode=0o755)
    (home / ".bashrc").write_text("PS1='> '; greet() { echo hello from the rc file; }\n")
    env = {**room.place.env, "HOME": f"{room.place.workdir}/home", "TERM": "xterm"}
    terminal = await room.open(env=env)
    viewer = Viewer(terminal)
    await viewer.until(b"> ")
    await terminal.write(b"greet; tty; pwd; echo $TERM $-\n")
    await viewer.until(rb"hello from the rc file\r\n/dev/pts/\d+\r\n")
    assert (await viewer.until(rb"(\S+)\r\nxterm \w*i\w*m")).group(1).decode() == room.place.workdir
    await terminal.write(b"exit 7\n")
    await viewer.rest()
    assert viewer.ended is not None and viewer.ended.exit_code == 7
    assert terminal.end == viewer.ended.end
    assert await code_of(terminal.write(b"x")) == ErrorCode.LOST


async def test_words_are_a_program_and_text_is_a_line(room: Room) -> None:
    viewer = Viewer(await room.open(("printf", "%s|", "a b", "$x")))
    assert await viewer.rest() == b"a b|$x|"
    viewer = Viewer(await room.open("echo $((1 + 1)) | cat; exit 3"))
    assert await viewer.rest() == b"2\r\n"
    assert viewer.ended is not None and viewer.ended.exit_code == 3


async def test_without_bash_it_is_sh(room: Room) -> None:
    (room.place.outside / "bin").mkdir(mode=0o755)
    for name in ("sh", "tty"):
        os.symlink(f"/bin/{name}" if name == "sh" else f"/usr/bin/{name}", room.place.outside / "bin" / name)
    env = {"PATH": f"{room.place.workdir}/bin", "PS1": "% "}
    viewer = Viewer(terminal := await room.open(env=env))
    await viewer.until(b"% ")
    await terminal.write(b"tty; exit\n")
    assert b"/dev/pts/" in await viewer.rest()
    assert b"2" in await Viewer(await room.open("echo $((1 + 1))", env=env)).rest()


async def test_what_cannot_be_started_is_said(room: Room) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert await code_of(room.open(("no-such-program",))) == ErrorCode.INVALID_ARGUMENT
    assert await code_of(room.open(cwd="/none")) == ErrorCode.CWD_NOT_FOUND
    assert await code_of(room.open(size=Size(0, 24))) == ErrorCode.INVALID_ARGUMENT
    assert await code_of(room.open(size=Size(80, 10_001))) == ErrorCode.INVALID_ARGUMENT
    assert await code_of(room.terminals.create("No", room.plan())) == ErrorCode.INVALID_NAME
    assert room.terminals.list() == []
    assert len(os.listdir("/proc/self/fd")) == before + 1  # the worker's socket


async def test_the_size_is_what_was_asked_and_changes_are_signalled(room: Room) -> None:
    text = "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done"
    terminal = await room.open(text, size=Size(100, 30))
    viewer = Viewer(terminal)
    await viewer.until(b"30 100\r\n")
    terminal.resize(Size(132, 43))
    await viewer.until(b"43 132\r\n")
    assert terminal.size == Size(132, 43)
    with pytest.raises(SandcellError):
        terminal.resize(Size(-1, 1))


async def test_keys_interrupt_stop_and_end(room: Room) -> None:
    terminal = await room.open()
    viewer = Viewer(terminal)
    await viewer.until(rb"\$ ")
    await terminal.write(b"sh -c 'echo be\"\"gun; exec sleep 60'\n")
    await viewer.until(b"begun\r\n")
    await terminal.write(b"\x03")
    await viewer.until(rb"\^C\r\n(.*)\$ ")
    await terminal.write(b"echo $?; sh -c 'echo be\"\"gun; exec cat'\n")
    await viewer.until(b"130\r\nbegun\r\n")
    await terminal.write(b"\x1a")
    await viewer.until(rb"\^Z\r\n\[1\]\+  Stopped [^\r]+\r\n")
    await terminal.write(b"fg\n")
    await viewer.until(rb"fg\r\n[^$]*exec cat'\r\n")
    await terminal.write(b"typed\n")
    await viewer.until(rb"typed\r\ntyped\r\n")
    await terminal.write(b"\x04")
    await viewer.until(rb"\$ ")
    await terminal.write(b"\x04")
    await viewer.rest()
    assert viewer.ended is not None and viewer.ended.end.cause == "exited"


async def test_bytes_pass_both_ways_unchanged(room: Room) -> None:
    data = bytes(range(256)) + "漢字é😀".encode()
    terminal = await room.open(f"stty raw -echo; echo on; head -c {len(data)}")
    viewer = Viewer(terminal)
    await viewer.until(b"on\n")
    for start in range(0, len(data), 3):
        await terminal.write(data[start : start + 3])
    assert await viewer.rest() == data


async def test_the_line_editor_of_the_kernel_knows_characters(room: Room) -> None:
    terminal = await room.open('read line; echo "<$line>"')
    await terminal.write("aé\x7f\n".encode())
    assert b"<a>" in await Viewer(terminal).rest()


# --- viewers


async def test_each_viewer_is_told_all_and_goes_on_from_its_cursor(room: Room) -> None:
    terminal = await room.open(("cat",))
    first, second = Viewer(terminal), Viewer(terminal)
    await terminal.write(b"one\n")
    for viewer in (first, second):
        assert (await viewer.until(b"one\r\none\r\n")).start() == 0
    left_at = first.at
    await terminal.write(b"two\n")
    await second.until(b"two\r\ntwo\r\n")
    await Viewer(terminal).until(b"one\r\none\r\ntwo\r\ntwo\r\n")
    again = Viewer(terminal, left_at)
    assert (await again.until(b"two\r\ntwo\r\n")).start() == 0
    await terminal.write(b"\x04")
    assert await again.rest() == b""


async def test_a_new_viewer_gets_the_last_of_much(room: Room) -> None:
    viewer = Viewer(terminal := await room.open("stty -opost; seq 1 20000; echo end"))
    whole = b"".join(b"%d\n" % n for n in range(1, 20001)) + b"end\n"
    await viewer.rest()
    late = Viewer(terminal)
    assert 0 < late.at.offset < len(whole)
    shown = await late.rest()
    assert whole.endswith(shown)
    assert 2**15 <= len(shown) < 2**15 + 2**16  # dropped are whole reads, and one may hold 64 KiB
    assert late.gaps == 0


async def test_a_viewer_that_keeps_up_misses_nothing(room: Room) -> None:
    terminal = await room.open("stty -opost; seq 1 200000")
    seen = b""
    async with asyncio.timeout(DEADLINE_S):
        async for batch in terminal.journal.follow():
            assert Kind.GAP not in {entry.kind for entry in batch}
            seen += b"".join(entry.data for entry in batch if entry.kind == Kind.STDOUT)
    assert seen == b"".join(b"%d\n" % n for n in range(1, 200_001))


async def test_a_slow_viewer_holds_up_nobody_and_hears_of_its_gap(room: Room) -> None:
    terminal = await room.open("stty -opost; seq 1 300000; echo end")
    slow = Viewer(terminal)
    await slow.until(b"1\n")
    await asyncio.wait_for(terminal.wait(), DEADLINE_S)
    at = slow.at.offset
    seen = slow.seen
    shown = await slow.rest()
    assert slow.gaps == 1
    assert shown.endswith(b"299999\n300000\nend\n")
    assert len(shown) - len(seen) < 2**18
    assert at < 2**18 < slow.at.offset
    assert terminal.journal.memory < 2**18


# --- input


async def test_input_that_nothing_reads_is_refused_in_time(place: Place) -> None:
    async with a_room(place, input_timeout=0.3) as room:
        terminal = await room.open("stty raw -echo; echo on; exec sleep 60")
        await Viewer(terminal).until(b"on\n")
        with pytest.raises(SandcellError) as caught:
            await terminal.write(bytes(2**21))
        assert caught.value.code == ErrorCode.BUSY
        assert 0 < caught.value.details["written"] < 2**21
        assert await code_of(terminal.write(bytes(2**16))) == ErrorCode.BUSY


async def test_a_flood_is_taken_as_fast_as_it_is_read(room: Room) -> None:
    size = 3 * 2**20
    terminal = await room.open(f"stty raw -echo; echo on; head -c {size} | cksum")
    viewer = Viewer(terminal)
    await viewer.until(b"on\n")
    half = bytes(size // 2)
    await asyncio.gather(terminal.write(half), terminal.write(half))
    assert (await viewer.rest()).split()[1] == b"%d" % size


async def test_who_writes_hears_of_the_end(room: Room) -> None:
    terminal = await room.open("stty raw -echo; echo on; head -c 1 >/dev/null; kill -9 $$")
    await Viewer(terminal).until(b"on\n")
    assert await code_of(terminal.write(bytes(2**20))) == ErrorCode.LOST


# --- the end


async def test_a_shell_that_redirects_itself_is_not_over(room: Room) -> None:
    terminal = await room.open("exec </dev/null >/dev/null 2>&1; sleep 0.2; echo again >/dev/tty")
    assert await Viewer(terminal).rest() == b"again\r\n"


async def test_delete_ends_its_tree_at_once(room: Room) -> None:
    terminal = await room.open(
        "(trap '' HUP TERM; setsid sleep 60 & sleep 60) & nohup sleep 60 & echo on; exec bash -i"
    )
    viewer = Viewer(terminal)
    await viewer.until(b"on\r\n")
    await room.terminals.delete(terminal.id, who="sdk")
    assert terminal.end is not None
    assert (terminal.end.cause, terminal.end.who) == ("killed", "sdk")
    assert [each for each in await room.place.spawner.processes() if each.owner == terminal.id] == []
    assert await code_of(room.terminals.delete(terminal.id)) == ErrorCode.NOT_FOUND


async def test_an_idle_shell_is_deleted_without_waiting_for_the_grace(place: Place) -> None:
    async with a_room(place, kill_grace=DEADLINE_S) as room:
        terminal = await room.open()
        await Viewer(terminal).until(rb"\$ ")
        async with asyncio.timeout(DEADLINE_S / 2):
            await room.terminals.delete(terminal.id)


async def test_what_a_terminal_leaves_behind_ends_with_it(room: Room) -> None:
    terminal = await room.open(
        "mkfifo f; nohup setsid sh -c 'echo >f; exec sleep 60' >/dev/null 2>&1 & read <f; echo on; exit 4"
    )
    viewer = Viewer(terminal)
    assert await viewer.rest() == b"on\r\n"
    assert viewer.ended is not None
    assert (viewer.ended.exit_code, viewer.ended.leftovers) == (4, 1)
    assert viewer.ended.end.cause == "exited"


async def test_who_looks_at_one_that_is_deleted_sees_the_end(room: Room) -> None:
    viewer = Viewer(terminal := await room.open("trap 'echo bye' HUP; echo on; read x"))
    await viewer.until(b"on\r\n")
    with terminal.view():
        await room.terminals.delete(terminal.id)
        await viewer.rest()
    assert viewer.ended is not None and viewer.ended.end.cause == "killed"
    assert terminal.journal.memory == 0


async def test_followers_hear_that_the_sandbox_ended(room: Room) -> None:
    viewer = Viewer(terminal := await room.open(("cat",)))
    await terminal.write(b"x\n")
    await viewer.until(b"x\r\nx\r\n")
    room.terminals.close()
    assert await viewer.rest() == b""
    assert viewer.ended is not None and viewer.ended.end.cause == "lost"


# --- ids


async def test_many_creates_of_one_id_make_one_terminal(room: Room) -> None:
    made = await asyncio.gather(*(room.terminals.create("one", room.plan(("cat",))) for _ in range(50)))
    assert len(set(map(id, made))) == 1
    await room.terminals.create("one", room.plan(("cat",), size=Size(10, 10)))
    assert await code_of(room.terminals.create("one", room.plan(("dog",)))) == ErrorCode.EXISTS
    processes = await room.place.spawner.processes()
    assert [each.pid for each in processes if each.owner == "one"] == [made[0].pid]


async def test_a_creator_that_gives_up_leaves_the_id_to_others(room: Room) -> None:
    first = asyncio.ensure_future(room.terminals.create("one", room.plan(("cat",))))
    second = asyncio.ensure_future(room.terminals.create("one", room.plan(("cat",))))
    await asyncio.wait({first, second}, timeout=0)
    first.cancel()
    assert (await second).end is None
    assert len(await room.place.spawner.processes()) == 1


async def test_it_is_in_use_while_somebody_looks_or_it_says_something(room: Room) -> None:
    assert room.terminals.last_active() == 0.0
    terminal = await room.open(("cat",))
    terminal.active_at = 1.0
    assert room.terminals.last_active() == 1.0
    with terminal.view():
        assert time.time() - room.terminals.last_active() < 1
    terminal.active_at = 1.0
    await terminal.write(b"x")
    await Viewer(terminal).until(b"x")
    assert time.time() - room.terminals.last_active() < DEADLINE_S
    with terminal.view():
        await room.terminals.delete(terminal.id)
    terminal.active_at = 1.0
    assert room.terminals.last_active() == 0.0


async def test_a_guest_that_is_the_user_opens_them_itself(place: Place) -> None:
    if place.mode == "marks":
        return  # these tests stand outside of the sandbox
    async with a_room(place, is_other=False) as room:
        assert await Viewer(await room.open("test -O $(tty) && echo mine")).rest() == b"mine\r\n"
        assert await place.spawner.processes() == []


async def test_only_the_last_that_ended_are_kept(place: Place) -> None:
    async with a_room(place, max_records=3) as room:
        live = await room.open(("cat",))
        for number in range(6):
            await (await room.terminals.create(f"t{number}", room.plan(("true",)))).wait()
        assert [each.id for each in room.terminals.list()] == [live.id, "t2", "t3", "t4", "t5"]
        assert await code_of(room.terminals.delete("t0")) == ErrorCode.NOT_FOUND


async def test_fifty_terminals_come_and_go_and_leave_nothing_open(room: Room) -> None:
    await (await room.open(("true",))).wait()
    before = len(os.listdir("/proc/self/fd"))
    made = await asyncio.gather(*(room.open(("echo", str(n))) for n in range(50)))
    for number, terminal in enumerate(made):
        assert await Viewer(terminal).rest() == b"%d\r\n" % number
    assert len(os.listdir("/proc/self/fd")) == before
